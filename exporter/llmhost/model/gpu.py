"""The host's GPUs, as NVML shows them. Bytes are bytes; every field is optional by itself, as NVML's calls are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llmhost.model.ids import GpuUuid, ProcessId
from llmhost.model.reading import Cause, NotApplicable, Ok, Reading


class MemoryApi(StrEnum):
    """The one of NVML's two memory calls that answered (nvml.h: nvmlMemory_t, nvmlMemory_v2_t)."""

    V1 = "v1"  # used includes reserved; reserved is not known
    V2 = "v2"  # total = reserved + used + free


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    api: MemoryApi
    total_bytes: int
    used_bytes: int
    free_bytes: int
    reserved_bytes: int | None  # None with the v1 call


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHolder:
    """One entry of NVML's process lists, merged over compute, graphics and MPS with max, never sum.

    `process` has start ticks where /proc knew the pid right after the list was taken, or knew it when the entry
    first appeared; None where NVML lists a pid that /proc did not have. `used_bytes` is None where the driver does not
    say (WSL2, MIG without privilege): unknown, not 0.
    """

    pid: int
    process: ProcessId | None
    used_bytes: int | None
    alive: bool = True  # whether /proc had exactly this process right after the list was taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """Errors of one kind that the driver reported of a GPU since the exporter started (NVIDIA: XID Errors)."""

    number: int
    count: int
    last_at: float  # seconds since the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, or a MIG instance as a GPU of its own: `parent_uuid` set, index "0:3".

    A GPU that was listed since boot and is lost or failing stays, with `fault` set and its last known identity.
    A MIG-enabled parent has neither memory nor holders: its instances have.
    """

    uuid: GpuUuid
    index: str
    name: str
    pci_bus_id: str  # "" where the device has none
    parent_uuid: GpuUuid | None
    fault: Cause | None  # lost, reset_required, timeout, no_permission or unknown
    fault_detail: str
    memory: Reading[GpuMemory]
    holders: Reading[tuple[GpuHolder, ...]]
    utilization_ratio: float | None  # 0..1
    temperature_celsius: float | None
    power_watts: float | None
    fabric_ready: bool | None  # None where there is no NVLink fabric
    unified_memory: bool  # GPU memory is the host's memory (GB10, Thor): no total of its own
    xids: tuple[Xid, ...] = ()  # by number

    @property
    def up(self) -> bool:
        return self.fault is None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGpu:
    """Identity of a GPU once the driver no longer lists it."""

    index: str
    name: str
    pci_bus_id: str
    unified_memory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGpus:
    """The GPUs that have worked since boot, MIG instances not counted."""

    listed_most: int = 0  # by the driver, at once
    gpus: Mapping[GpuUuid, SeenGpu] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReport:
    driver_version: str
    nvml_version: str
    library_on_disk_version: str | None  # the one that the next process will load; None if not in its name
    driver_mismatch: bool | None  # None where the version on disk or that of the driver is unknown
    gpus: tuple[Gpu, ...]  # a MIG parent right before its instances, else by index
    listed: int  # GPUs that NVML lists now, MIG instances not counted
    listed_most: int  # most listed since boot, as far as this exporter saw, or one before it

    @property
    def used_bytes(self) -> Mapping[GpuUuid, int]:
        """Memory in use, of the GPUs for which it is known."""
        return {gpu.uuid: gpu.memory.value.used_bytes for gpu in self.gpus if isinstance(gpu.memory, Ok)}

    @property
    def holders(self) -> frozenset[ProcessId] | None:
        """The processes that hold GPU memory; None where those of a GPU are not known."""
        found: set[ProcessId] = set()
        for gpu in self.gpus:
            if isinstance(gpu.holders, Ok):
                found.update(entry.process for entry in gpu.holders.value if entry.process is not None)
            elif not isinstance(gpu.holders, NotApplicable):
                return None
        return frozenset(found)
