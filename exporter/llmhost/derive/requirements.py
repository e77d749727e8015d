"""What a unit runs, on which GPUs, and what that needs free."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmhost.config.schema import Config
from llmhost.derive.gpu_set import GpuSet, gpu_set
from llmhost.derive.need import Need, needed, needed_ratio
from llmhost.derive.runs import Run, run_of
from llmhost.model.history.history import History
from llmhost.model.ids import UnitId
from llmhost.model.process import Process, ProcessTable
from llmhost.model.reading import Ok, Reading
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    run: Run
    gpus: Reading[GpuSet]
    needed: Reading[Need]


def demand_of(unit: Unit, members: tuple[Process, ...], snapshot: Snapshot, config: Config, history: History) -> Demand:
    """Work it out from the processes in the unit's cgroup, where there are any that tell, and from its settings."""
    run = run_of(unit, members, snapshot.processes, snapshot.host)
    listed = snapshot.gpus
    uuids: Reading[GpuSet] = (
        gpu_set(unit, listed, run, config.units.gpus, history.learnt_gpus(unit.id))
        if isinstance(snapshot.nvml, Ok)
        else snapshot.nvml
    )
    return Demand(
        run=run,
        gpus=uuids,
        needed=needed(needed_ratio(run.engine, run.arguments, config.policy), uuids, listed, snapshot.host),
    )


def members_by_unit(table: ProcessTable) -> Mapping[UnitId, tuple[Process, ...]]:
    """Give the processes in the cgroup of each unit."""
    members: dict[UnitId, list[Process]] = {}
    for process in table.by_pid.values():
        if process.placement.unit is not None:
            members.setdefault(process.placement.unit, []).append(process)
    return {unit: tuple(found) for unit, found in members.items()}
