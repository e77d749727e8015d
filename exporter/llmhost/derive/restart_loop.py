"""The restart loop of a unit, between two deaths as well, by the definition of LlmhostRestartLoop."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmhost.derive.activation import activation_began, is_up
from llmhost.derive.history.events import is_to_stay
from llmhost.derive.servers import SCRAPED_ENGINES
from llmhost.model.engine import EnginesReport
from llmhost.model.history.unit_history import Start, Trigger, UnitHistory
from llmhost.model.reading import Cause, Failed, Ok, Reading
from llmhost.model.unit import Unit

_WITHIN_SECONDS = 3600.0
_RESTARTS = 2  # within that time, one of them at least since the unit was last well
# A run is well whose engine answers and which began so long ago; or so long, where the engine is not asked.
_WELL_SECONDS = 900.0
_WELL_UNASKED_SECONDS = 1500.0
_NOT_WELL = frozenset({Cause.STARTING, Cause.REFUSED, Cause.TIMEOUT, Cause.HTTP_STATUS})


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartLoop:
    """The runs of a loop, without those before the unit was last well."""

    starts: int
    seconds: float  # since the first of them
    ended: int
    failed: int  # of those that ended
    last_result: str  # of those that ended; "" where it was not observed
    last_seconds: float | None  # how long that run took; None where none has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    seconds_ago: float
    automatic: bool
    start: Start | None  # None for one that the history does not have yet
    well: bool


def restart_loop(
    unit: Unit,
    history: UnitHistory | None,
    engine: str,
    engines: Reading[EnginesReport],
    *,
    at: float,
    at_monotonic: float,
) -> RestartLoop | None:
    """Find the loop that a unit is in, whether it is up right now or waits for its next restart."""
    if history is None:
        return None
    runs = _runs(unit, history, engine, engines, at=at, at_monotonic=at_monotonic)
    of_late = [run for run in runs if run.seconds_ago < _WITHIN_SECONDS]
    well = max((index for index, run in enumerate(runs) if run.well), default=-1)
    since_well = [run for run in runs[well + 1 :] if run.seconds_ago < _WITHIN_SECONDS]
    if sum(run.automatic for run in of_late) < _RESTARTS or not any(run.automatic for run in since_well):
        return None
    if not any(_is_restart(run) or _went_wrong(run, unit) for run in of_late):
        return None  # what a timer starts again and again may end each time
    told = since_well if len(since_well) > 1 else of_late
    ends = [run.start.end for run in told if run.start is not None and run.start.end is not None]
    return RestartLoop(
        starts=len(told),
        seconds=told[0].seconds_ago,
        ended=len(ends),
        failed=sum(end.result not in ("", "success") for end in ends),
        last_result=ends[-1].result if ends else "",
        last_seconds=ends[-1].seconds if ends else None,
    )


def restarts_short_of_memory(history: UnitHistory | None, engine: str, engines: Reading[EnginesReport]) -> bool | None:
    """Say whether each restart that failed found less memory free than it needs; None where that is known of none.

    Of the restarts since a run that was well: what that run died of is another matter. False as soon as one of them had
    enough and failed all the same.
    """
    short: bool | None = None
    for start in reversed(history.starts if history is not None else ()):
        if start.end is None:
            continue
        if _was_well(start, asks=_asks(engine, engines)):
            break
        if _is_automatic(start) and start.short and start.end.result not in ("", "success"):
            short = any(each.short_bytes > 0 for each in start.short) and short is not False
    return short


def _runs(
    unit: Unit,
    history: UnitHistory,
    engine: str,
    engines: Reading[EnginesReport],
    *,
    at: float,
    at_monotonic: float,
) -> Sequence[_Run]:
    """Give the runs, the oldest first; the last one may be one that is not in the history yet."""
    up, asks = is_up(unit), _asks(engine, engines)
    runs = []
    for start in history.starts:
        present = up and start.end is None and start is history.latest and _is_of(unit, start)
        seconds_ago = max(0.0, at - start.at)
        well = _is_well(unit, engines, seconds_ago) if present else _was_well(start, asks=asks)
        runs.append(_Run(seconds_ago=seconds_ago, automatic=_is_automatic(start), start=start, well=well))
    if up and unit.invocation_id and (history.latest is None or not _is_of(unit, history.latest)):
        began = activation_began(unit)
        seconds = 0.0 if began is None else max(0.0, at_monotonic - began)
        well = _is_well(unit, engines, seconds)
        runs.append(_Run(seconds_ago=seconds, automatic=bool(unit.nrestarts), start=None, well=well))
    return runs


def _asks(engine: str, engines: Reading[EnginesReport]) -> bool:
    return engine in SCRAPED_ENGINES and isinstance(engines, Ok)


def _is_automatic(start: Start) -> bool:
    return start.trigger not in (None, Trigger.MANUAL)


def _is_restart(run: _Run) -> bool:
    """Say whether systemd restarted the unit by its Restart=, and no other unit did."""
    return run.automatic and (run.start is None or run.start.trigger is Trigger.AUTO)


def _went_wrong(run: _Run, unit: Unit) -> bool:
    if run.start is None or run.start.end is None or run.start.end.asked:
        return False
    return run.start.end.result not in ("", "success") or is_to_stay(unit, run.start)


def _was_well(start: Start, *, asks: bool) -> bool:
    """Say whether a run that has ended was well, or was ended on purpose. `asks`: its engine would have been asked."""
    if start.end is None or start.end.asked:
        return start.end is not None
    if start.ready_seconds is not None:
        return start.end.seconds >= _WELL_SECONDS
    return start.end.seconds >= _WELL_UNASKED_SECONDS and not asks


def _is_of(unit: Unit, start: Start) -> bool:
    return not unit.invocation_id or unit.invocation_id == start.invocation_id


def _is_well(unit: Unit, engines: Reading[EnginesReport], seconds: float) -> bool:
    """Say whether the present run is well."""
    answers = engines.value.answers if isinstance(engines, Ok) else ()
    samples = [answer.samples for answer in answers if answer.unit == unit.id]
    if any(isinstance(reading, Ok) for reading in samples):
        return seconds >= _WELL_SECONDS
    if any(isinstance(reading, Failed) and reading.cause in _NOT_WELL for reading in samples):
        return False
    return seconds >= _WELL_UNASKED_SECONDS and unit.active_state not in {"activating", "deactivating"}
