"""The history as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmhost.model.clock_offset import ClockOffset
from llmhost.model.engine_arguments import EngineArguments
from llmhost.model.gpu import SeenGpus
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.ids import GpuUuid, ProcessId, RunId, UnitId
from llmhost.model.segment import SegmentId


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The load times of one unit's engine. `seconds` are of the present run, by endpoint."""

    invocation_id: str
    start_seen: bool  # the run was observed without an answer yet
    seconds: Mapping[str, float | None] = field(default_factory=dict)  # None: its start was not observed
    past_seconds: tuple[float, ...] = ()  # of the last starts, the first endpoint of each

    def has_answered(self, invocation_id: str) -> bool:
        """Say whether the engine has answered in that run."""
        return self.invocation_id == invocation_id and bool(self.seconds)

    def first_answer_seconds(self, invocation_id: str) -> float | None:
        """Give the time of that run to its first answer; None where it was not observed, or not timed."""
        if self.invocation_id != invocation_id:
            return None
        return min((seconds for seconds in self.seconds.values() if seconds is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntGpus:
    """The GPUs on which a ready run of a unit held memory."""

    invocation_id: str
    uuids: tuple[GpuUuid, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastServer:
    """A server of a unit as it was started last: what its need and its GPUs follow from, and no word of its command."""

    engine: str
    arguments: EngineArguments | None
    visible_gpus: str | None = None  # CUDA_VISIBLE_DEVICES; None: not set
    visible_unknown: str = ""  # why that is not known; "" where it is
    container_gpus: tuple[str, ...] | None = None  # None: it is in no container
    in_pci_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LastServers:
    """The servers of a unit, as it says, or as they were seen in one of its runs."""

    servers: tuple[LastServer, ...] = ()
    invocation_id: str = ""  # of the last run in which any was seen
    seen: int = 0  # at once, in that run


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The memory of a unit at its last observation while it was up, and what all others had in use beside it."""

    invocation_id: str
    own_bytes: Mapping[GpuUuid, int]  # of GPUs whose memory and holders are known
    others_bytes: Mapping[GpuUuid, int]  # of the same: other holders; and, where it holds some, what nobody holds


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Units, processes and segments between observations and over restarts; the members of history.json.

    Times are seconds on CLOCK_MONOTONIC.
    """

    boot_id: str = ""
    units: Mapping[UnitId, UnitHistory] = field(default_factory=dict)
    gpu_sets: Mapping[UnitId, LearntGpus] = field(default_factory=dict)
    readiness: Mapping[UnitId, Readiness] = field(default_factory=dict)  # its past_seconds outlive the boot
    last_servers: Mapping[UnitId, LastServers] = field(default_factory=dict)
    # Of one boot, and dropped with it:
    clock_offsets: tuple[ClockOffset, ...] = ()  # by time
    gpus: SeenGpus = field(default_factory=SeenGpus)
    holdings: Mapping[UnitId, Holdings] = field(default_factory=dict)
    process_runs: Mapping[ProcessId, RunId] = field(default_factory=dict, metadata={"json": "belongings"})
    segment_units: Mapping[SegmentId, UnitId] = field(default_factory=dict)  # whose processes held it last
    shm_at: float = 0.0  # start of the latest reading of shared memory in here
    unheld_since: Mapping[SegmentId, float] = field(default_factory=dict)  # at every observation
    unheld_changed_at: Mapping[SegmentId, float] = field(default_factory=dict)  # their ctime, seconds since the epoch
    processes_since: float | None = None  # the first observation with processes
    processes_at: float | None = None  # start of the latest reading of processes in here
    orphan_since: Mapping[ProcessId, float] = field(default_factory=dict)  # looks like one at every observation

    def last_servers_of(self, unit: UnitId) -> tuple[LastServer, ...]:
        """Give the unit's servers as they were started last; () where they were never seen."""
        last = self.last_servers.get(unit)
        return () if last is None else last.servers

    def learnt_gpus(self, unit: UnitId) -> tuple[GpuUuid, ...] | None:
        """Give the GPUs that the unit used; None where it was never observed ready."""
        learnt = self.gpu_sets.get(unit)
        return None if learnt is None else learnt.uuids
