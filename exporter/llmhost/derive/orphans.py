"""Orphans: engine processes that have outlived their creators (see parentage)."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from llmhost.config.schema import Policy
from llmhost.derive.activation import is_up
from llmhost.derive.command import engine_of
from llmhost.derive.parentage import ParentLink, ancestors, parent_link
from llmhost.model.children import is_bare_child, is_engine_child
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Process, ProcessTable, Role
from llmhost.model.reading import NotApplicable, Ok, Reading, mapped
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit

_NONE = "none"
_FRONTS = frozenset({Role.API_SERVER, Role.LAUNCHER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    process: Process
    engine: str  # "none" where it is not known, as for a bare spawn_main
    seconds: float  # for how long it has been in that condition at every observation
    inferred: bool  # without pipes, which take privilege to read


def orphan_conditions(
    snapshot: Snapshot, before: AbstractSet[ProcessId] = frozenset()
) -> Reading[Mapping[ProcessId, bool]]:
    """Find every process in an orphan's condition in this snapshot; the value says whether that is inferred.

    In it are an engine's child, or a bare child of multiprocessing in an engine's tree or with GPU memory, that has
    lost its creator; and all below it, but for trackers, which have states of their own, and servers that are not an
    engine's children. Not in it are processes of a unit that is stopping, or below the living server of their own unit;
    without systemd no unit is known to be stopping. `before` are those of the observation before: where NVML does not
    answer now, they count as processes with GPU memory.
    """
    return mapped(snapshot.processes, lambda table: _in_condition(table, snapshot, before))


def orphans(
    snapshot: Snapshot, orphan_since: Mapping[ProcessId, float], watched_since: float | None, policy: Policy
) -> Reading[tuple[Orphan, ...]]:
    """Give the orphans, by pid: the processes that have been in that condition for the grace time.

    Until processes have been observed for that long, it is unknown whether one in that condition is an orphan.
    """
    if not isinstance(snapshot.processes, Ok):
        return snapshot.processes
    table = snapshot.processes.value
    at = processes_read_at(snapshot)
    watched_seconds = at - (at if watched_since is None else watched_since)

    def judged(found: Mapping[ProcessId, bool]) -> Iterator[Orphan]:
        for process_id in sorted(found):
            process, inferred = table.by_pid[process_id.pid], found[process_id]
            seconds = at - orphan_since.get(process_id, at)
            if seconds >= policy.orphan_grace_seconds:
                yield Orphan(process=process, engine=process.engine or _NONE, seconds=seconds, inferred=inferred)

    found = orphan_conditions(snapshot, orphan_since.keys())
    if isinstance(found, Ok) and found.value and watched_seconds < policy.orphan_grace_seconds:
        return NotApplicable("not watched for long enough")
    return mapped(found, lambda conditions: tuple(judged(conditions)))


def processes_read_at(snapshot: Snapshot) -> float:
    """Give the time when the reading of processes began, on CLOCK_MONOTONIC: other sources may have taken long."""
    read_at = snapshot.processes.value.read_at_monotonic if isinstance(snapshot.processes, Ok) else None
    return snapshot.at_monotonic if read_at is None else read_at


def _in_condition(table: ProcessTable, snapshot: Snapshot, before: AbstractSet[ProcessId]) -> Mapping[ProcessId, bool]:
    units = {unit.id: unit for unit in snapshot.units.value.units} if isinstance(snapshot.units, Ok) else {}
    lost: dict[int, bool] = {}
    bare: list[Process] = []
    for process in table.by_pid.values():
        link = parent_link(process, table)
        if link in {ParentLink.KEPT, ParentLink.UNKNOWN} or _is_excused(process, table, units):
            continue
        if is_bare_child(process):
            bare.append(process)
        else:
            lost[process.id.pid] = link is ParentLink.SEEMS_LOST
    if bare:
        engines = _Engines(snapshot, table, units, before)
        lost.update(
            (process.id.pid, parent_link(process, table) is ParentLink.SEEMS_LOST)
            for process in bare
            if engines.has_part_in(process)
        )
    return {
        process.id: inferred
        for pid, inferred in _with_descendants(lost, table)
        if not _is_stopping(process := table.by_pid[pid], units)
    }


def _is_excused(process: Process, table: ProcessTable, units: Mapping[UnitId, Unit]) -> bool:
    """Say whether its unit is stopping, or is up and its server is above the process."""
    if process.placement.unit is None:
        return False
    if _is_stopping(process, units):
        return True
    unit = units.get(process.placement.unit)
    if unit is not None and not is_up(unit):
        return False
    return any(
        above.role in _FRONTS and not above.zombie and above.placement.unit == process.placement.unit
        for above in ancestors(process, table)
    )


def _is_stopping(process: Process, units: Mapping[UnitId, Unit]) -> bool:
    unit = units.get(process.placement.unit) if process.placement.unit is not None else None
    return unit is not None and unit.active_state == "deactivating"


def _with_descendants(lost: Mapping[int, bool], table: ProcessTable) -> Iterator[tuple[int, bool]]:
    """Go down from the lost; what is proven for an ancestor is proven for those below."""
    inferred: dict[int, bool] = {}
    waiting = sorted(lost.items(), key=lambda found: found[1])  # the proven first
    while waiting:
        pid, seems = waiting.pop(0)
        process = table.by_pid.get(pid)
        if process is None or pid in inferred:
            continue
        if process.role in _FRONTS and not is_engine_child(process):
            continue
        inferred[pid] = seems
        waiting[:0] = [(child, seems) for child in table.children.get(pid, ())]
    for pid, seems in inferred.items():
        process = table.by_pid[pid]
        if not process.zombie and process.role is not Role.TRACKER:
            yield pid, seems


class _Engines:
    """Engines' trees, units and GPU memory: a bare child with a part in one of them is an engine's."""

    def __init__(
        self,
        snapshot: Snapshot,
        table: ProcessTable,
        units: Mapping[UnitId, Unit],
        before: AbstractSet[ProcessId],
    ) -> None:
        self._table = table
        self._holders = snapshot.nvml.value.holders if isinstance(snapshot.nvml, Ok) else None
        self._before = before
        self._above_children = frozenset(_above_children(table))
        self._units = frozenset(
            process.placement.unit for process in table.by_pid.values() if process.engine and process.placement.unit
        ) | frozenset(unit.id for unit in units.values() if engine_of(unit))

    def has_part_in(self, process: Process) -> bool:
        if process.id.pid in self._above_children or process.placement.unit in self._units:
            return True
        if any(above.engine for above in ancestors(process, self._table)):
            return True
        return process.id in (self._before if self._holders is None else self._holders)


def _above_children(table: ProcessTable) -> Iterator[int]:
    """Give the processes that may have created an engine's child: those above it, up to a server."""
    for process in table.by_pid.values():
        if is_engine_child(process) and not process.zombie:
            for above in ancestors(process, table):
                if above.role in _FRONTS:
                    break
                yield above.id.pid
