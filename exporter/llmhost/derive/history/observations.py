"""What one look at the host adds to the history."""

from dataclasses import replace

from llmhost.config.schema import Policy
from llmhost.derive.history.changes import with_changed, with_time
from llmhost.derive.history.events import state_label
from llmhost.derive.history.holdings import advance_gpus
from llmhost.derive.history.process_runs import advance_segment_units, next_process_runs
from llmhost.derive.orphans import advance_orphans, processes_read_at
from llmhost.derive.readiness import advance_readiness, first_answer_seconds
from llmhost.derive.segments import advance_unheld, unheld_changed_at
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit


def advance(history: History, snapshot: Snapshot, policy: Policy) -> History:
    """Take in one look. A look that failed is no look: what it would have told stays as it was."""
    if isinstance(snapshot.host, Ok) and not history.boot_id:  # another boot is another run of the exporter
        history = replace(history, boot_id=snapshot.host.value.boot_id)
    history = replace(history, readiness=advance_readiness(history.readiness, snapshot))
    history = _with_processes(history, snapshot)
    history = _with_shared_memory(history, snapshot)
    history = advance_gpus(history, snapshot, policy)
    return _with_units(history, snapshot)


def _with_processes(history: History, snapshot: Snapshot) -> History:
    at = processes_read_at(snapshot)
    if not isinstance(snapshot.processes, Ok) or (history.processes_at is not None and at < history.processes_at):
        return history
    return replace(
        history,
        processes_since=at if history.processes_since is None else history.processes_since,
        processes_at=at,
        orphan_since=advance_orphans(history.orphan_since, snapshot),
        process_runs=next_process_runs(history.process_runs, snapshot),
    )


def _with_shared_memory(history: History, snapshot: Snapshot) -> History:
    """Take in the files; a look that came too late is one, of which nobody knows what it told: a holder maybe."""
    if isinstance(snapshot.shm, Failed) and snapshot.shm.cause is Cause.TIMEOUT:
        return replace(history, unheld_since={}, unheld_changed_at={})
    if not isinstance(snapshot.shm, Ok) or snapshot.shm.value.read_at < history.shm_at:  # two may look at once
        return history
    return replace(
        history,
        shm_at=snapshot.shm.value.read_at,
        segment_units=advance_segment_units(history.segment_units, snapshot, history.process_runs),
        unheld_since=advance_unheld(history.unheld_since, history.unheld_changed_at, snapshot.shm.value),
        unheld_changed_at=unheld_changed_at(snapshot.shm.value),
    )


def _with_units(history: History, snapshot: Snapshot) -> History:
    """Count time in states up to now, and take down who has become ready. Units themselves come with their events."""
    if not isinstance(snapshot.units, Ok):
        return history
    looked: dict[UnitId, UnitHistory] = {}
    for unit in snapshot.units.value.units:
        record = history.units.get(unit.id)
        if record is not None:
            looked[unit.id] = _with_look(record, unit, history, snapshot)
    return replace(history, units={**history.units, **looked})


def _with_look(record: UnitHistory, unit: Unit, history: History, snapshot: Snapshot) -> UnitHistory:
    if record.state == state_label(unit):  # else an event is on its way that says since when
        record = with_time(record, snapshot.at_monotonic)
    start = record.start_of(unit.invocation_id)
    if start is not None and start.ready_seconds is None:
        seconds = first_answer_seconds(history.readiness.get(unit.id), unit.invocation_id)
        if seconds is not None:
            record = with_changed(record, replace(start, ready_seconds=seconds))
    return replace(record, last_seen_at=max(record.last_seen_at, snapshot.at))
