"""The activation of a unit: whether it is up, since when, and its processes."""

from llmhost.model.host import Host
from llmhost.model.process import Process, ProcessTable
from llmhost.model.unit import Unit

_OBSERVATION_SECONDS = 60.0  # none takes as long: times further apart are of two clocks
# systemd 254 and 255 may stamp a process after it was forked, and what that forks itself is older than the stamp then.
_STAMP_SECONDS = 0.1
_SIGNAL_SECONDS = 10.0  # by which a busy systemd's signal may be late
_UP = frozenset({"active", "reloading", "refreshing", "deactivating", "activating"})


def waits_to_restart(unit: Unit) -> bool:
    """Say whether it is in auto-restart; since systemd 254 also auto-restart-queued, failed-before-auto-restart, ..."""
    return "auto-restart" in unit.sub_state


def restart_is_queued(unit: Unit) -> bool:
    """Say whether NRestarts counts a restart already that has not begun: it goes up as systemd queues the start.

    From systemd 254 on, which has RestartMode=, the sub-state tells, and a job in auto-restart is another's: with
    `direct` that of the first start attempt stays. Up to 253 the job tells, and the unit passes `dead` on its way.
    """
    if unit.settings is not None and unit.settings.restart_mode:
        begun = unit.main_pid or unit.control_pid  # which systemd shows in the state of before at first
        return unit.sub_state == "auto-restart-queued" and not begun
    return unit.job != 0 and not is_up(unit)


def is_up(unit: Unit) -> bool:
    """Say whether the unit runs. In auto-restart it does not, though systemd calls it activating: its run has ended."""
    return unit.active_state in _UP and not waits_to_restart(unit)


def activation_began(unit: Unit) -> float | None:
    """Give the begin of the present activation of a unit that is up, or a time between that and the run before.

    In seconds on CLOCK_MONOTONIC; None where systemd does not say. systemd has no property for it.
    InactiveExitTimestamp is too late: it is set when the first process has been forked, some milliseconds after that
    process's start. ConditionTimestamp is set before, at each start attempt (src/core/unit.c: unit_start), with two
    exceptions. It is not set where the unit is activating already, as in an automatic restart from systemd 254 on;
    there the run before ended later, at InactiveEnterTimestamp or, with RestartMode=direct, which is never inactive, at
    ActiveExitTimestamp. And a start that waits for a stop to end sets it again; then it is later than
    InactiveExitTimestamp, and of another activation.

    With RestartMode=direct, an attempt that ends before the unit is active leaves all of these as they are, and they
    are of an attempt before: _begin_of_attempt.
    """
    if unit.condition_monotonic is None:
        return None
    times = [unit.inactive_enter_monotonic]
    if unit.inactive_exit_monotonic is None or unit.condition_monotonic <= unit.inactive_exit_monotonic:
        times.append(unit.condition_monotonic)
    if unit.active_state != "deactivating":  # there ActiveExit is when this activation began to end
        times.append(unit.active_exit_monotonic)
    began = max((time for time in times if time is not None), default=0.0)
    if unit.settings is None or unit.settings.restart_mode != "direct":
        return began
    attempt = _begin_of_attempt(unit)
    if attempt is None:
        return None if unit.nrestarts else began
    return max(began, attempt)


def run_changed_since(unit: Unit, at: float | None) -> bool:
    """Say whether the present run has begun, or the last one has ended, after `at` on CLOCK_MONOTONIC, or may have.

    Then a process that was seen at that time may have been of a run that was under way, though the unit shows another.
    """
    changed = activation_began(unit) if is_up(unit) else _ended_by(unit)
    return at is not None and changed is not None and at < changed < at + _OBSERVATION_SECONDS


def may_be_of_a_later_run(process: Process, unit: Unit, host: Host, read_at: float | None) -> bool:
    """Say whether a process, read at that time, may be of a run which systemd's signals had not told of yet."""
    ended = None if is_up(unit) else _ended_by(unit)
    if ended is None or read_at is None:
        return False
    tick = 1 / host.ticks_per_second
    started = process.id.start_ticks * tick - host.boottime_ahead_seconds
    return started + tick >= ended and -tick <= read_at - started < _SIGNAL_SECONDS


def _ended_by(unit: Unit) -> float | None:
    """Give a time by which the last run has ended; None where systemd does not say."""
    if unit.settings is not None and unit.settings.restart_mode == "direct" and waits_to_restart(unit):
        return unit.state_change_monotonic
    return unit.inactive_enter_monotonic


def _begin_of_attempt(unit: Unit) -> float | None:
    """Give the same time by what systemd says of this start attempt alone; None where that is nothing.

    The first of: the start of its first process, which a daemon-reload forgets; when the source saw it begin; and the
    start of its main process, unless that is one which another process of this attempt has forked.
    """
    if unit.first_process_monotonic is not None:
        return unit.first_process_monotonic - _STAMP_SECONDS
    seen, changed = unit.begun_after_monotonic, unit.state_change_monotonic
    if seen is not None and changed is not None and seen < changed:  # else of the state that the attempt led to
        return seen
    forks = unit.settings is not None and unit.settings.service_type == "forking"
    return unit.exec_main_start_monotonic if unit.nrestarts and not forks else None


def main_process(unit: Unit, processes: ProcessTable) -> Process | None:
    """Find the unit's main process, unless another process has its pid by now."""
    found = processes.by_pid.get(unit.main_pid)
    return found if found is not None and found.placement.unit == unit.id else None


def is_of_present_activation(process: Process, unit: Unit, host: Host, main: Process | None) -> bool | None:
    """Say whether a process in the unit's cgroup was started by the unit's present activation; None if unknown.

    `main` is the unit's main process: a process that started after it in the unit's cgroup is of its activation,
    whatever the clocks say. Else a start in ticks since boot (proc(5): starttime) is compared with systemd's monotonic
    clock, which stands still while the machine is suspended: at that start it was behind by an unknown time between 0
    and the time by which it is behind now.
    """
    if not is_up(unit):
        return False
    if main is not None and process.id.start_ticks >= main.id.start_ticks:
        return True
    began = activation_began(unit)
    if began is None:
        return None
    tick = 1 / host.ticks_per_second
    latest = process.id.start_ticks / host.ticks_per_second + tick
    if latest < began:
        return False
    suspended = host.boottime_ahead_seconds
    if suspended < tick or latest - suspended >= began:  # less than a tick is how far apart the two clocks were read
        return True
    return None
