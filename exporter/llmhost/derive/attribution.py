"""GPU memory by holder: the unit and kind of each process that holds some, and what no visible process holds."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from llmhost.derive.unit_membership import ProcessRuns, UnitMembership, UnitMemberships
from llmhost.model.gpu import Gpu, GpuHolder, GpuMemory
from llmhost.model.ids import GpuUuid, ProcessId, UnitId
from llmhost.model.process import Home, Process, ProcessTable
from llmhost.model.reading import Cause, Failed, Ok, Reading, both
from llmhost.model.snapshot import Snapshot
from llmhost.model.system_programs import SYSTEM_COMMS
from llmhost.model.unit import Unit


class HolderKind(StrEnum):
    """Kinds of holders of GPU memory; the first that fits (docs/concepts.md: Holder)."""

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
    """One process's memory on one GPU."""

    pid: int
    process: ProcessId | None  # as GpuHolder has it
    command: str  # comm, or the title of an engine's process; "" where the process is gone or not readable
    unit: UnitId | None
    kind: HolderKind
    used_bytes: int | None  # None where the driver does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderGroup:
    """The holders of one kind and unit on one GPU, together."""

    kind: HolderKind | None  # None: memory that no visible process holds
    unit: UnitId | None
    pids: tuple[int, ...]
    used_bytes: int | None  # None where the driver does not say for one of them


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAttribution:
    """The memory of one GPU by holder."""

    holders: tuple[Holder, ...]
    unattributed_bytes: Reading[int]


def attribute(
    snapshot: Snapshot, units: Mapping[UnitId, Unit], orphans: AbstractSet[ProcessId], process_runs: ProcessRuns
) -> Reading[Mapping[GpuUuid, Reading[GpuAttribution]]]:
    """Attribute the memory of every GPU. That takes NVML, processes and the host's clock.

    Without systemd the unit is still known, from the cgroup, but not whether its activation is the present one: then
    the kind is `other`. `process_runs` are the runs that processes were seen in before.
    """
    if not isinstance(snapshot.nvml, Ok):
        return snapshot.nvml
    known = both(snapshot.processes, snapshot.host)
    if not isinstance(known, Ok):
        return known
    processes, host = known.value
    memberships = UnitMemberships(units=units, processes=processes, host=host, process_runs=process_runs)

    def of(gpu: Gpu) -> Reading[GpuAttribution]:
        if not isinstance(gpu.holders, Ok):
            return gpu.holders
        holders = tuple(_holder(entry, memberships, orphans) for entry in gpu.holders.value)
        return Ok(GpuAttribution(holders=holders, unattributed_bytes=_unattributed(gpu.memory, holders)))

    return Ok({gpu.uuid: of(gpu) for gpu in snapshot.nvml.value.gpus})


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
    """Sum up; None where one of them is not known."""
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total


def _holder(entry: GpuHolder, memberships: UnitMemberships, orphans: AbstractSet[ProcessId]) -> Holder:
    process = None if entry.process is None else memberships.processes.of(entry.process)
    if process is None:
        kind, unit = HolderKind.OTHER, None
        if not _may_be_there(entry, memberships.processes):
            known = None if entry.process is None else memberships.process_runs.get(entry.process)
            kind, unit = HolderKind.GONE, None if known is None else known.unit
    else:
        membership = memberships.of(process)
        unit = process.placement.unit if membership is None else membership.unit
        kind = _kind(process, membership, orphans)
    return Holder(
        pid=entry.pid,
        process=entry.process,
        command="" if process is None else _shown_command(process),
        unit=unit,
        kind=kind,
        used_bytes=entry.used_bytes,
    )


def _shown_command(process: Process) -> str:
    """Name a process as `ps` does, but an engine's part by its title, of which comm has only the beginning."""
    title = process.argv[0].rstrip() if process.argv else ""
    return title if process.engine and "::" in title else process.comm


def _may_be_there(entry: GpuHolder, processes: ProcessTable) -> bool:
    """Say whether the process may live although it is not in the table: unreadable, or younger than the table."""
    if entry.pid in processes.denied:
        return True
    began = processes.read_from_ticks
    return entry.process is not None and began is not None and entry.process.start_ticks >= began


def _kind(process: Process, membership: UnitMembership | None, orphans: AbstractSet[ProcessId]) -> HolderKind:
    home = process.placement.home
    # Any user can call a process Xorg: where it is of a watched unit, or in a container, that decides.
    if process.comm in SYSTEM_COMMS and membership is None and home is not Home.CONTAINER:
        return HolderKind.SYSTEM
    if membership is not None and membership.present is not None:
        return HolderKind.CURRENT if membership.present else HolderKind.LEFTOVER
    if process.id in orphans:
        return HolderKind.ORPHAN
    if home is Home.CONTAINER:
        return HolderKind.CONTAINER
    if home in {Home.SESSION, Home.SCOPE}:
        return HolderKind.SESSION
    return HolderKind.OTHER


def _unattributed(memory: Reading[GpuMemory], holders: tuple[Holder, ...]) -> Reading[int]:
    """Give memory in use less what is held. Shared buffers count with each of their processes: never below 0."""
    if not isinstance(memory, Ok):
        return memory
    held = 0
    for holder in holders:
        if holder.used_bytes is None:
            return Failed(Cause.NOT_SUPPORTED, f"the driver does not say how much process {holder.pid} holds")
        held += holder.used_bytes
    return Ok(max(0, memory.value.used_bytes - held))
