"""When a unit is up, since when, and which processes belong to that."""

from llmhost.model.host import Host
from llmhost.model.process import Process
from llmhost.model.unit import Unit

_UP = frozenset({"active", "reloading", "refreshing", "deactivating", "activating"})


def waits_to_restart(unit: Unit) -> bool:
    """`auto-restart` and, since systemd 254, `auto-restart-queued`, `failed-before-auto-restart` and their kin."""
    return "auto-restart" in unit.sub_state


def is_up(unit: Unit) -> bool:
    """Say whether the unit runs. In auto-restart it does not, though systemd calls it activating: its run has ended."""
    return unit.active_state in _UP and not waits_to_restart(unit)


def activation_began(unit: Unit) -> float | None:
    """When the present activation of a unit that is up began.

    In seconds on CLOCK_MONOTONIC; None if systemd has not said. systemd has no one property for it.
    InactiveExitTimestamp will not do: it is taken when the first process has been forked, some milliseconds after that
    process's start. ConditionTimestamp is taken before, at each start attempt, but not where the unit is activating
    already, as an automatic restart is from systemd 254 on (src/core/unit.c: unit_start); there the run before ended
    later, at InactiveEnterTimestamp, or, with RestartMode=direct, which is never inactive, at ActiveExitTimestamp. The
    latest of the three is never later than the first process of the activation, and never earlier than the end of the
    run before.
    """
    if unit.condition_monotonic is None:
        return None
    times = [unit.condition_monotonic, unit.inactive_enter_monotonic]
    if unit.active_state != "deactivating":  # there ActiveExit is when this activation began to end
        times.append(unit.active_exit_monotonic)
    return max(time for time in times if time is not None)


def started_at(process: Process, host: Host) -> float:
    """When a process started, in seconds on CLOCK_MONOTONIC, up to one clock tick early (proc(5): starttime)."""
    return process.id.start_ticks / host.ticks_per_second - host.boottime_ahead_seconds


def is_of_present_activation(process: Process, unit: Unit, host: Host) -> bool | None:
    """Whether a process in the unit's cgroup was started by the unit's present activation; None if it can't be told."""
    if not is_up(unit):
        return False
    began = activation_began(unit)
    if began is None:
        return None
    tick = 1 / host.ticks_per_second
    return started_at(process, host) + tick >= began
