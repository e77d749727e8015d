"""When a unit is up, since when, and which processes belong to that."""

from llmhost.model.host import Host
from llmhost.model.process import Process, ProcessTable
from llmhost.model.unit import Unit

_UP = frozenset({"active", "reloading", "refreshing", "deactivating", "activating"})


def waits_to_restart(unit: Unit) -> bool:
    """`auto-restart` and, since systemd 254, `auto-restart-queued`, `failed-before-auto-restart` and their kin."""
    return "auto-restart" in unit.sub_state


def is_up(unit: Unit) -> bool:
    """Say whether the unit runs. In auto-restart it does not, though systemd calls it activating: its run has ended."""
    return unit.active_state in _UP and not waits_to_restart(unit)


def activation_began(unit: Unit) -> float | None:
    """When the present activation of a unit that is up began, or some time between the end of the run before and that.

    In seconds on CLOCK_MONOTONIC; None if systemd has not said. systemd has no one property for it.
    InactiveExitTimestamp will not do: it is taken when the first process has been forked, some milliseconds after that
    process's start. ConditionTimestamp is taken before, at each start attempt (src/core/unit.c: unit_start), with two
    exceptions. It is not where the unit is activating already, as an automatic restart is from systemd 254 on; there
    the run before ended later, at InactiveEnterTimestamp, or, with RestartMode=direct, which is never inactive, at
    ActiveExitTimestamp. And it is taken anew by a start that waits for a stop to end; then it is later than
    InactiveExitTimestamp, and of another activation.
    """
    if unit.condition_monotonic is None:
        return None
    times = [unit.inactive_enter_monotonic]
    if unit.inactive_exit_monotonic is None or unit.condition_monotonic <= unit.inactive_exit_monotonic:
        times.append(unit.condition_monotonic)
    if unit.active_state != "deactivating":  # there ActiveExit is when this activation began to end
        times.append(unit.active_exit_monotonic)
    return max((time for time in times if time is not None), default=0.0)


def main_process(unit: Unit, processes: ProcessTable) -> Process | None:
    """Find the unit's main process, unless its pid is somebody else's by now."""
    found = processes.by_pid.get(unit.main_pid)
    return found if found is not None and found.placement.unit == unit.id else None


def is_of_present_activation(process: Process, unit: Unit, host: Host, main: Process | None) -> bool | None:
    """Whether a process in the unit's cgroup was started by the unit's present activation; None if it can't be told.

    `main` is the unit's main process: what started after it in the unit's cgroup is of its activation, whatever the
    clocks say. Otherwise a start in ticks since boot (proc(5): starttime) is compared with systemd's monotonic clock,
    which stands still while the machine is suspended: by how much it was behind at that start is only known to lie
    between nothing and what it is behind now.
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
