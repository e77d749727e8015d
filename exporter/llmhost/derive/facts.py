"""Everything that follows from one snapshot."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from llmhost.config.schema import Config
from llmhost.derive.attribution import GpuAttribution, attribute
from llmhost.derive.command import is_guard
from llmhost.derive.gpu_set import GpuSet
from llmhost.derive.need import Need, startable
from llmhost.derive.orphans import Orphan, orphans
from llmhost.derive.requirements import demand_of, members_by_unit
from llmhost.derive.segments import SegmentState, segment_states
from llmhost.derive.should_run import wanted
from llmhost.derive.start_limit import gives_up
from llmhost.derive.trackers import TrackerState, tracker_states
from llmhost.derive.unit_membership import Owners
from llmhost.model.gpu import NvmlReport
from llmhost.model.history.history import History
from llmhost.model.ids import GpuUuid, ProcessId, UnitId
from llmhost.model.process import Process, Role
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading, both, mapped
from llmhost.model.segment import SegmentId
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFacts:
    unit: Unit
    engine: str  # "" where no engine is known to run
    guarded: bool
    wanted: Reading[bool]
    gives_up: Reading[bool]
    gpus: Reading[GpuSet]
    needed: Reading[Need]
    startable: Reading[bool]
    processes: Reading[Mapping[Role, int]]
    leftovers: Reading[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    attribution: Reading[Mapping[GpuUuid, Reading[GpuAttribution]]]
    units: Reading[tuple[UnitFacts, ...]]
    segments: Reading[Mapping[SegmentId, SegmentState]]
    trackers: Reading[Mapping[ProcessId, TrackerState]]
    orphans: Reading[tuple[Orphan, ...]]


def derive(snapshot: Snapshot, config: Config, history: History) -> Facts:
    found = orphans(snapshot, history.orphan_since, history.processes_since, config.policy)
    orphan_ids = frozenset(orphan.process.id for orphan in found.value) if isinstance(found, Ok) else frozenset()
    units = {unit.id: unit for unit in snapshot.units.value.units} if isinstance(snapshot.units, Ok) else {}
    members = mapped(snapshot.processes, members_by_unit)
    leftovers = mapped(
        both(snapshot.processes, snapshot.host),
        lambda seen: _leftovers(Owners(units=units, processes=seen[0], host=seen[1], belongings=history.belongings)),
    )
    return Facts(
        attribution=attribute(snapshot, units, orphan_ids, history.belongings),
        units=mapped(
            snapshot.units,
            lambda report: tuple(
                _unit_facts(unit, snapshot, members, config, history, leftovers=leftovers) for unit in report.units
            ),
        ),
        segments=segment_states(snapshot.shm, history.unheld_since, snapshot.processes, config.policy),
        trackers=mapped(snapshot.processes, lambda table: tracker_states(table, orphan_ids)),
        orphans=found,
    )


def _unit_facts(
    unit: Unit,
    snapshot: Snapshot,
    members: Reading[Mapping[UnitId, tuple[Process, ...]]],
    config: Config,
    history: History,
    *,
    leftovers: Reading[Mapping[UnitId, Reading[int]]],
) -> UnitFacts:
    mine: Reading[tuple[Process, ...]] = mapped(members, lambda by_unit: by_unit.get(unit.id, ()))
    if unit.load_state == "not-found" and isinstance(mine, Ok) and not mine.value:
        mine = NotApplicable("there is no such unit")
    demand = demand_of(unit, mine.value if isinstance(mine, Ok) else (), snapshot, config, history)
    record = history.units.get(unit.id)
    return UnitFacts(
        unit=unit,
        engine=demand.run.engine,
        guarded=_is_guarded(unit),
        wanted=wanted(unit, record),
        gives_up=gives_up(unit, record),
        gpus=demand.gpus,
        needed=demand.needed,
        startable=startable(
            unit,
            demand.gpus,
            demand.needed,
            snapshot.gpus,
            snapshot.host,
            driver_mismatch=bool(demand.run.engine) and _has_driver_mismatch(snapshot.nvml),
        ),
        processes=mapped(mine, lambda found: Counter(process.role for process in found if not process.zombie)),
        leftovers=_leftovers_of(unit, both(mine, leftovers)),
    )


def _leftovers_of(
    unit: Unit, found: Reading[tuple[tuple[Process, ...], Mapping[UnitId, Reading[int]]]]
) -> Reading[int]:
    return found.value[1][unit.id] if isinstance(found, Ok) else found


def _leftovers(owners: Owners) -> Mapping[UnitId, Reading[int]]:
    """Count the processes of each unit's ended activations, wherever they are by now."""
    count: Counter[UnitId] = Counter()
    untold: set[UnitId] = set()
    for process in owners.processes.by_pid.values():
        owner = None if process.zombie else owners.of(process)
        if owner is not None and owner.present is None:
            untold.add(owner.unit)
        elif owner is not None and owner.present is False:
            count[owner.unit] += 1
    return {
        unit: Failed(Cause.UNKNOWN, "the clocks do not tell of every process when it started")
        if unit in untold
        else Ok(count[unit])
        for unit in owners.units
    }


def _has_driver_mismatch(report: Reading[NvmlReport]) -> bool:
    if isinstance(report, Failed):
        return report.cause is Cause.DRIVER_MISMATCH
    return isinstance(report, Ok) and bool(report.value.driver_mismatch)


def _is_guarded(unit: Unit) -> bool:
    commands = unit.settings.exec_start_pre if unit.settings is not None else ()
    return any(is_guard(command) for command in commands)
