"""The units that a page has series of: where they are too many, those that matter most. Pure."""

from llmhost.derive.activation import is_up, waits_to_restart
from llmhost.derive.facts import UnitFacts
from llmhost.metrics.page import Page
from llmhost.metrics.view import PageView
from llmhost.model.history.unit_history import Trigger, Verdict
from llmhost.model.process import Role
from llmhost.model.reading import Ok
from llmhost.model.unit import ACTIVE_STATES, SERVICE_RESULTS

# The series of one unit in its largest family; llmhost_unit_state_seconds_total has two states more than systemd.
_MOST_PER_UNIT = max(len(ACTIVE_STATES) + 2, len(SERVICE_RESULTS), len(Role), len(Trigger) * len(Verdict))
_LASTING, _RUNNING, _ENDED = range(3)


def shown_units(view: PageView, page: Page) -> tuple[UnitFacts, ...]:
    """Give the units; where a family may be cut, in the order of their worth, as the last ones lose their series.

    Those that the config names or that have a file come first, then transient ones that run. Of transient ones that
    have ended there may be any number: as many are shown as no family is cut for, those that were started last.
    """
    facts = view.host.facts.units
    if not isinstance(facts, Ok):
        return ()
    most = page.max_per_family // _MOST_PER_UNIT
    if len(facts.value) <= most:
        return facts.value
    ranked = sorted(((_rank(fact, view), fact) for fact in facts.value), key=lambda ranked: ranked[0])
    first = [fact for rank, fact in ranked if rank != _ENDED]
    ended = sorted((fact for rank, fact in ranked if rank == _ENDED), key=lambda fact: -_last_start_at(fact, view))
    return (*first, *ended[: max(0, most - len(first))])


def _rank(fact: UnitFacts, view: PageView) -> int:
    unit = fact.unit
    if unit.unit_file_state not in ("", "transient") or unit.id.name in view.patterns:
        return _LASTING
    return _RUNNING if is_up(unit) or waits_to_restart(unit) else _ENDED


def _last_start_at(fact: UnitFacts, view: PageView) -> float:
    history = view.host.history.units.get(fact.unit.id)
    return history.last_start_at or 0.0 if history is not None else 0.0
