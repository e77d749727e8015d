"""Whether a unit is meant to run."""

from llmhost.derive.activation import is_up, waits_to_restart
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.unit import Unit


def wanted(unit: Unit) -> Reading[bool]:
    """Say whether the unit is up, failing or waiting to restart, or enabled and not stopped by an operator since.

    A unit that ran in this boot, ended with success and is enabled may have been stopped or may have died with exit 0:
    its jobs would tell, and nobody has watched them yet. Then this is unknown.
    """
    if is_up(unit) or waits_to_restart(unit) or unit.active_state == "failed":
        return Ok(True)
    if unit.load_state == "not-found":
        return NotApplicable("there is no such unit")
    if unit.unit_file_state not in {"enabled", "enabled-runtime"}:
        return Ok(False)
    if unit.inactive_enter_monotonic is None and unit.settings is not None:
        return Ok(True)
    return Failed(Cause.UNKNOWN, "nobody saw whether it was stopped or ended by itself")
