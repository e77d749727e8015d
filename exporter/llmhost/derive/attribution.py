"""Whose is the memory on each GPU: the unit and kind of every holder, and what no visible process holds."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from llmhost.derive.activation import is_of_present_activation, main_process
from llmhost.model.gpu import Gpu, GpuHolder, GpuMemory
from llmhost.model.host import Host
from llmhost.model.ids import GpuUuid, ProcessId, UnitId
from llmhost.model.process import Home, Process, ProcessTable
from llmhost.model.reading import Cause, Failed, Ok, Reading, both
from llmhost.model.snapshot import Snapshot
from llmhost.model.system_programs import SYSTEM_COMMS
from llmhost.model.unit import Unit


class HolderKind(StrEnum):
    """What a holder of GPU memory is; the first that fits (docs/design.md: Holder)."""

    GONE = "gone"  # NVML lists a pid that /proc does not have
    SYSTEM = "system"  # of the machine: a display server, say, unless it is in a watched unit or a container
    CURRENT = "current"  # in the cgroup of a unit that is up, started in its present activation
    LEFTOVER = "leftover"  # in a unit's cgroup, of an ended activation
    ORPHAN = "orphan"
    CONTAINER = "container"
    SESSION = "session"  # a person's shell, another scope
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    pid: int
    unit: UnitId | None
    kind: HolderKind
    used_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAttribution:
    holders: tuple[Holder, ...]
    unattributed_bytes: Reading[int]


def attribute(
    snapshot: Snapshot, units: Mapping[UnitId, Unit], orphans: AbstractSet[ProcessId]
) -> Reading[Mapping[GpuUuid, Reading[GpuAttribution]]]:
    """Attribute the memory of every GPU. Without NVML, processes or the host's clock nothing can be said.

    Without systemd the unit still can, from the cgroup, but not whether its activation is the present one: then the
    kind is `other`.
    """
    if not isinstance(snapshot.nvml, Ok):
        return snapshot.nvml
    seen = both(snapshot.processes, snapshot.host)
    if not isinstance(seen, Ok):
        return seen
    processes, host = seen.value

    def one(gpu: Gpu) -> Reading[GpuAttribution]:
        if not isinstance(gpu.holders, Ok):
            return gpu.holders
        holders = tuple(_holder(entry, processes, units, host, orphans) for entry in gpu.holders.value)
        return Ok(GpuAttribution(holders=holders, unattributed_bytes=_unattributed(gpu.memory, holders)))

    return Ok({gpu.uuid: one(gpu) for gpu in snapshot.nvml.value.gpus})


def _holder(
    entry: GpuHolder, processes: ProcessTable, units: Mapping[UnitId, Unit], host: Host, orphans: AbstractSet[ProcessId]
) -> Holder:
    process = None if entry.process is None else processes.of(entry.process)
    if process is None:
        kind = HolderKind.OTHER if _may_be_there(entry, processes) else HolderKind.GONE
        return Holder(pid=entry.pid, unit=None, kind=kind, used_bytes=entry.used_bytes)
    return Holder(
        pid=entry.pid,
        unit=process.placement.unit,
        kind=_kind(process, processes, units, host, orphans),
        used_bytes=entry.used_bytes,
    )


def _may_be_there(entry: GpuHolder, processes: ProcessTable) -> bool:
    """Say whether the process may live although it is not in the table: not readable, or younger than the table."""
    if entry.pid in processes.denied:
        return True
    began = processes.read_from_ticks
    return entry.process is not None and began is not None and entry.process.start_ticks >= began


def _kind(
    process: Process,
    processes: ProcessTable,
    units: Mapping[UnitId, Unit],
    host: Host,
    orphans: AbstractSet[ProcessId],
) -> HolderKind:
    place = process.placement
    unit = units.get(place.unit) if place.unit is not None else None
    # Anybody can call a process Xorg: where the unit is watched, or it is in a container, that decides.
    if process.comm in SYSTEM_COMMS and unit is None and place.home is not Home.CONTAINER:
        return HolderKind.SYSTEM
    if unit is not None:
        present = is_of_present_activation(process, unit, host, main_process(unit, processes))
        if present is not None:
            return HolderKind.CURRENT if present else HolderKind.LEFTOVER
    if process.id in orphans:
        return HolderKind.ORPHAN
    if place.home is Home.CONTAINER:
        return HolderKind.CONTAINER
    if place.home is Home.SESSION:
        return HolderKind.SESSION
    return HolderKind.OTHER


def _unattributed(memory: Reading[GpuMemory], holders: tuple[Holder, ...]) -> Reading[int]:
    """Memory in use less what is held. Shared and duplicated buffers count with each process: never below 0."""
    if not isinstance(memory, Ok):
        return memory
    held = 0
    for holder in holders:
        if holder.used_bytes is None:
            return Failed(Cause.NOT_SUPPORTED, f"the driver does not say how much process {holder.pid} holds")
        held += holder.used_bytes
    return Ok(max(0, memory.value.used_bytes - held))
