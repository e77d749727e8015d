"""The intent of the operator: whether a unit should run."""

from llmhost.derive.activation import is_up, waits_to_restart
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.unit import Unit

_REFUSED = "start-limit-hit"


def should_run(unit: Unit, history: UnitHistory | None) -> Reading[bool]:
    """Say whether the unit is up, failing or waiting to restart, or enabled and not stopped by an operator since.

    A unit that fails while it is being stopped, as engines do that answer SIGTERM with an exit status, is stopped; but
    one whose start was refused should run. An enabled one that ended by itself should run, also where it ended with
    success: a dead worker can end vLLM with exit 0. One that is not enabled should not: it was there for that one run.
    Where the end was not observed, a stop and an end with success look the same.
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
    if unit.unit_file_state not in {"enabled", "enabled-runtime"} or stopped:
        return Ok(False)
    end = of_this_boot.latest.end if of_this_boot is not None and of_this_boot.latest is not None else None
    if end is not None and end.asked is False:
        if unit.settings is not None and unit.settings.service_type == "oneshot":
            return NotApplicable("it has done what it is there for")
        return Ok(True)
    if end is None and unit.inactive_enter_monotonic is None and unit.settings is not None:
        return Ok(True)
    return Failed(Cause.UNKNOWN, "nobody saw whether it was stopped or ended by itself")
