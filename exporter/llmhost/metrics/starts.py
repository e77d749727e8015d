"""Series of the units' history, and of their guards' runs. Pure."""

from collections.abc import Mapping

from llmhost.metrics import catalog
from llmhost.metrics.page import Page
from llmhost.metrics.shown_units import shown_units
from llmhost.metrics.view import PageView
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.history.unit_history import Trigger, UnitHistory, Verdict
from llmhost.model.ids import GpuUuid
from llmhost.model.reading import Ok, mapped, value_or_none
from llmhost.model.unit import ACTIVE_STATES, SERVICE_RESULTS

_FAILURES = tuple(result for result in SERVICE_RESULTS if result != "success")
_STATES = (*ACTIVE_STATES, "auto_restart", "start_pre")
_CAUSE_NOT_READ = "unknown"


def history_series(view: PageView, page: Page) -> None:
    report = view.host.snapshot.nvml
    indexes = {gpu.uuid: gpu.index for gpu in report.value.gpus} if isinstance(report, Ok) else {}
    # A unit without a history has counters at 0 on its first page.
    none = UnitHistory(last_seen_at=view.host.snapshot.at)
    for fact in shown_units(view, page):
        labels = {"unit": fact.unit.id.name, "manager": fact.unit.id.manager}
        history = view.host.history.units.get(fact.unit.id, none)
        _counts(history, labels, page)
        _latest(history, labels, page)
        _in_the_way(history, indexes, labels, page)
        page.add(catalog.UNIT_GIVES_UP, value_or_none(fact.start_limit_can_trip), **labels)
        page.add(catalog.UNIT_RESTARTS_SHORT, fact.restarts_short_of_memory, **labels)
        hit = mapped(fact.start_limit_hit, lambda hit: hit is not None)
        page.add(catalog.UNIT_START_LIMIT_HIT, value_or_none(hit), **labels)


def _counts(history: UnitHistory, labels: Mapping[str, str], page: Page) -> None:
    for trigger in Trigger:
        for verdict in Verdict:
            count = history.starts_total.get((trigger, verdict), 0)
            page.add(catalog.UNIT_STARTS, count, **labels, trigger=trigger, verdict=verdict)
    more = sorted(history.failures_total.keys() - set(_FAILURES))  # of a systemd that is newer than this list
    for result in (*_FAILURES, *more):
        page.add(catalog.UNIT_FAILURES, history.failures_total.get(result, 0), **labels, result=result)
    page.add(catalog.UNIT_UNEXPECTED_STOPS, history.unexpected_stops_total, **labels)
    more = sorted(history.state_seconds.keys() - set(_STATES))
    for state in (*_STATES, *more):
        page.add(catalog.UNIT_STATE_SECONDS, history.state_seconds.get(state, 0.0), **labels, state=state)


def _latest(history: UnitHistory, labels: Mapping[str, str], page: Page) -> None:
    page.add(catalog.UNIT_LAST_START, history.last_start_at, **labels)
    page.add(catalog.UNIT_LAST_RESIDENT_START, history.last_resident_start_at, **labels)
    page.add(catalog.UNIT_LAST_FAILURE, history.last_failure_at, **labels, cause=_CAUSE_NOT_READ)
    page.add(catalog.UNIT_LAST_RELEASE, history.last_release_seconds, **labels)


def _in_the_way(history: UnitHistory, indexes: Mapping[GpuUuid, str], labels: Mapping[str, str], page: Page) -> None:
    """Show what was in the way, and how much was short, on each GPU by its present index."""
    judged = history.last_judged
    for way in judged.in_the_way if judged is not None else ():
        gpu = indexes.get(way.uuid, way.gpu)
        page.add(catalog.UNIT_IN_THE_WAY, way.used_bytes, **labels, gpu=gpu, uuid=way.uuid, kind=way.kind)
    for short in judged.short if judged is not None else ():
        gpu = indexes.get(short.uuid, short.gpu)
        page.add(catalog.UNIT_SHORT, short.short_bytes, **labels, gpu=gpu, uuid=short.uuid)


def guard_series(view: PageView, page: Page) -> None:
    runs = view.host.snapshot.guard_runs
    for run in runs.value if isinstance(runs, Ok) else ():
        labels = {"unit": run.unit.name, "manager": run.unit.manager}
        page.add(catalog.GUARD_LAST_RUN, run.at, **labels)
        page.add(catalog.GUARD_LAST_WAIT, run.wait_seconds, **labels)
        page.add(catalog.GUARD_LAST_VERDICT, 1, **labels, verdict=run.verdict)
        for verdict in GuardVerdict:
            page.add(catalog.GUARD_RUNS, run.runs_total.get(verdict, 0), **labels, verdict=verdict)
