"""Starts in a unit's history: when one began, what caused it, and how many there were that nobody observed.

A start is a change of InvocationID, whatever caused it: systemd makes a new one for each attempt
(src/core/unit.c: unit_acquire_invocation_id). NRestarts tells automatic starts from others, and how many were missed.
By itself it does not count starts: systemd raises it when it queues a restart, also for one that is refused or
cancelled, and sets it back to 0 with most manual starts and with reset-failed.
"""

from dataclasses import replace

from llmhost.derive.activation import activation_began, is_up, restart_is_queued, waits_to_restart
from llmhost.derive.history.changes import with_counted, with_started
from llmhost.derive.relatives import started_by
from llmhost.model.history.unit_history import Start, Trigger, UnitHistory, Verdict
from llmhost.model.unit import Unit
from llmhost.model.unit_event import UnitEvent


def with_new_start(history: UnitHistory, event: UnitEvent) -> UnitHistory:
    unit = event.unit
    # The restart that is queued at a live start is that start itself (systemd 254 and later show it so).
    now = started_nrestarts(unit) if event.gap else unit.nrestarts or 0
    before, attempts_before = history.nrestarts, history.latest.attempt if history.latest is not None else 0
    started = now - was_refused(unit) if event.gap else now
    due = unit.job != 0 and unit.job == history.restart_job  # reset-failed may have reset its count
    automatic, count = max(0, started - before, int(due)), 1
    if event.gap:
        if (
            not history.loaded or not history.invocation_id
        ):  # the first start of a unit that systemd has just loaded is manual
            automatic, count, attempts_before = started, 1 + started, 0
        elif now < before:  # it was reset since, and raised as often as it shows
            automatic, count = started, max(1, started)
        else:
            count = max(1, automatic)
    began = began_monotonic(unit, event)
    by = "" if automatic else _started_by(history, unit, began)
    trigger = Trigger.AUTO if automatic else Trigger.UNIT if by else Trigger.MANUAL
    missed_automatic = min(count - 1, automatic - 1 if automatic else 0)
    if missed_automatic:
        history = with_counted(history, Trigger.AUTO, Verdict.UNKNOWN, missed_automatic)
    if count - 1 - missed_automatic:
        history = with_counted(history, Trigger.MANUAL, Verdict.UNKNOWN, count - 1 - missed_automatic)
    start = Start(
        invocation_id=unit.invocation_id,
        trigger=trigger,
        attempt=attempts_before + count if trigger is Trigger.AUTO else 1,
        at=event.at - (event.at_monotonic - began),
        began_monotonic=began,
        seen_in_state_before=not event.gap and not is_up(unit),
        state_before_monotonic=unit.state_change_monotonic,
        start_job=start_job(event),
        started_by=by,
    )
    return replace(
        with_started(history, start),
        invocation_id=unit.invocation_id,
        nrestarts=now,
        restart_job=0,
        last_start_at=start.at,
        stopped=False,
    )


def _started_by(history: UnitHistory, unit: Unit, began_monotonic: float) -> str:
    """Name the unit for which systemd has made this start; "" where there is none."""
    last = history.latest if history.invocation_id else None  # else of an earlier boot
    if last is not None and last.end is not None and unit.job and unit.job == last.other_job:
        return last.end.ended_with  # the other half of the same restart, a person's or one with that unit
    ends = [unit.inactive_enter_monotonic]
    if last is not None and last.end is not None:
        ends.append(last.began_monotonic + last.end.seconds)
    ended = max((end for end in ends if end is not None and end <= began_monotonic), default=0.0)
    waited = history.state == "auto_restart"
    return started_by(unit, after_monotonic=ended, by_monotonic=began_monotonic, waited=waited)


def start_job(event: UnitEvent) -> int:
    """Give the job of the start. Over a gap it is the unit's job only while the unit is activating, else another's."""
    return event.unit.job if not event.gap or event.unit.active_state == "activating" else 0


def began_monotonic(unit: Unit, event: UnitEvent) -> float:
    """Give the time of a start attempt: ConditionTimestamp, unless that is still of a start before (see activation)."""
    condition = unit.condition_monotonic
    if is_up(unit):
        began = activation_began(unit)
        earliest, condition = (0.0, None) if began is None else (began, condition)
    elif event.gap:
        earliest = 0.0  # the end that it shows is that of this attempt
    else:
        ends = (unit.inactive_enter_monotonic, unit.active_exit_monotonic, unit.begun_after_monotonic)
        earliest = max((end for end in ends if end is not None), default=0.0)
    for time in (condition, unit.first_process_monotonic, unit.exec_main_start_monotonic):
        if time is not None and earliest <= time <= event.at_monotonic:
            return time
    return event.at_monotonic


def with_nrestarts(history: UnitHistory, unit: Unit) -> UnitHistory:
    """Follow the changes of NRestarts between two starts.

    reset-failed resets it without a signal. That shows with the next queued restart: the number is lower, or, where it
    was 1 and is 1 again, Result is no longer that of the end. A restart that was refused or cancelled has raised it
    as well, which shows when the unit comes to rest.
    """
    if unit.nrestarts is None:
        return replace(history, nrestarts=0)
    if waits_to_restart(unit) and unit.job and unit.nrestarts > history.nrestarts:
        history = replace(history, restart_job=unit.job)
    at_rest = not is_up(unit) and not waits_to_restart(unit) and not unit.job
    if unit.nrestarts < history.nrestarts or at_rest or _has_lost_its_result(history, unit):
        return replace(history, nrestarts=started_nrestarts(unit))
    return history


def _has_lost_its_result(history: UnitHistory, unit: Unit) -> bool:
    """Say whether the result of the run that ended has been reset, while the unit waits to restart."""
    end = history.latest.end if history.latest is not None else None
    return waits_to_restart(unit) and unit.result == "success" and end is not None and end.result not in ("", "success")


def started_nrestarts(unit: Unit) -> int:
    """Give NRestarts without the restart that is queued and has not started yet."""
    if unit.nrestarts is None:
        return 0
    return max(0, unit.nrestarts - 1) if restart_is_queued(unit) else unit.nrestarts


def was_refused(unit: Unit) -> bool:
    """Say whether the start limit seems to have refused the last restart in NRestarts: the unit waited for it."""
    if unit.active_state != "failed" or unit.job or not unit.nrestarts:
        return False
    waited, exited = unit.inactive_exit_monotonic, unit.exec_main_exit_monotonic
    return unit.result == "start-limit-hit" or (waited is not None and exited is not None and exited <= waited)
