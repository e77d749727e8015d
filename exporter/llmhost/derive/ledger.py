"""What only a sequence of looks tells, carried from one to the next. Pure: (ledger, snapshot) → ledger."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from llmhost.derive.orphans import advance_orphans, processes_read_at
from llmhost.derive.readiness import Readiness, advance_readiness
from llmhost.derive.segments import advance_unheld, unheld_changed_at
from llmhost.model.ids import GpuUuid, ProcessId, UnitId
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.segment import SegmentId
from llmhost.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Times are seconds on CLOCK_MONOTONIC."""

    shm_at: float = 0.0  # when the latest reading of shared memory that is in here began
    unheld_since: Mapping[SegmentId, float] = field(default_factory=dict)  # held by nobody at every look since
    unheld_changed_at: Mapping[SegmentId, float] = field(default_factory=dict)  # their ctime, seconds since the epoch
    processes_since: float | None = None  # the first look that had processes
    processes_at: float | None = None  # when the latest reading of processes that is in here began
    orphan_since: Mapping[ProcessId, float] = field(default_factory=dict)  # like an orphan at every look since
    readiness: Mapping[UnitId, Readiness] = field(default_factory=dict)
    gpu_sets: Mapping[UnitId, tuple[GpuUuid, ...]] = field(default_factory=dict)  # learnt; nobody learns them yet


def advance(ledger: Ledger, snapshot: Snapshot) -> Ledger:
    """Take in one look. A look that failed is no look: what it would have told stays as it was.

    A look at shared memory that came too late is one, of which nobody knows what it told: a holder maybe.
    """
    if isinstance(snapshot.shm, Failed) and snapshot.shm.cause is Cause.TIMEOUT:
        ledger = replace(ledger, unheld_since={}, unheld_changed_at={})
    if isinstance(snapshot.shm, Ok) and snapshot.shm.value.read_at >= ledger.shm_at:  # two may look at once
        ledger = replace(
            ledger,
            shm_at=snapshot.shm.value.read_at,
            unheld_since=advance_unheld(ledger.unheld_since, ledger.unheld_changed_at, snapshot.shm.value),
            unheld_changed_at=unheld_changed_at(snapshot.shm.value),
        )
    if isinstance(snapshot.processes, Ok):
        at = processes_read_at(snapshot)
        if ledger.processes_at is None or at >= ledger.processes_at:
            ledger = replace(
                ledger,
                processes_since=at if ledger.processes_since is None else ledger.processes_since,
                processes_at=at,
                orphan_since=advance_orphans(ledger.orphan_since, snapshot),
            )
    return replace(ledger, readiness=advance_readiness(ledger.readiness, snapshot))
