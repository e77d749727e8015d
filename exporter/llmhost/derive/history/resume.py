"""Going on with a history that another run of the exporter has left."""

from dataclasses import replace

from llmhost.derive.history.changes import with_changed, with_verdict
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import UNWATCHED, End, UnitHistory, Verdict

_UNSEEN = "the exporter ended before it could look"


def resumed(history: History, boot_id: str) -> History:
    """Give what still counts. Starts that nobody will judge any more are unknown; another boot ends all runs.

    Where it cannot be told which boot this is, "", a unit's InvocationID tells whether its run goes on.
    """
    units = {unit: _judged(record) for unit, record in history.units.items()}
    if boot_id and history.boot_id == boot_id:
        return replace(history, units=units)
    of_boot = _rebooted if boot_id and history.boot_id else _of_some_boot
    units = {unit: of_boot(record) for unit, record in units.items()}
    return History(
        boot_id=boot_id,
        units=units,
        gpu_sets=history.gpu_sets,
        readiness={
            unit: replace(readiness, invocation_id="", seconds={}) for unit, readiness in history.readiness.items()
        },
    )


def _judged(record: UnitHistory) -> UnitHistory:
    for start in record.starts:
        if start.verdict is None and start.main_monotonic is not None:
            record = with_verdict(record, start.invocation_id, Verdict.UNKNOWN, unknown_because=_UNSEEN)
    return record


def _rebooted(record: UnitHistory) -> UnitHistory:
    latest = record.latest
    if latest is not None and latest.end is None:
        end = End(at=record.last_seen_at, result="", exec_main_status=None, asked=None, seconds=0.0)
        end = replace(end, seconds=max(0.0, record.last_seen_at - latest.at))
        if latest.verdict is None:
            record = with_verdict(record, latest.invocation_id, Verdict.UNKNOWN, unknown_because=UNWATCHED)
        latest = record.latest
        if latest is not None:
            record = with_changed(record, replace(latest, end=end))
    return replace(record, invocation_id="", nrestarts=0, restart_job=0, loaded=False, state="")


def _of_some_boot(record: UnitHistory) -> UnitHistory:
    """Forget what the clock and the numbers of another boot would make wrong, and keep what would show it."""
    return replace(record, restart_job=0, state="")
