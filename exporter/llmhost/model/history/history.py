"""All that is remembered."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.ids import GpuUuid, ProcessId, RunId, UnitId
from llmhost.model.segment import SegmentId


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The load times of one unit's engine. `seconds` are of the present activation, by endpoint."""

    invocation_id: str
    start_seen: bool  # a look found this activation without an answer yet
    seconds: Mapping[str, float | None] = field(default_factory=dict)  # None: its start was not seen
    past_seconds: tuple[float, ...] = ()  # of the last starts, the first endpoint of each


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntGpus:
    """On which GPUs a ready activation of a unit held memory."""

    invocation_id: str
    uuids: tuple[GpuUuid, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What a unit held at the last look at it while it was up, and what all others had in use beside it."""

    invocation_id: str
    own_bytes: Mapping[GpuUuid, int]  # of GPUs whose memory and holders were told
    others_bytes: Mapping[GpuUuid, int]  # of the same: other holders; with its own, what nobody holds too


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Times are seconds on CLOCK_MONOTONIC. What is of one boot says so, and is forgotten with it."""

    boot_id: str = ""
    units: Mapping[UnitId, UnitHistory] = field(default_factory=dict)
    gpu_sets: Mapping[UnitId, LearntGpus] = field(default_factory=dict)
    readiness: Mapping[UnitId, Readiness] = field(default_factory=dict)  # its past_seconds outlive the boot
    # of one boot
    holdings: Mapping[UnitId, Holdings] = field(default_factory=dict)
    process_runs: Mapping[ProcessId, RunId] = field(default_factory=dict, metadata={"json": "belongings"})
    segment_units: Mapping[SegmentId, UnitId] = field(default_factory=dict)  # whose processes held it last
    shm_at: float = 0.0  # when the latest reading of shared memory that is in here began
    unheld_since: Mapping[SegmentId, float] = field(default_factory=dict)  # held by nobody at every look since
    unheld_changed_at: Mapping[SegmentId, float] = field(default_factory=dict)  # their ctime, seconds since the epoch
    processes_since: float | None = None  # the first look that had processes
    processes_at: float | None = None  # when the latest reading of processes that is in here began
    orphan_since: Mapping[ProcessId, float] = field(default_factory=dict)  # like an orphan at every look since

    def learnt_gpus(self, unit: UnitId) -> tuple[GpuUuid, ...] | None:
        """GPUs that the unit was seen to use; None where nobody saw it ready."""
        learnt = self.gpu_sets.get(unit)
        return None if learnt is None else learnt.uuids
