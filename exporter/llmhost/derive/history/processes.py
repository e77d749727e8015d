"""Processes in the history: the run that each was first seen in, and since when it looks like an orphan."""

from collections.abc import Mapping

from llmhost.derive.activation import is_up, main_process
from llmhost.derive.history.bounds import MAX_PROCESSES, newest
from llmhost.derive.orphans import orphan_conditions, processes_read_at
from llmhost.derive.parentage import ancestors
from llmhost.model.ids import ProcessId, RunId, UnitId
from llmhost.model.process import Process, ProcessTable, Role
from llmhost.model.reading import NotApplicable, Ok
from llmhost.model.snapshot import Snapshot


def next_process_runs(before: Mapping[ProcessId, RunId], snapshot: Snapshot) -> Mapping[ProcessId, RunId]:
    """Add the run of processes that are seen for the first time, as far as they matter.

    Those are processes of engines, children of multiprocessing, holders of GPU memory, and all below a process of a run
    that has ended. A process is of the run that an ancestor of it was seen in; and of its unit's present run for
    certain where the unit's main process lives and nothing above it in the unit is older: the units may have been read
    before or after the processes, in another run. A process is dropped when it is gone and the driver does not list it
    either: the driver may keep a process's memory for a while after its end.
    """
    if not isinstance(snapshot.processes, Ok):
        return before
    table, holders = snapshot.processes.value, _gpu_holders(snapshot)
    runs = dict(before)
    if holders is not None:
        runs = {process: run for process, run in before.items() if _is_there(process, table, holders)}
    mains = _mains(snapshot, table)
    seen = dict(runs)
    for process in table.by_pid.values():
        main = mains.get(process.placement.unit) if process.placement.unit is not None else None
        if main is None or process.id in runs or process.zombie or process.id.start_ticks < main[0].id.start_ticks:
            continue
        run = _run_by_descent(process, *main, seen, table)
        matters = process.engine or process.role is not Role.OTHER or process.id in (holders or ())
        if run is not None and (matters or run != main[1]):
            runs[process.id] = run
    return newest(runs, MAX_PROCESSES)


def _run_by_descent(
    process: Process, main: Process, run: RunId, seen: Mapping[ProcessId, RunId], table: ProcessTable
) -> RunId | None:
    """Find the run of a process that is not older than its unit's main process; None where it may be of another one.

    What is older than the main process and not above it may have been left by the run before.
    """
    for above in (process, *ancestors(process, table)):
        if above.id == main.id:
            return run
        if above.id in seen:
            return seen[above.id]
        if above.placement.unit == run.unit and above.id.start_ticks < main.id.start_ticks:
            return None
    older = (
        other
        for other in table.by_pid.values()
        if other.session == process.session
        and other.placement.unit == run.unit
        and other.id.start_ticks < main.id.start_ticks
    )
    return None if process.session != main.session and any(older) else run


def next_orphan_since(before: Mapping[ProcessId, float], snapshot: Snapshot) -> Mapping[ProcessId, float]:
    """Carry on since when each process looks like an orphan; an observation without processes changes nothing."""
    found = orphan_conditions(snapshot, before.keys())
    if not isinstance(found, Ok):
        return before
    at = processes_read_at(snapshot)
    return {process: before.get(process, at) for process in found.value}


def _mains(snapshot: Snapshot, table: ProcessTable) -> Mapping[UnitId, tuple[Process, RunId]]:
    """Give the living main process of each unit that is up, and the run that it is of."""
    found: dict[UnitId, tuple[Process, RunId]] = {}
    for unit in snapshot.watched_units:
        main = main_process(unit, table)
        if main is not None and not main.zombie and is_up(unit) and unit.invocation_id:
            found[unit.id] = main, RunId(unit=unit.id, invocation_id=unit.invocation_id)
    return found


def _gpu_holders(snapshot: Snapshot) -> frozenset[ProcessId] | None:
    """Give the processes that hold GPU memory; none without NVML; None where they are not known."""
    if isinstance(snapshot.nvml, NotApplicable):
        return frozenset()
    return snapshot.nvml.value.holders if isinstance(snapshot.nvml, Ok) else None


def _is_there(process: ProcessId, table: ProcessTable, holders: frozenset[ProcessId]) -> bool:
    return table.of(process) is not None or process.pid in table.denied or process in holders
