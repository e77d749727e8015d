"""Series of the units' history: starts, ends, time in each state. Pure."""

from collections.abc import Mapping

from llmhost.metrics import catalog
from llmhost.metrics.page import Page
from llmhost.metrics.view import PageView
from llmhost.model.history.unit_history import Trigger, UnitHistory, Verdict
from llmhost.model.ids import GpuUuid
from llmhost.model.reading import Ok, value_or_none
from llmhost.model.unit import ACTIVE_STATES, SERVICE_RESULTS

_FAILURES = tuple(result for result in SERVICE_RESULTS if result != "success")
_STATES = (*ACTIVE_STATES, "auto_restart", "start_pre")
_CAUSE_NOT_READ = "unknown"


def history_series(view: PageView, page: Page) -> None:
    report, facts = view.host.snapshot.nvml, view.host.facts.units
    if not isinstance(facts, Ok):
        return
    indexes = {gpu.uuid: gpu.index for gpu in report.value.gpus} if isinstance(report, Ok) else {}
    # Of a unit that nobody has heard of before nothing is remembered: its counters begin at 0 on the first page.
    nothing = UnitHistory(last_seen_at=view.host.snapshot.at)
    for fact in facts.value:
        labels = {"unit": fact.unit.id.name, "manager": fact.unit.id.manager}
        record = view.host.history.units.get(fact.unit.id, nothing)
        _counts(record, labels, page)
        _latest(record, labels, page)
        _in_the_way(record, indexes, labels, page)
        page.add(catalog.UNIT_GIVES_UP, value_or_none(fact.gives_up), **labels)


def _counts(record: UnitHistory, labels: Mapping[str, str], page: Page) -> None:
    for trigger in Trigger:
        for verdict in Verdict:
            count = record.starts_total.get((trigger, verdict), 0)
            page.add(catalog.UNIT_STARTS, count, **labels, trigger=trigger, verdict=verdict)
    others = sorted(record.failures_total.keys() - set(_FAILURES))  # of a systemd that is newer than this list
    for result in (*_FAILURES, *others):
        page.add(catalog.UNIT_FAILURES, record.failures_total.get(result, 0), **labels, result=result)
    page.add(catalog.UNIT_UNEXPECTED_STOPS, record.unexpected_stops_total, **labels)
    others = sorted(record.state_seconds.keys() - set(_STATES))
    for state in (*_STATES, *others):
        page.add(catalog.UNIT_STATE_SECONDS, record.state_seconds.get(state, 0.0), **labels, state=state)


def _latest(record: UnitHistory, labels: Mapping[str, str], page: Page) -> None:
    page.add(catalog.UNIT_LAST_START, record.last_start_at, **labels)
    page.add(catalog.UNIT_LAST_RESIDENT_START, record.last_resident_start_at, **labels)
    page.add(catalog.UNIT_LAST_FAILURE, record.last_failure_at, **labels, cause=_CAUSE_NOT_READ)
    page.add(catalog.UNIT_LAST_RELEASE, record.last_release_seconds, **labels)


def _in_the_way(record: UnitHistory, indexes: Mapping[GpuUuid, str], labels: Mapping[str, str], page: Page) -> None:
    """Show what was in the way, on each GPU by its present index."""
    judged = record.last_judged
    for way in judged.in_the_way if judged is not None else ():
        gpu = indexes.get(way.uuid, way.gpu)
        page.add(catalog.UNIT_IN_THE_WAY, way.used_bytes, **labels, gpu=gpu, uuid=way.uuid, kind=way.kind)
