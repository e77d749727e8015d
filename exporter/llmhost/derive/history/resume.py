"""Going on with the history of an earlier run of the exporter."""

from dataclasses import replace

from llmhost.derive.history.changes import with_changed, with_verdict
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import UNWATCHED, End, UnitHistory, Verdict

_UNJUDGED = "the exporter ended before it could look"


def resumed(history: History, boot_id: str) -> History:
    """Give the history as it is after a restart: starts without a verdict are unknown, and another boot ends all runs.

    Where a boot id is unknown (""), a unit's InvocationID shows whether its run goes on.
    """
    units = {unit: _judged(unit_history) for unit, unit_history in history.units.items()}
    if boot_id and history.boot_id == boot_id:
        return replace(history, units=units)
    of_boot = _rebooted if boot_id and history.boot_id else _of_some_boot
    units = {unit: of_boot(unit_history) for unit, unit_history in units.items()}
    return History(
        boot_id=boot_id,
        units=units,
        gpu_sets=history.gpu_sets,
        last_servers=history.last_servers,
        readiness={
            unit: replace(readiness, invocation_id="", seconds={}) for unit, readiness in history.readiness.items()
        },
    )


def _judged(history: UnitHistory) -> UnitHistory:
    for start in history.starts:
        if start.verdict is None and start.main_monotonic is not None:
            history = with_verdict(history, start.invocation_id, Verdict.UNKNOWN, unknown_because=_UNJUDGED)
    return history


def _rebooted(history: UnitHistory) -> UnitHistory:
    latest = history.latest
    if latest is not None and latest.end is None:
        end = End(at=history.last_seen_at, result="", exec_main_status=None, asked=None, seconds=0.0)
        end = replace(end, seconds=max(0.0, history.last_seen_at - latest.at))
        if latest.verdict is None:
            history = with_verdict(history, latest.invocation_id, Verdict.UNKNOWN, unknown_because=UNWATCHED)
        latest = history.latest
        if latest is not None:
            history = with_changed(history, replace(latest, end=end))
    return replace(history, invocation_id="", nrestarts=0, restart_job=0, loaded=False, state="")


def _of_some_boot(history: UnitHistory) -> UnitHistory:
    """Drop what the clock and the jobs of another boot would make wrong; InvocationIDs show whether it is another."""
    return replace(history, restart_job=0, state="")
