"""Whose is the memory on each GPU: the unit and kind of every holder, and what no visible process holds."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from llmhost.derive.unit_membership import Belongings, Owner, Owners
from llmhost.model.gpu import Gpu, GpuHolder, GpuMemory
from llmhost.model.ids import GpuUuid, ProcessId, UnitId
from llmhost.model.process import Home, Process, ProcessTable
from llmhost.model.reading import Cause, Failed, Ok, Reading, both
from llmhost.model.snapshot import Snapshot
from llmhost.model.system_programs import SYSTEM_COMMS
from llmhost.model.unit import Unit


class HolderKind(StrEnum):
    """What a holder of GPU memory is; the first that fits (docs/concepts.md: Holder)."""

    GONE = "gone"  # NVML lists a pid that /proc does not have
    SYSTEM = "system"  # of the machine: a display server, say, unless it is in a watched unit or a container
    CURRENT = "current"  # of the present activation of a unit that is up
    LEFTOVER = "leftover"  # of an ended activation of a unit, in its cgroup or known to have been
    ORPHAN = "orphan"
    CONTAINER = "container"
    SESSION = "session"  # a person's shell, another scope
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    pid: int
    process: ProcessId | None  # as GpuHolder has it
    unit: UnitId | None
    kind: HolderKind
    used_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderGroup:
    """The holders of one kind and unit on one GPU, together."""

    kind: HolderKind | None  # None: memory that no visible process holds
    unit: UnitId | None
    pids: tuple[int, ...]
    used_bytes: int | None  # None where the driver does not say for one of them


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAttribution:
    holders: tuple[Holder, ...]
    unattributed_bytes: Reading[int]


def attribute(
    snapshot: Snapshot, units: Mapping[UnitId, Unit], orphans: AbstractSet[ProcessId], belongings: Belongings
) -> Reading[Mapping[GpuUuid, Reading[GpuAttribution]]]:
    """Attribute the memory of every GPU. Without NVML, processes or the host's clock nothing can be said.

    Without systemd the unit still can, from the cgroup, but not whether its activation is the present one: then the
    kind is `other`. `belongings` tell of processes in which activation of which unit they were seen.
    """
    if not isinstance(snapshot.nvml, Ok):
        return snapshot.nvml
    seen = both(snapshot.processes, snapshot.host)
    if not isinstance(seen, Ok):
        return seen
    owners = Owners(units=units, processes=seen.value[0], host=seen.value[1], belongings=belongings)

    def one(gpu: Gpu) -> Reading[GpuAttribution]:
        if not isinstance(gpu.holders, Ok):
            return gpu.holders
        holders = tuple(_holder(entry, owners, orphans) for entry in gpu.holders.value)
        return Ok(GpuAttribution(holders=holders, unattributed_bytes=_unattributed(gpu.memory, holders)))

    return Ok({gpu.uuid: one(gpu) for gpu in snapshot.nvml.value.gpus})


def _holder(entry: GpuHolder, owners: Owners, orphans: AbstractSet[ProcessId]) -> Holder:
    process = None if entry.process is None else owners.processes.of(entry.process)
    if process is None:
        kind, unit = HolderKind.OTHER, None
        if not _may_be_there(entry, owners.processes):
            known = None if entry.process is None else owners.belongings.get(entry.process)
            kind, unit = HolderKind.GONE, None if known is None else known.unit
    else:
        owner = owners.of(process)
        unit = process.placement.unit if owner is None else owner.unit
        kind = _kind(process, owner, orphans)
    return Holder(pid=entry.pid, process=entry.process, unit=unit, kind=kind, used_bytes=entry.used_bytes)


def _may_be_there(entry: GpuHolder, processes: ProcessTable) -> bool:
    """Say whether the process may live although it is not in the table: not readable, or younger than the table."""
    if entry.pid in processes.denied:
        return True
    began = processes.read_from_ticks
    return entry.process is not None and began is not None and entry.process.start_ticks >= began


def _kind(process: Process, owner: Owner | None, orphans: AbstractSet[ProcessId]) -> HolderKind:
    home = process.placement.home
    # Anybody can call a process Xorg: where it is of a watched unit, or in a container, that decides.
    if process.comm in SYSTEM_COMMS and owner is None and home is not Home.CONTAINER:
        return HolderKind.SYSTEM
    if owner is not None and owner.present is not None:
        return HolderKind.CURRENT if owner.present else HolderKind.LEFTOVER
    if process.id in orphans:
        return HolderKind.ORPHAN
    if home is Home.CONTAINER:
        return HolderKind.CONTAINER
    if home is Home.SESSION:
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


def grouped(holders: Iterable[Holder]) -> tuple[HolderGroup, ...]:
    """Sum up holders by kind and unit."""
    groups: dict[tuple[HolderKind, UnitId | None], list[Holder]] = {}
    for holder in holders:
        groups.setdefault((holder.kind, holder.unit), []).append(holder)
    return tuple(
        HolderGroup(
            kind=kind,
            unit=unit,
            pids=tuple(sorted(holder.pid for holder in group)),
            used_bytes=sum_or_none(holder.used_bytes for holder in group),
        )
        for (kind, unit), group in groups.items()
    )


def sum_or_none(sizes: Iterable[int | None]) -> int | None:
    """Sum up sizes; None where one of them is not known."""
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total
