"""The start limit of a unit: whether it can ever stop the restarts of one that keeps failing."""

import math

from llmhost.model.history.unit_history import End, UnitHistory
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.unit import Unit, UnitSettings

_MOST_STEPS = 1000  # beyond it, delays count as the longest
_RUNS = 10  # the last ones that ended in a way that is restarted


def start_limit_can_trip(unit: Unit, history: UnitHistory | None) -> Reading[bool]:
    """Say whether the unit's start limit can trip.

    systemd refuses a start when StartLimitBurst= starts were begun in a window of StartLimitIntervalSec=, which opens
    with the first of them (systemd.unit(5), src/basic/ratelimit.c). Automatic starts are a run and a delay apart, at
    least: timers add a little. So a unit restarts for ever where so many of the shortest known run, with their delays,
    are longer than the interval.
    """
    settings = unit.settings
    if settings is None:
        return NotApplicable("systemd has not loaded the unit")
    if settings.restart == "no":
        return NotApplicable("it is not restarted")
    burst, interval = settings.start_limit_burst, settings.start_limit_interval_seconds
    if not settings.restart or burst is None:
        return Failed(Cause.UNKNOWN, "systemd does not say how the unit is restarted")
    if burst == 0 or interval == 0:
        return Ok(False)
    if interval is None:  # infinite
        return Ok(True)
    delays = delays_of_a_window_seconds(settings, burst, unit.nrestarts or 0)
    if delays > interval:
        return Ok(False)
    starts = history.starts if history is not None else ()
    runs = [
        start.end.seconds for start in starts if start.end is not None and is_restarted(start.end, settings.restart)
    ]
    if not runs:
        return Failed(Cause.UNKNOWN, "nobody has seen a run fail, so how long that takes is not known")
    return Ok(burst * min(runs[-_RUNS:]) + delays <= interval)


def delays_of_a_window_seconds(settings: UnitSettings, burst: int, restarts: int) -> float:
    """Sum up the delays from the start that opens a window to the one that is refused.

    They never shrink, so those of the earliest window count that may be open still.
    """
    first = max(0, restarts - burst + 1)
    growing = min(burst, _MOST_STEPS)
    delays = [restart_delay_seconds(settings, first + restart) for restart in range(1, growing + 1)]
    return sum(delays) + (burst - growing) * restart_delay_seconds(settings, first + burst)


def restart_delay_seconds(settings: UnitSettings, restart: int) -> float:
    """Give the delay before the so many'th restart in a row (src/core/service.c: service_restart_usec_next)."""
    shortest, longest = settings.restart_delay_seconds, settings.restart_longest_delay_seconds
    if shortest is None:
        return math.inf
    if restart <= 1 or not settings.restart_steps or not shortest or longest is None or shortest >= longest:
        return shortest
    if restart > settings.restart_steps:
        return longest
    return float(shortest * (longest / shortest) ** ((restart - 1) / settings.restart_steps))


def is_restarted(end: End, restart: str) -> bool:
    """Say whether Restart= restarts after such an end, by its result; never after one that a job asked for.

    After src/core/service.c: service_shall_restart. RestartPreventExitStatus= and RestartForceExitStatus= are not read.
    """
    if end.asked or not end.result or end.result == "exec-condition":
        return False
    match restart:
        case "always":
            return True
        case "on-success":
            return end.result == "success"
        case "on-failure":
            return end.result != "success"
        case "on-abnormal":
            return end.result not in {"success", "exit-code"}
        case "on-abort":
            return end.result in {"signal", "core-dump"}
        case "on-watchdog":
            return end.result == "watchdog"
        case _:
            return False
