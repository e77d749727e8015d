"""Everything that follows from one snapshot."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from llmhost.config.schema import Config
from llmhost.derive.activation import is_of_present_activation, main_process
from llmhost.derive.attribution import GpuAttribution, attribute
from llmhost.derive.gpu_set import GpuSet, gpu_set
from llmhost.derive.ledger.ledger import Ledger
from llmhost.derive.need import Need, needed, needed_ratio, startable
from llmhost.derive.orphans import Orphan, orphans
from llmhost.derive.runs import run_of
from llmhost.derive.segments import SegmentState, segment_states
from llmhost.derive.trackers import TrackerState, tracker_states
from llmhost.derive.wanted import wanted
from llmhost.model.gpu import Gpu, NvmlReport
from llmhost.model.ids import GpuUuid, ProcessId, UnitId
from llmhost.model.process import Process, ProcessTable, Role
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


def derive(snapshot: Snapshot, config: Config, ledger: Ledger) -> Facts:
    found = orphans(snapshot, ledger.orphan_since, ledger.processes_since, config.policy)
    orphan_ids = frozenset(one.process.id for one in found.value) if isinstance(found, Ok) else frozenset()
    units = {unit.id: unit for unit in snapshot.units.value.units} if isinstance(snapshot.units, Ok) else {}
    members = mapped(snapshot.processes, _by_unit)
    return Facts(
        attribution=attribute(snapshot, units, orphan_ids),
        units=mapped(
            snapshot.units,
            lambda report: tuple(_unit_facts(unit, snapshot, members, config, ledger) for unit in report.units),
        ),
        segments=segment_states(snapshot.shm, ledger.unheld_since, snapshot.processes, config.policy),
        trackers=mapped(snapshot.processes, lambda table: tracker_states(table, orphan_ids)),
        orphans=found,
    )


def _by_unit(table: ProcessTable) -> Mapping[UnitId, tuple[Process, ...]]:
    members: dict[UnitId, list[Process]] = {}
    for process in table.by_pid.values():
        if process.placement.unit is not None:
            members.setdefault(process.placement.unit, []).append(process)
    return {unit: tuple(found) for unit, found in members.items()}


def _unit_facts(
    unit: Unit,
    snapshot: Snapshot,
    members: Reading[Mapping[UnitId, tuple[Process, ...]]],
    config: Config,
    ledger: Ledger,
) -> UnitFacts:
    mine: Reading[tuple[Process, ...]] = mapped(members, lambda by_unit: by_unit.get(unit.id, ()))
    if unit.load_state == "not-found" and isinstance(mine, Ok) and not mine.value:
        mine = NotApplicable("there is no such unit")
    running = mine.value if isinstance(mine, Ok) else ()
    run = run_of(unit, running, snapshot.processes, snapshot.host)
    gpus: Reading[tuple[Gpu, ...]] = mapped(snapshot.nvml, lambda report: report.gpus)
    listed = gpus.value if isinstance(gpus, Ok) else ()
    uuids: Reading[GpuSet] = (
        gpu_set(unit, listed, run, config.units.gpus, ledger.learnt_gpus(unit.id)) if isinstance(gpus, Ok) else gpus
    )
    need = needed(needed_ratio(run.engine, run.arguments, config.policy), uuids, listed, snapshot.host)
    return UnitFacts(
        unit=unit,
        engine=run.engine,
        guarded=_is_guarded(unit),
        wanted=wanted(unit),
        gpus=uuids,
        needed=need,
        startable=startable(
            unit,
            uuids,
            need,
            listed,
            snapshot.host,
            driver_mismatch=bool(run.engine) and _has_driver_mismatch(snapshot.nvml),
        ),
        processes=mapped(mine, lambda found: Counter(process.role for process in found if not process.zombie)),
        leftovers=_count_leftovers(unit, mine, snapshot),
    )


def _count_leftovers(unit: Unit, mine: Reading[tuple[Process, ...]], snapshot: Snapshot) -> Reading[int]:
    seen = both(both(mine, snapshot.processes), snapshot.host)
    if not isinstance(seen, Ok):
        return seen
    (members, table), host = seen.value
    main = main_process(unit, table)
    present = [is_of_present_activation(one, unit, host, main) for one in members if not one.zombie]
    if None in present:
        return Failed(Cause.UNKNOWN, "the clocks do not tell of every process when it started")
    return Ok(present.count(False))


def _has_driver_mismatch(report: Reading[NvmlReport]) -> bool:
    if isinstance(report, Failed):
        return report.cause is Cause.DRIVER_MISMATCH
    return isinstance(report, Ok) and bool(report.value.driver_mismatch)


def _is_guarded(unit: Unit) -> bool:
    commands = unit.settings.exec_start_pre if unit.settings is not None else ()
    return any(
        "guard" in command and any(word.rsplit("/", 1)[-1] == "llmhost" for word in command) for command in commands
    )
