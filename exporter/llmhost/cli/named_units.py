"""Units that are named on a command line: whether there are such, and the status of these alone."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from llmhost.decide.health import Health, HealthFinding
from llmhost.derive.facts import UnitFacts
from llmhost.derive.host_view import HostView
from llmhost.model.ids import UnitId
from llmhost.model.reading import Ok


class NoSuchUnitError(Exception):
    """str() is one line, fit for a terminal."""


def units_meant(view: HostView, names: Iterable[UnitId], remembered: Collection[UnitId] = ()) -> tuple[UnitId, ...]:
    """Give the units that are named, also by an alias, each once.

    Raises NoSuchUnitError for those that neither systemd has nor is `remembered`; if systemd cannot be read, for none.
    """
    units = tuple(dict.fromkeys(map(view.meant, names)))
    if isinstance(view.facts.units, Ok):
        known = {facts.unit.id for facts in view.facts.units.value if facts.unit.load_state != "not-found"}
        missing = sorted(set(units) - known - set(remembered))
        if missing:
            raise NoSuchUnitError(f"there is no unit {', '.join(unit.name for unit in missing)}")
    return units


def of_units(view: HostView, health: Health, units: Collection[UnitId]) -> tuple[HostView, Health]:
    """Give the view with these units alone, and their health: findings of them, of their GPUs, and of the driver.

    Where it is not known which GPUs they use, those of any GPU may be of theirs.
    """
    if not isinstance(view.facts.units, Ok):
        return view, replace(health, findings=tuple(found for found in health.findings if found.subject == "GPUs"))
    chosen = tuple(facts for facts in view.facts.units.value if facts.unit.id in units)
    names, gpus = {unit.name for unit in units}, _gpus(view, chosen)
    return (
        replace(view, facts=replace(view.facts, units=Ok(chosen))),
        replace(health, findings=tuple(found for found in health.findings if _is_of(found, names, gpus))),
    )


def _is_of(finding: HealthFinding, names: set[str], gpus: set[str]) -> bool:
    return finding.subject in names or finding.subject == "GPUs" or not gpus.isdisjoint(finding.gpus)


def _gpus(view: HostView, units: Collection[UnitFacts]) -> set[str]:
    known = all(isinstance(facts.gpus, Ok) for facts in units)
    used = {uuid for facts in units if isinstance(facts.gpus, Ok) for uuid in facts.gpus.value}
    return {gpu.index for gpu in view.snapshot.gpus if gpu.uuid in used or not known}
