"""What one event of a unit adds to its record: starts, ends of runs, time in each state.

A start is a change of InvocationID, whatever caused it: systemd makes a new one for each attempt
(src/core/unit.c: unit_acquire_invocation_id). NRestarts tells automatic starts from others, and how many were missed.
By itself it is no count of starts: it is raised when the restart's job is queued, also for one that is refused or
cancelled, and goes back to 0 with most manual starts and with reset-failed.
"""

from dataclasses import dataclass, replace

from llmhost.derive.activation import is_up, waits_to_restart
from llmhost.derive.history.changes import with_changed, with_counted, with_started, with_time
from llmhost.derive.history.nrestarts import started_nrestarts, was_refused, with_nrestarts
from llmhost.model.history.bounds import MAX_UNITS
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import UNWATCHED, End, Start, Trigger, UnitHistory, Verdict
from llmhost.model.unit import Unit
from llmhost.model.unit_event import UnitEvent

_BEFORE_MAIN = frozenset({"dead", "condition", "start-pre", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MainStarted:
    """A start has got as far as its main process: now is the time to judge it."""

    unit: Unit
    start: Start


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run has ended, or an attempt before its main process."""

    unit: Unit
    start: Start  # with its end


Step = MainStarted | Ended


def advance_event(history: History, event: UnitEvent) -> tuple[History, tuple[Step, ...]]:
    """Take in one event; say what happened that somebody has to act on, in order."""
    record, steps = advance_unit(history.units.get(event.unit.id), event)
    units = {**history.units, event.unit.id: record}
    if len(units) > MAX_UNITS:  # a loop of systemd-run leaves a new name each time
        oldest = min(units.keys() - {event.unit.id}, key=lambda unit: units[unit].last_seen_at)
        units = {unit: kept for unit, kept in units.items() if unit != oldest}
    return replace(history, units=units), steps


def advance_unit(record: UnitHistory | None, event: UnitEvent) -> tuple[UnitHistory, tuple[Step, ...]]:
    """Do the same for the record of one unit; None where it is seen for the first time."""
    unit = event.unit
    steps: list[Step] = []
    if record is None:
        record = _first_sight(event)
    elif unit.invocation_id and unit.invocation_id != record.invocation_id:
        record, ended = _with_end_unseen(record, event)
        steps += ended
        record = _with_start(record, event)
    else:
        record = with_nrestarts(record, unit)
    record, more = _with_progress(record, event)
    steps += more
    record = _with_state(record, event)
    return replace(record, loaded=_is_loaded(unit), last_seen_at=event.at), tuple(steps)


def has_main(unit: Unit) -> bool:
    """Say whether the unit's present activation has got as far as its main process, as far as the unit's state tells.

    ExecStart= is under way where there is a main process, and, for Type=forking, whose main process is known late, in
    each sub-state that comes after those of ExecCondition= and ExecStartPre=.
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


def _first_sight(event: UnitEvent) -> UnitHistory:
    """Know a unit for the first time. A run that is under way began before: its end counts, its start does not."""
    unit = event.unit
    record = UnitHistory(
        last_seen_at=event.at,
        invocation_id=unit.invocation_id,
        nrestarts=started_nrestarts(unit),
        state=state_label(unit),
        state_since_monotonic=event.at_monotonic,
        last_start_at=None
        if not unit.invocation_id
        else event.at - (event.at_monotonic - _began_monotonic(unit, event)),
    )
    if not is_up(unit):
        return record
    began = _began_monotonic(unit, event)
    under_way = Start(
        invocation_id=unit.invocation_id,
        trigger=None,
        attempt=1,
        at=event.at - (event.at_monotonic - began),
        began_monotonic=began,
        main_monotonic=(unit.exec_main_start_monotonic or began) if has_main(unit) else None,
        start_job=_start_job(event),
    )
    return replace(record, starts=(under_way,))


def _with_start(record: UnitHistory, event: UnitEvent) -> UnitHistory:
    unit = event.unit
    # What is queued at a live start is that start itself (systemd 254 and later show it so).
    now = started_nrestarts(unit) if event.gap else unit.nrestarts or 0
    before, attempts_before = record.nrestarts, record.latest.attempt if record.latest is not None else 0
    started = now - was_refused(unit) if event.gap else now
    due = unit.job != 0 and unit.job == record.restart_job  # its count may have been taken back by reset-failed
    automatic, count = max(0, started - before, int(due)), 1
    if event.gap:
        if not record.loaded or not record.invocation_id:  # the first start of an object of systemd's is manual
            automatic, count, attempts_before = started, 1 + started, 0
        elif now < before:  # it was reset since, and raised as often as it says
            automatic, count = started, max(1, started)
        else:
            count = max(1, automatic)
    trigger = Trigger.AUTO if automatic else Trigger.MANUAL
    missed_automatic = min(count - 1, automatic - 1 if automatic else 0)
    if missed_automatic:
        record = with_counted(record, Trigger.AUTO, Verdict.UNKNOWN, missed_automatic)
    if count - 1 - missed_automatic:
        record = with_counted(record, Trigger.MANUAL, Verdict.UNKNOWN, count - 1 - missed_automatic)
    began = _began_monotonic(unit, event)
    start = Start(
        invocation_id=unit.invocation_id,
        trigger=trigger,
        attempt=attempts_before + count if trigger is Trigger.AUTO else 1,
        at=event.at - (event.at_monotonic - began),
        began_monotonic=began,
        seen_in_state_before=not event.gap and not is_up(unit),
        state_before_monotonic=unit.state_change_monotonic,
        start_job=_start_job(event),
    )
    return replace(
        with_started(record, start),
        invocation_id=unit.invocation_id,
        nrestarts=now,
        restart_job=0,
        last_start_at=start.at,
        stopped=False,
    )


def _start_job(event: UnitEvent) -> int:
    """Give the job that the start is of. At a first look it is that of a unit which is not up yet, else some other."""
    return event.unit.job if not event.gap or event.unit.active_state == "activating" else 0


def _with_end_unseen(record: UnitHistory, event: UnitEvent) -> tuple[UnitHistory, tuple[Step, ...]]:
    """End a run of which nobody saw the end."""
    open_start = record.latest
    if open_start is None or open_start.end is not None:
        return record, ()
    return _ended(record, open_start, event, result="", asked=None)


def _with_progress(record: UnitHistory, event: UnitEvent) -> tuple[UnitHistory, tuple[Step, ...]]:
    """Follow the latest start: to its main process, and to its end."""
    unit, start = event.unit, record.latest
    if start is None or start.end is not None:
        return replace(record, stopped=_is_stopped(record, unit)), ()
    if start.invocation_id != unit.invocation_id and unit.invocation_id:
        return record, ()
    steps: list[Step] = []
    if start.main_monotonic is None and (has_main(unit) or (event.gap and unit.exec_main_start_monotonic is not None)):
        began = unit.exec_main_start_monotonic
        start = replace(start, main_monotonic=event.at_monotonic if began is None else began)
        steps.append(MainStarted(unit=unit, start=start))
    if unit.job not in (0, start.start_job) and (unit.active_state == "deactivating" or not is_up(unit)):
        start = replace(start, asked_to_end=True)
    record = with_changed(record, start)
    if _has_ended(unit, start):
        asked = True if start.asked_to_end else (None if event.gap else False)
        record, ended = _ended(record, start, event, result=unit.result, asked=asked)
        steps += ended
    return record, tuple(steps)


def _is_stopped(record: UnitHistory, unit: Unit) -> bool:
    """Say whether the unit, of which no run is under way, was brought to rest by a job.

    A stop calls its restart off. A start that is refused looks the same at first, and then shows as failed: no stop.
    """
    if unit.active_state == "failed" and record.state in ("auto_restart", "inactive"):
        return False
    called_off = record.state == "auto_restart" and unit.active_state == "inactive" and unit.job != 0
    return record.stopped or called_off


def _has_ended(unit: Unit, start: Start) -> bool:
    """Say whether the unit, which shows this start's InvocationID or none at all, is past this start."""
    if is_up(unit):
        return False
    if not unit.invocation_id:  # systemd has let go of it, and forgotten when its state changed
        return True
    return not (start.seen_in_state_before and unit.state_change_monotonic == start.state_before_monotonic)


def _ended(
    record: UnitHistory, start: Start, event: UnitEvent, *, result: str, asked: bool | None
) -> tuple[UnitHistory, tuple[Step, ...]]:
    unit = event.unit
    ended_monotonic = event.at_monotonic
    if unit.invocation_id == start.invocation_id:  # over a gap, its state may have changed since
        told = unit.exec_main_exit_monotonic if event.gap else unit.state_change_monotonic
        ended_monotonic = ended_monotonic if told is None else told
    at = event.at - (event.at_monotonic - ended_monotonic)
    never_started = start.main_monotonic is None
    untold = never_started and event.gap and not result
    outcome = Verdict.UNKNOWN if untold else Verdict.NOT_STARTED
    start = replace(
        start,
        verdict=outcome if never_started else start.verdict,
        unknown_because=UNWATCHED if untold else start.unknown_because,
        end=End(
            at=at,
            result=result,
            exec_main_status=unit.exec_main_status if result and not never_started else None,
            asked=asked,
            seconds=max(0.0, ended_monotonic - start.began_monotonic),
        ),
    )
    record = replace(with_changed(record, start), stopped=bool(asked))
    if never_started and start.trigger is not None:
        record = with_counted(record, start.trigger, outcome)
    if result not in ("", "success"):
        failures = {**record.failures_total, result: record.failures_total.get(result, 0) + 1}
        record = replace(record, failures_total=failures, last_failure_at=at)
    elif result and asked is False and not never_started and _is_to_stay(unit):
        record = replace(record, unexpected_stops_total=record.unexpected_stops_total + 1)
    return record, (Ended(unit=unit, start=start),)


def _is_to_stay(unit: Unit) -> bool:
    """Say whether the end of such a service is news: not of one that is there to end (Type=oneshot)."""
    return unit.settings is not None and unit.settings.service_type not in ("", "oneshot")


def _began_monotonic(unit: Unit, event: UnitEvent) -> float:
    """When the start attempt began: ConditionTimestamp, unless systemd left that of a start before (see activation)."""
    before = 0.0
    if is_up(unit) or not event.gap:  # else the end that it tells of is that of this attempt
        exited = None if unit.active_state == "deactivating" else unit.active_exit_monotonic
        before = max((end for end in (unit.inactive_enter_monotonic, exited) if end is not None), default=0.0)
    for began in (unit.condition_monotonic, unit.exec_main_start_monotonic):
        if began is not None and before <= began <= event.at_monotonic:
            return began
    return event.at_monotonic


def _with_state(record: UnitHistory, event: UnitEvent) -> UnitHistory:
    """Count the time in the state that ended. Over a gap in which it changed nobody knows what that was."""
    unit, now = event.unit, event.at_monotonic
    label = state_label(unit)
    since = record.state_since_monotonic
    changed = unit.state_change_monotonic
    at = now if changed is None or not record.state else min(changed, now)
    at = max(at, since) if record.state else at  # a look may have come in since the event, and counted up to itself
    if label == record.state and (changed is None or changed <= since):
        return with_time(record, now)
    if not event.gap:
        record = with_time(record, at)
    return replace(record, state=label, state_since_monotonic=at)
