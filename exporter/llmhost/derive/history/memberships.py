"""What a look adds to what is known of processes and files of shared memory: whose they are."""

from collections.abc import Mapping

from llmhost.derive.activation import is_up, main_process
from llmhost.model.history.bounds import MAX_PROCESSES, MAX_SEGMENTS, newest
from llmhost.model.history.history import Belonging
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Process, ProcessTable, Role
from llmhost.model.reading import NotApplicable, Ok
from llmhost.model.segment import Segment, SegmentId
from llmhost.model.snapshot import Snapshot


def advance_belongings(before: Mapping[ProcessId, Belonging], snapshot: Snapshot) -> Mapping[ProcessId, Belonging]:
    """Take down in which activation the processes that matter are seen for the first time.

    Those are an engine's processes, children of multiprocessing and who holds GPU memory. They are of the unit's
    present activation for certain where its main process lives and is not younger: the units' states may have been
    read before or after the processes, and by then another activation's. Forgotten is who is neither there nor listed
    by the driver, which may keep a process's memory for a while after its end.
    """
    if not isinstance(snapshot.processes, Ok):
        return before
    table, holders = snapshot.processes.value, _gpu_holders(snapshot)
    known = (
        dict(before) if holders is None else {one: of for one, of in before.items() if _is_there(one, table, holders)}
    )
    mains = _mains(snapshot, table)
    for process in table.by_pid.values():
        main = mains.get(process.placement.unit) if process.placement.unit is not None else None
        if main is None or process.id in known or process.zombie or process.id.start_ticks < main[0].id.start_ticks:
            continue
        if process.engine or process.role is not Role.OTHER or process.id in (holders or ()):
            known[process.id] = main[1]
    return newest(known, MAX_PROCESSES)


def _mains(snapshot: Snapshot, table: ProcessTable) -> Mapping[UnitId, tuple[Process, Belonging]]:
    """Give the living main process of each unit that is up, and the activation that it is of."""
    found: dict[UnitId, tuple[Process, Belonging]] = {}
    for unit in snapshot.watched_units:
        main = main_process(unit, table)
        if main is not None and not main.zombie and is_up(unit) and unit.invocation_id:
            found[unit.id] = main, Belonging(unit=unit.id, invocation_id=unit.invocation_id)
    return found


def _gpu_holders(snapshot: Snapshot) -> frozenset[ProcessId] | None:
    """Give who holds GPU memory; None where a GPU's holders are not told. Without NVML nobody does."""
    if not isinstance(snapshot.nvml, Ok):
        return frozenset() if isinstance(snapshot.nvml, NotApplicable) else None
    holders: set[ProcessId] = set()
    for gpu in snapshot.nvml.value.gpus:
        if isinstance(gpu.holders, Ok):
            holders.update(entry.process for entry in gpu.holders.value if entry.process is not None)
        elif not isinstance(gpu.holders, NotApplicable):
            return None
    return frozenset(holders)


def _is_there(process: ProcessId, table: ProcessTable, holders: frozenset[ProcessId]) -> bool:
    return table.of(process) is not None or process.pid in table.denied or process in holders


def advance_segment_units(
    before: Mapping[SegmentId, UnitId], snapshot: Snapshot, belongings: Mapping[ProcessId, Belonging]
) -> Mapping[SegmentId, UnitId]:
    """Take down which watched unit's processes hold a file; that stays for as long as the file is listed."""
    if not isinstance(snapshot.shm, Ok):
        return before
    table = snapshot.processes.value if isinstance(snapshot.processes, Ok) else None
    watched = {unit.id for unit in snapshot.units.value.units} if isinstance(snapshot.units, Ok) else set()

    def holding(segment: Segment) -> set[UnitId]:
        units: set[UnitId] = set()
        for holder in segment.holders or ():
            known = belongings.get(holder)
            process = table.of(holder) if table is not None else None
            if known is not None:
                units.add(known.unit)
            elif process is not None and process.placement.unit in watched:
                units.add(process.placement.unit)
        return units

    listed = {segment.id: segment for segment in snapshot.shm.value.segments}
    found = {segment: unit for segment, unit in before.items() if segment in listed}
    for segment in listed.values():
        units = holding(segment)
        if units and found.get(segment.id) not in units:
            found[segment.id] = min(
                units
            )  # of more than one, which does not happen to files of engines, always the same
    return newest(found, MAX_SEGMENTS)
