"""A unit event's part in the history: starts, ends of runs, and time in each state."""

from dataclasses import dataclass, replace

from llmhost.derive.activation import is_up, waits_to_restart
from llmhost.derive.history.bounds import MAX_UNITS
from llmhost.derive.history.changes import with_changed, with_counted, with_time
from llmhost.derive.history.last_servers import with_written_servers
from llmhost.derive.history.starts import (
    began_monotonic,
    start_job,
    started_nrestarts,
    with_new_start,
    with_nrestarts,
)
from llmhost.derive.relatives import ended_with
from llmhost.derive.should_run import should_run
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import UNWATCHED, End, Start, UnitHistory, Verdict
from llmhost.model.reading import Ok
from llmhost.model.unit import Unit
from llmhost.model.unit_event import UnitEvent

_RELOADING = frozenset({"reloading", "refreshing"})
_RUNS_AT_TIMES = (".timer", ".path", ".socket")  # what they start may end when it has done its work
_NO_FILE = frozenset({"", "transient"})
_BEFORE_MAIN = frozenset({"dead", "condition", "start-pre", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MainStarted:
    """The main process of a start has begun: the moment to judge the start."""

    unit: Unit
    start: Start


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run has ended, or an attempt before its main process."""

    unit: Unit
    start: Start  # with its end


Step = MainStarted | Ended


def with_event(history: History, event: UnitEvent) -> tuple[History, tuple[Step, ...]]:
    """Take in one event; give the steps to act on, in order."""
    unit_history, steps = with_unit_event(history.units.get(event.unit.id), event)
    units = {**history.units, event.unit.id: unit_history}
    if any(isinstance(step, Ended) and _is_at_rest(event.unit, step.start) for step in steps):
        history = replace(history, last_servers=with_written_servers(history.last_servers, event.unit))
    if len(units) > MAX_UNITS:  # a loop of systemd-run leaves a new name each time
        oldest = min(units.keys() - {event.unit.id}, key=lambda unit: units[unit].last_seen_at)
        del units[oldest]
    return replace(history, units=units), steps


def with_unit_event(history: UnitHistory | None, event: UnitEvent) -> tuple[UnitHistory, tuple[Step, ...]]:
    """Do the same for the history of one unit; None where the unit is new."""
    unit = event.unit
    steps: list[Step] = []
    if history is None:
        history = _first_observed(event)
    elif unit.invocation_id and unit.invocation_id != history.invocation_id:
        history, ended = _with_end_unseen(history, event)
        steps += ended
        history = with_new_start(history, event)
    else:
        history = with_nrestarts(history, unit)
    history, more = _with_progress(history, event)
    steps += more
    history = _with_state(_with_file(history, event), event)
    return replace(history, loaded=_is_loaded(unit), last_seen_at=event.at), tuple(steps)


def has_main(unit: Unit) -> bool:
    """Say whether the main process of the unit's present activation has begun, by the unit's state.

    ExecStart= runs where there is a main process; and, for Type=forking, whose main process is known late, in each
    sub-state after those of ExecCondition= and ExecStartPre=.
    """
    if unit.main_pid:
        return True
    return is_up(unit) and unit.active_state != "deactivating" and unit.sub_state not in _BEFORE_MAIN


def state_label(unit: Unit) -> str:
    """Name the state that time is counted for: ActiveState, with `auto_restart` and `start_pre` by themselves."""
    if waits_to_restart(unit):
        return "auto_restart"
    if unit.active_state == "activating" and unit.sub_state == "start-pre":
        return "start_pre"
    return unit.active_state


def _is_loaded(unit: Unit) -> bool:
    return bool(unit.invocation_id) or unit.settings is not None


def _first_observed(event: UnitEvent) -> UnitHistory:
    """Begin a unit's history. A run that is under way began before: its end counts, its start does not."""
    unit = event.unit
    history = UnitHistory(
        last_seen_at=event.at,
        invocation_id=unit.invocation_id,
        nrestarts=started_nrestarts(unit),
        state=state_label(unit),
        state_since_monotonic=event.at_monotonic,
        last_start_at=None
        if not unit.invocation_id
        else event.at - (event.at_monotonic - began_monotonic(unit, event)),
    )
    if not is_up(unit):
        return history
    began = began_monotonic(unit, event)
    under_way = Start(
        invocation_id=unit.invocation_id,
        trigger=None,
        attempt=1,
        at=event.at - (event.at_monotonic - began),
        began_monotonic=began,
        main_monotonic=(unit.exec_main_start_monotonic or began) if has_main(unit) else None,
        start_job=start_job(event),
    )
    return replace(history, starts=(under_way,))


def _is_at_rest(unit: Unit, ended: Start) -> bool:
    """Say whether systemd may unload the unit right after this end."""
    restarts = unit.settings is not None and unit.settings.restart == "always"
    return unit.active_state == "inactive" and (ended.asked_to_end or not restarts)


def _with_file(history: UnitHistory, event: UnitEvent) -> UnitHistory:
    """Follow whether the unit's file is there. It has vanished where the unit should run, and no job has stopped it.

    As long as a unit is not at rest, systemd keeps it also without its file. A transient unit has none to vanish.
    """
    unit = event.unit
    if unit.load_state == "not-found":
        if unit.active_state != "inactive" or not history.should_run:
            return history
        return replace(history, should_run=False, vanished_at=None if history.stopped else event.at)
    wanted = unit.unit_file_state not in _NO_FILE and should_run(unit, history) == Ok(True)
    return replace(history, should_run=wanted, vanished_at=None)


def _with_end_unseen(history: UnitHistory, event: UnitEvent) -> tuple[UnitHistory, tuple[Step, ...]]:
    """End a run whose end was not observed."""
    open_start = history.latest
    if open_start is None or open_start.end is not None:
        return history, ()
    return _ended(history, open_start, event, result="", asked=None)


def _with_progress(history: UnitHistory, event: UnitEvent) -> tuple[UnitHistory, tuple[Step, ...]]:
    """Follow the latest start: to its main process, and to its end."""
    unit, start = event.unit, history.latest
    if start is None or start.end is not None:
        return replace(history, stopped=_is_stopped(history, unit)), ()
    if start.invocation_id != unit.invocation_id and unit.invocation_id:
        return history, ()
    steps: list[Step] = []
    if start.main_monotonic is None and (has_main(unit) or (event.gap and unit.exec_main_start_monotonic is not None)):
        began = unit.exec_main_start_monotonic
        start = replace(start, main_monotonic=event.at_monotonic if began is None else began)
        steps.append(MainStarted(unit=unit, start=start))
    start = _with_job(start, event, history.state)
    history = with_changed(history, start)
    if _has_ended(unit, start):
        asked = True if start.asked_to_end else (None if event.gap else False)
        history, ended = _ended(history, start, event, result=unit.result, asked=asked)
        steps += ended
    return history, tuple(steps)


def _with_job(start: Start, event: UnitEvent, state_before: str) -> Start:
    """Follow whether a job asks for the end: one that stops or restarts the unit, which systemd does not say of it.

    Such a job is there before the end begins. One that comes later does not ask for it, such as a start that waits for
    the end, or that Upholds= asks for; nor does one that reloads the unit.
    """
    unit = event.unit
    if unit.job in (0, start.start_job):
        return start
    if not is_up(unit):
        return _asked(start, unit) if unit.job == start.other_job else start
    if unit.active_state == "deactivating":
        begins = event.gap or state_before != "deactivating"
        return _asked(start, unit) if begins else start
    if unit.active_state in _RELOADING and state_before not in _RELOADING:
        return replace(start, start_job=unit.job, other_job=0)
    return replace(start, other_job=unit.job)


def _asked(start: Start, unit: Unit) -> Start:
    """Note a job that asks for the end: a person's, unless systemd has made it as another unit ended by itself."""
    if start.asked_to_end or start.ended_with:
        return start
    other = ended_with(unit, start.began_monotonic)
    return replace(start, asked_to_end=not other, ended_with=other, other_job=unit.job)


def _is_stopped(history: UnitHistory, unit: Unit) -> bool:
    """Say whether the unit, of which no run is under way, was stopped by a job.

    A stop cancels its restart. A start that is refused looks the same at first, and then shows as failed: no stop.
    """
    if unit.active_state == "failed" and history.state in ("auto_restart", "inactive"):
        return False
    called_off = history.state == "auto_restart" and unit.active_state == "inactive" and unit.job != 0
    return history.stopped or called_off


def _has_ended(unit: Unit, start: Start) -> bool:
    """Say whether the unit, which shows this start's InvocationID or none at all, is past this start."""
    if is_up(unit):
        return False
    if not unit.invocation_id:  # systemd has unloaded it, and the time of its state change with it
        return True
    return not (start.seen_in_state_before and unit.state_change_monotonic == start.state_before_monotonic)


def _ended(
    history: UnitHistory, start: Start, event: UnitEvent, *, result: str, asked: bool | None
) -> tuple[UnitHistory, tuple[Step, ...]]:
    unit = event.unit
    ended_monotonic = event.at_monotonic
    if unit.invocation_id == start.invocation_id:  # over a gap, its state may have changed since
        shown = unit.exec_main_exit_monotonic if event.gap else unit.state_change_monotonic
        ended_monotonic = ended_monotonic if shown is None else shown
    at = event.at - (event.at_monotonic - ended_monotonic)
    never_started = start.main_monotonic is None
    unwatched = never_started and event.gap and not result
    outcome = Verdict.UNKNOWN if unwatched else Verdict.NOT_STARTED
    start = replace(
        start,
        verdict=outcome if never_started else start.verdict,
        unknown_because=UNWATCHED if unwatched else start.unknown_because,
        end=End(
            at=at,
            result=result,
            exec_main_status=unit.exec_main_status if result and not never_started else None,
            asked=asked,
            ended_with=start.ended_with,
            seconds=max(0.0, ended_monotonic - start.began_monotonic),
        ),
    )
    history = replace(with_changed(history, start), stopped=bool(asked))
    if never_started and start.trigger is not None:
        history = with_counted(history, start.trigger, outcome)
    if result not in ("", "success"):
        failures = {**history.failures_total, result: history.failures_total.get(result, 0) + 1}
        history = replace(history, failures_total=failures, last_failure_at=at)
    elif result and asked is False and not never_started and is_to_stay(unit, start):
        history = replace(history, unexpected_stops_total=history.unexpected_stops_total + 1)
    return history, (Ended(unit=unit, start=start),)


def is_to_stay(unit: Unit, start: Start) -> bool:
    """Say whether an end is unexpected: not with Type=oneshot, which is there to end, or after a timer's start."""
    if start.started_by.endswith(_RUNS_AT_TIMES):
        return False
    return unit.settings is not None and unit.settings.service_type not in ("", "oneshot")


def _with_state(history: UnitHistory, event: UnitEvent) -> UnitHistory:
    """Count the time in the state that ended. Over a gap in which the state changed, that state is unknown."""
    unit, now = event.unit, event.at_monotonic
    label = state_label(unit)
    since = history.state_since_monotonic
    changed = unit.state_change_monotonic
    at = now if changed is None or not history.state else min(changed, now)
    at = max(at, since) if history.state else at  # an observation may have counted beyond the event's time already
    if label == history.state and (changed is None or changed <= since):
        return with_time(history, now)
    if not event.gap:
        history = with_time(history, at)
    return replace(history, state=label, state_since_monotonic=at)
