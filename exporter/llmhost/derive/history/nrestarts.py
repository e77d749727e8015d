"""What NRestarts says of starts: systemd raises it when an automatic restart is queued, and takes it back at times."""

from dataclasses import replace

from llmhost.derive.activation import is_up, waits_to_restart
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.unit import Unit


def with_nrestarts(record: UnitHistory, unit: Unit) -> UnitHistory:
    """Keep up with what changes NRestarts between two starts.

    reset-failed sets it back, and systemd tells nobody; it shows with the next restart that is queued, in that it is
    lower, or, where it was 1 and is so again, in that Result is no longer that of the end. A restart that was refused
    or cancelled has raised it for nothing, which shows when the unit comes to rest.
    """
    if unit.nrestarts is None:
        return replace(record, nrestarts=0)
    if waits_to_restart(unit) and unit.job and unit.nrestarts > record.nrestarts:
        record = replace(record, restart_job=unit.job)
    at_rest = not is_up(unit) and not waits_to_restart(unit) and not unit.job
    if unit.nrestarts < record.nrestarts or at_rest or _has_lost_its_result(record, unit):
        return replace(record, nrestarts=started_nrestarts(unit))
    return record


def _has_lost_its_result(record: UnitHistory, unit: Unit) -> bool:
    """Say whether the result of the run that ended has been reset, while the unit waits to restart."""
    end = record.latest.end if record.latest is not None else None
    return waits_to_restart(unit) and unit.result == "success" and end is not None and end.result not in ("", "success")


def started_nrestarts(unit: Unit) -> int:
    """NRestarts without the restart that is queued and has not started yet."""
    if unit.nrestarts is None:
        return 0
    queued = unit.job != 0 and not is_up(unit)  # up to systemd 253, it passes `dead` on its way to the start
    return max(0, unit.nrestarts - 1) if queued else unit.nrestarts


def was_refused(unit: Unit) -> bool:
    """Say whether the start limit refused the last restart that NRestarts counts, as far as can be told: it waited."""
    if unit.active_state != "failed" or unit.job or not unit.nrestarts:
        return False
    waited, exited = unit.inactive_exit_monotonic, unit.exec_main_exit_monotonic
    return unit.result == "start-limit-hit" or (waited is not None and exited is not None and exited <= waited)
