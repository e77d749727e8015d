"""What one look at the host adds to the ledger."""

from dataclasses import replace

from llmhost.config.schema import Policy
from llmhost.derive.history.memberships import advance_belongings, advance_segment_units
from llmhost.derive.history.changes import with_changed, with_time
from llmhost.derive.history.events import state_label
from llmhost.derive.history.holdings import advance_gpus
from llmhost.model.history.history import Ledger
from llmhost.model.history.unit_history import UnitRecord
from llmhost.derive.orphans import advance_orphans, processes_read_at
from llmhost.derive.readiness import advance_readiness, first_answer_seconds
from llmhost.derive.segments import advance_unheld, unheld_changed_at
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit


def advance(ledger: Ledger, snapshot: Snapshot, policy: Policy) -> Ledger:
    """Take in one look. A look that failed is no look: what it would have told stays as it was."""
    if isinstance(snapshot.host, Ok) and not ledger.boot_id:  # another boot is another run of the exporter
        ledger = replace(ledger, boot_id=snapshot.host.value.boot_id)
    ledger = replace(ledger, readiness=advance_readiness(ledger.readiness, snapshot))
    ledger = _with_processes(ledger, snapshot)
    ledger = _with_shared_memory(ledger, snapshot)
    ledger = advance_gpus(ledger, snapshot, policy)
    return _with_units(ledger, snapshot)


def _with_processes(ledger: Ledger, snapshot: Snapshot) -> Ledger:
    at = processes_read_at(snapshot)
    if not isinstance(snapshot.processes, Ok) or (ledger.processes_at is not None and at < ledger.processes_at):
        return ledger
    return replace(
        ledger,
        processes_since=at if ledger.processes_since is None else ledger.processes_since,
        processes_at=at,
        orphan_since=advance_orphans(ledger.orphan_since, snapshot),
        belongings=advance_belongings(ledger.belongings, snapshot),
    )


def _with_shared_memory(ledger: Ledger, snapshot: Snapshot) -> Ledger:
    """Take in the files; a look that came too late is one, of which nobody knows what it told: a holder maybe."""
    if isinstance(snapshot.shm, Failed) and snapshot.shm.cause is Cause.TIMEOUT:
        return replace(ledger, unheld_since={}, unheld_changed_at={})
    if not isinstance(snapshot.shm, Ok) or snapshot.shm.value.read_at < ledger.shm_at:  # two may look at once
        return ledger
    return replace(
        ledger,
        shm_at=snapshot.shm.value.read_at,
        segment_units=advance_segment_units(ledger.segment_units, snapshot, ledger.belongings),
        unheld_since=advance_unheld(ledger.unheld_since, ledger.unheld_changed_at, snapshot.shm.value),
        unheld_changed_at=unheld_changed_at(snapshot.shm.value),
    )


def _with_units(ledger: Ledger, snapshot: Snapshot) -> Ledger:
    """Count time in states up to now, and take down who has become ready. Units themselves come with their events."""
    if not isinstance(snapshot.units, Ok):
        return ledger
    looked: dict[UnitId, UnitRecord] = {}
    for unit in snapshot.units.value.units:
        record = ledger.units.get(unit.id)
        if record is not None:
            looked[unit.id] = _with_look(record, unit, ledger, snapshot)
    return replace(ledger, units={**ledger.units, **looked})


def _with_look(record: UnitRecord, unit: Unit, ledger: Ledger, snapshot: Snapshot) -> UnitRecord:
    if record.state == state_label(unit):  # else an event is on its way that says since when
        record = with_time(record, snapshot.at_monotonic)
    start = record.start_of(unit.invocation_id)
    if start is not None and start.ready_seconds is None:
        seconds = first_answer_seconds(ledger.readiness.get(unit.id), unit.invocation_id)
        if seconds is not None:
            record = with_changed(record, replace(start, ready_seconds=seconds))
    return replace(record, last_seen_at=max(record.last_seen_at, snapshot.at))
