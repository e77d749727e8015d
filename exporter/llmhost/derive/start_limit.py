"""The start limit of a unit: whether it can ever stop the restarts of one that keeps failing."""

import math

from llmhost.model.history.unit_history import End, UnitHistory
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.unit import Unit

_RUNS = 10  # the last ones that ended in a way that is restarted


def start_limit_can_trip(unit: Unit, history: UnitHistory | None) -> Reading[bool]:
    """Say whether the unit's start limit can trip.

    systemd refuses a start when StartLimitBurst= starts were begun in the StartLimitIntervalSec= before it
    (systemd.unit(5)). Automatic starts are a run and RestartSec= apart, at least: timers add a little, RestartSteps=
    more. So a unit restarts for ever where StartLimitBurst= times the shortest known run is longer than the interval.
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
    delay = math.inf if settings.restart_delay_seconds is None else settings.restart_delay_seconds
    if burst * delay > interval:
        return Ok(False)
    starts = history.starts if history is not None else ()
    runs = [
        start.end.seconds for start in starts if start.end is not None and is_restarted(start.end, settings.restart)
    ]
    if not runs:
        return Failed(Cause.UNKNOWN, "nobody has seen a run fail, so how long that takes is not known")
    return Ok(burst * (min(runs[-_RUNS:]) + delay) <= interval)


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
