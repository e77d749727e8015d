"""Relatives of a service: the units that want it to run, that have started it, or that it has to end with.

systemd does not say why it starts or stops a unit. It follows from what it says of the unit's relatives, as of the
moment when the start or the end shows: it tells of a change of theirs before it acts on it.
"""

from collections.abc import Mapping

from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.unit import Relative, Unit

_WANTS = frozenset({"WantedBy", "RequiredBy", "BoundBy", "UpheldBy"})
_TRIGGERS_ONCE_ENDED: Mapping[str, str] = {"OnFailureOf": "failed", "OnSuccessOf": "inactive"}  # by its state then
_RESTARTS_WITH = frozenset({"BindsTo", "Requires", "PartOf"})
_UP = frozenset({"active", "reloading", "refreshing", "activating"})


def is_wanted_by_others(unit: Unit) -> Reading[bool]:
    """Say whether a unit that is up, or about to be, wants or requires this one.

    A target is about to be active until all that it wants has started.
    """
    wanting = [relative for relative in unit.relatives if relative.relation in _WANTS]
    if any(relative.active_state in _UP or relative.job for relative in wanting):
        return Ok(True)
    if any(not relative.active_state for relative in wanting):
        return Failed(Cause.UNKNOWN, "nothing is known of the state of a unit that wants it")
    return Ok(False) if wanting else NotApplicable("no unit that is loaded wants it")


def ended_with(unit: Unit, began_monotonic: float) -> str:
    """Name the unit with whose end or restart systemd stops this one, of which a run is under way; "" where none is.

    That is one that BindsTo= names, and that went down in this run without a job; or one that systemd restarts, as
    its restart is also one of what requires it, is bound to it or part of it.
    """
    for relative in unit.relatives:
        if relative.asked_to_end is not False:
            continue
        is_down = relative.active_state not in _UP and _went_down_after(relative, began_monotonic)
        if relative.relation == "BindsTo" and is_down:
            return relative.name
        if relative.relation in _RESTARTS_WITH and (_is_restarted(relative) or (is_down and relative.job)):
            return relative.name
    return ""


def started_by(unit: Unit, *, after_monotonic: float, by_monotonic: float, waited: bool = False) -> str:
    """Name the unit for which systemd has started this one between the two times, the last end and the start; or "".

    - One that upholds it, and was active before the end: systemd starts the service at once, unless that `waited` to
      restart.
    - A timer, path or socket that has elapsed or got a connection in between.
    - One whose OnFailure= or OnSuccess= names it, and that has failed or become inactive in between.
    - One that systemd restarts, and that wants or requires it.
    """
    for relative in unit.relatives:
        kind = relative.relation
        if kind == "UpheldBy":
            entered = relative.active_enter_monotonic
            is_it = (
                relative.active_state == "active" and entered is not None and entered <= after_monotonic and not waited
            )
        elif kind == "TriggeredBy":
            is_it = relative.sub_state == "running" and _is_within(
                relative.state_change_monotonic, after_monotonic, by_monotonic
            )
        else:
            is_it = relative.active_state == _TRIGGERS_ONCE_ENDED.get(kind) and _is_within(
                relative.inactive_enter_monotonic, after_monotonic, by_monotonic
            )
        if is_it or (kind in _WANTS and _is_restarted(relative)):
            return relative.name
    return ""


def _is_restarted(relative: Relative) -> bool:
    """Say whether its restart has begun, which Restart= of it has brought about."""
    return "auto-restart" in relative.sub_state and relative.job != 0


def _went_down_after(relative: Relative, at_monotonic: float) -> bool:
    changed = relative.state_change_monotonic
    return changed is not None and changed >= at_monotonic


def _is_within(at: float | None, after: float, by: float) -> bool:
    return at is not None and after <= at <= by
