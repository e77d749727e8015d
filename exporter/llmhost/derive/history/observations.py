"""An observation's part in the history."""

from dataclasses import replace

from llmhost.config.schema import Policy
from llmhost.derive.history.changes import with_changed, with_time
from llmhost.derive.history.clock_offsets import next_clock_offsets
from llmhost.derive.history.events import state_label
from llmhost.derive.history.gpu_use import with_gpu_use
from llmhost.derive.history.last_servers import next_last_servers
from llmhost.derive.history.processes import next_orphan_since, next_process_runs
from llmhost.derive.history.readiness import next_readiness
from llmhost.derive.history.segments import next_segment_units, next_unheld
from llmhost.derive.orphans import processes_read_at
from llmhost.model.gpu import NvmlReport, SeenGpu, SeenGpus
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit


def with_observation(history: History, snapshot: Snapshot, policy: Policy) -> History:
    """Take in a snapshot. What a source that failed would have changed stays as it was."""
    if isinstance(snapshot.host, Ok) and not history.boot_id:  # another boot is another run of the exporter
        history = replace(history, boot_id=snapshot.host.value.boot_id)
    history = replace(history, clock_offsets=next_clock_offsets(history.clock_offsets, snapshot))
    history = replace(history, readiness=next_readiness(history.readiness, snapshot))
    history = _with_processes(history, snapshot)
    history = _with_segments(history, snapshot)
    history = with_gpu_use(history, snapshot, policy)
    if isinstance(snapshot.nvml, Ok):
        history = replace(history, gpus=_next_gpus(history.gpus, snapshot.nvml.value))
    history = replace(history, last_servers=next_last_servers(history.last_servers, snapshot))
    return _with_units(history, snapshot)


def _next_gpus(before: SeenGpus, report: NvmlReport) -> SeenGpus:
    working = {
        gpu.uuid: SeenGpu(index=gpu.index, name=gpu.name, pci_bus_id=gpu.pci_bus_id, unified_memory=gpu.unified_memory)
        for gpu in report.gpus
        if gpu.up and gpu.parent_uuid is None
    }
    return SeenGpus(listed_most=max(before.listed_most, report.listed_most), gpus={**before.gpus, **working})


def _with_processes(history: History, snapshot: Snapshot) -> History:
    at = processes_read_at(snapshot)
    if not isinstance(snapshot.processes, Ok) or (history.processes_at is not None and at < history.processes_at):
        return history
    return replace(
        history,
        processes_since=at if history.processes_since is None else history.processes_since,
        processes_at=at,
        orphan_since=next_orphan_since(history.orphan_since, snapshot),
        process_runs=next_process_runs(history.process_runs, snapshot),
    )


def _with_segments(history: History, snapshot: Snapshot) -> History:
    """Take in the segments. A reading that came too late may have had a holder: all unheld ones start anew."""
    if isinstance(snapshot.shm, Failed) and snapshot.shm.cause is Cause.TIMEOUT:
        return replace(history, unheld_since={}, unheld_changed_at={})
    if not isinstance(snapshot.shm, Ok) or snapshot.shm.value.read_at < history.shm_at:  # two may observe at once
        return history
    since, changed_at = next_unheld(history.unheld_since, history.unheld_changed_at, snapshot.shm.value)
    return replace(
        history,
        shm_at=snapshot.shm.value.read_at,
        segment_units=next_segment_units(history.segment_units, snapshot, history.process_runs),
        unheld_since=since,
        unheld_changed_at=changed_at,
    )


def _with_units(history: History, snapshot: Snapshot) -> History:
    """Count time in states up to now, and note which starts have become ready. Units are added by events alone."""
    if not isinstance(snapshot.units, Ok):
        return history
    observed: dict[UnitId, UnitHistory] = {}
    for unit in snapshot.units.value.units:
        unit_history = history.units.get(unit.id)
        if unit_history is not None:
            observed[unit.id] = _with_unit(unit_history, unit, history, snapshot)
    return replace(history, units={**history.units, **observed})


def _with_unit(unit_history: UnitHistory, unit: Unit, history: History, snapshot: Snapshot) -> UnitHistory:
    if unit_history.state == state_label(unit):  # else an event with the time of the change is on its way
        unit_history = with_time(unit_history, snapshot.at_monotonic)
    start = unit_history.start_of(unit.invocation_id)
    readiness = history.readiness.get(unit.id)
    if start is not None and start.ready_seconds is None and readiness is not None:
        seconds = readiness.first_answer_seconds(unit.invocation_id)
        if seconds is not None:
            unit_history = with_changed(unit_history, replace(start, ready_seconds=seconds))
    return replace(unit_history, last_seen_at=max(unit_history.last_seen_at, snapshot.at))
