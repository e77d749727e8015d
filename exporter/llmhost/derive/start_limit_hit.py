"""The start limit at which systemd has given a unit up, which it says in its log alone."""

from dataclasses import dataclass

from llmhost.derive.activation import waits_to_restart
from llmhost.derive.history.starts import was_refused
from llmhost.derive.start_limit import is_restarted
from llmhost.model.history.unit_history import End, Start, UnitHistory
from llmhost.model.reading import Cause, Failed, Ok, Reading
from llmhost.model.unit import Unit

_HIT = "start-limit-hit"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLimitHit:
    burst: int
    interval_seconds: float | None  # None: infinite
    took_seconds: float | None  # from the first of so many starts to the last; None where not all were observed
    refuses: bool  # a start now, by whomever, until `systemctl reset-failed` or the end of the interval


def start_limit_hit(unit: Unit, history: UnitHistory | None, at_monotonic: float) -> Reading[StartLimitHit | None]:
    """Find the start limit that stopped the restarts of a unit that has failed; None where that is not why.

    systemd refuses a start once StartLimitBurst= starts were begun in the StartLimitIntervalSec= since the first of
    them (src/core/unit.c: unit_test_start_limit). Result= then stays that of the last run, unless that was a success
    (src/core/service.c: service_set_state of a refused restart). What tells is that a unit has failed which Restart=
    would restart, and that so many starts were begun before in the interval, or that it waited for a restart which then
    did not come.
    """
    if unit.active_state != "failed" or waits_to_restart(unit) or unit.job:
        return Ok(None)
    settings = unit.settings
    if settings is None or settings.start_limit_burst is None:
        return Failed(Cause.UNKNOWN, "systemd does not say what the unit's start limit is")
    burst, interval = settings.start_limit_burst, settings.start_limit_interval_seconds
    if not burst or interval == 0:  # there is none
        return Ok(None)
    end = _last_end(unit, history)
    if unit.result != _HIT and (end is None or not is_restarted(end, settings.restart)):
        return Ok(None)
    starts = _of_this_boot(history)[-burst:]
    began = starts[0].began_monotonic if len(starts) == burst else None
    took = None if began is None else starts[-1].began_monotonic - began
    gave_up = unit.state_change_monotonic  # a later end than the interval's is no refusal
    within = began is not None and (interval is None or (gave_up or starts[-1].began_monotonic) - began <= interval)
    if not within and unit.result != _HIT and not was_refused(unit):
        return Ok(None)
    since = began if within else unit.state_change_monotonic
    return Ok(
        StartLimitHit(
            burst=burst,
            interval_seconds=interval,
            took_seconds=took if within else None,
            refuses=interval is None or since is None or at_monotonic - since <= interval,
        )
    )


def _last_end(unit: Unit, history: UnitHistory | None) -> End | None:
    """Give the end of the last run, as far as systemd alone tells where nobody observed it."""
    latest = None if history is None or not unit.invocation_id else history.start_of(unit.invocation_id)
    if latest is not None and latest.end is not None and latest.end.result:
        return latest.end
    return End(at=0.0, result=unit.result, exec_main_status=None, asked=None, seconds=0.0) if unit.result else None


def _of_this_boot(history: UnitHistory | None) -> tuple[Start, ...]:
    """Give the starts since the monotonic clock last began anew."""
    starts = history.starts if history is not None and history.invocation_id else ()
    first = len(starts)
    while first > 0 and (first == len(starts) or starts[first - 1].began_monotonic <= starts[first].began_monotonic):
        first -= 1
    return starts[first:]
