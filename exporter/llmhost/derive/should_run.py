"""The intent of the operator: whether a unit should run."""

from llmhost.derive.activation import is_up, waits_to_restart
from llmhost.derive.relatives import is_wanted_by_others
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.unit import Unit

_REFUSED = "start-limit-hit"
_SKIPPED = "exec-condition"
_ENABLED = frozenset({"enabled", "enabled-runtime"})


def should_run(unit: Unit, history: UnitHistory | None) -> Reading[bool]:
    """Say whether the unit is up, failing or waiting to restart, or wanted and not stopped by an operator since.

    A unit is wanted if one that is up wants or requires it, such as a target; where none is known that could, if it is
    enabled; and once it has run, if it is enabled in a target that is down. One that ended by itself should run then,
    also where it ended with success: a dead worker can end vLLM with exit 0. One that nobody wants should not: it was
    there for that one run. But one that systemd stopped because another unit died should run, as one that failed.

    A unit that fails while it is being stopped, as engines do that answer SIGTERM with an exit status, is stopped; but
    one whose start was refused should run. One whose start systemd skipped for a condition should not: it is no
    failure. Where the end was not observed, a stop and an end with success look the same.
    """
    # A stop in an earlier boot does not count: this boot has started again what is enabled.
    of_this_boot = history if history is not None and history.invocation_id else None
    stopped = of_this_boot is not None and of_this_boot.stopped
    if is_up(unit) or waits_to_restart(unit):
        return Ok(True)
    if unit.active_state == "failed":
        return Ok(not stopped or unit.result == _REFUSED)
    if unit.load_state == "not-found":
        return NotApplicable("there is no such unit")
    if stopped or unit.load_state == "masked" or unit.condition_met is False or unit.result == _SKIPPED:
        return Ok(False)
    end = of_this_boot.latest.end if of_this_boot is not None and of_this_boot.latest is not None else None
    if end is not None and end.ended_with:
        return Ok(True)
    wanted = _is_wanted(unit, died=end is not None and end.asked is False)
    if wanted != Ok(True):
        return wanted
    if end is not None and end.asked is False:
        if unit.settings is not None and unit.settings.service_type == "oneshot":
            return NotApplicable("it has done what it is there for")
        return Ok(True)
    if end is None and unit.inactive_enter_monotonic is None and unit.settings is not None:
        return Ok(True)
    return Failed(Cause.UNKNOWN, "nobody saw whether it was stopped or ended by itself")


def _is_wanted(unit: Unit, *, died: bool) -> Reading[bool]:
    """Say whether others want it to run. One that is installed for a target that is down counts once it has `died`."""
    by_others = is_wanted_by_others(unit)
    if unit.unit_file_state in _ENABLED and not isinstance(by_others, Ok):
        return Ok(True)
    if died and by_others == Ok(False) and unit.unit_file_state in {*_ENABLED, "generated"}:
        return Ok(True)  # somebody has started it, and nobody has stopped it
    return Ok(False) if isinstance(by_others, NotApplicable) else by_others
