"""The facts: all that follows from one snapshot and the history."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from llmhost.config.schema import Config
from llmhost.derive.attribution import GpuAttribution, attribute
from llmhost.derive.command import is_guard
from llmhost.derive.gpu_set import GpuSet
from llmhost.derive.orphans import Orphan, orphans
from llmhost.derive.requirements import Need, requirements_of
from llmhost.derive.restart_loop import RestartLoop, restart_loop, restarts_short_of_memory
from llmhost.derive.segments import SegmentState, segment_states
from llmhost.derive.should_run import should_run
from llmhost.derive.start_limit import start_limit_can_trip
from llmhost.derive.start_limit_hit import StartLimitHit, start_limit_hit
from llmhost.derive.startable import startable
from llmhost.derive.trackers import TrackerState, tracker_states
from llmhost.derive.unit_membership import UnitMemberships, members_by_unit
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
    guarded: bool  # a guard before its start, or before the server in ExecStart=, waits for what it needs
    should_run: Reading[bool]
    start_limit_can_trip: Reading[bool]
    start_limit_hit: Reading[StartLimitHit | None]
    loop: RestartLoop | None
    restarts_short_of_memory: bool | None
    gpus: Reading[GpuSet]
    needed: Reading[Need]
    startable: Reading[bool]
    processes: Reading[Mapping[Role, int]]
    leftovers: Reading[frozenset[ProcessId]]  # processes of its ended activations that are alive


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
        lambda known: _leftovers(
            UnitMemberships(units=units, processes=known[0], host=known[1], process_runs=history.process_runs)
        ),
    )
    return Facts(
        attribution=attribute(snapshot, units, orphan_ids, history.process_runs),
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
    leftovers: Reading[Mapping[UnitId, Reading[frozenset[ProcessId]]]],
) -> UnitFacts:
    processes: Reading[tuple[Process, ...]] = mapped(members, lambda by_unit: by_unit.get(unit.id, ()))
    if unit.load_state == "not-found" and isinstance(processes, Ok) and not processes.value:
        processes = NotApplicable("there is no such unit")
    requirements = requirements_of(
        unit, processes.value if isinstance(processes, Ok) else (), snapshot, config, history
    )
    unit_history = history.units.get(unit.id)
    limit_hit = start_limit_hit(unit, unit_history, snapshot.at_monotonic)
    refused = isinstance(limit_hit, Ok) and limit_hit.value is not None and limit_hit.value.refuses
    return UnitFacts(
        unit=unit,
        engine=requirements.engine,
        guarded=_is_guarded(unit),
        should_run=should_run(unit, unit_history),
        start_limit_can_trip=start_limit_can_trip(unit, unit_history),
        gpus=requirements.gpus,
        needed=requirements.needed,
        start_limit_hit=limit_hit,
        loop=restart_loop(
            unit,
            unit_history,
            requirements.engine,
            snapshot.engines,
            at=snapshot.at,
            at_monotonic=snapshot.at_monotonic,
        ),
        restarts_short_of_memory=restarts_short_of_memory(unit_history, requirements.engine, snapshot.engines),
        startable=Ok(False)
        if refused
        else startable(
            unit,
            requirements.gpus,
            requirements.needed,
            snapshot.gpus,
            snapshot.host,
            driver_mismatch=bool(requirements.engine) and _has_driver_mismatch(snapshot.nvml),
        ),
        processes=mapped(processes, lambda found: Counter(process.role for process in found if not process.zombie)),
        leftovers=_leftovers_of(unit, both(processes, leftovers)),
    )


def _leftovers_of(
    unit: Unit, found: Reading[tuple[tuple[Process, ...], Mapping[UnitId, Reading[frozenset[ProcessId]]]]]
) -> Reading[frozenset[ProcessId]]:
    return found.value[1][unit.id] if isinstance(found, Ok) else found


def _leftovers(memberships: UnitMemberships) -> Mapping[UnitId, Reading[frozenset[ProcessId]]]:
    """Find the processes of each unit's ended activations, wherever they are by now."""
    found: dict[UnitId, set[ProcessId]] = {}
    unknown: set[UnitId] = set()
    for process in memberships.processes.by_pid.values():
        membership = None if process.zombie else memberships.of(process)
        if membership is not None and membership.present is None:
            unknown.add(membership.unit)
        elif membership is not None and membership.present is False:
            found.setdefault(membership.unit, set()).add(process.id)
    return {
        unit: Failed(Cause.UNKNOWN, "of a process it is not known whether its run has ended")
        if unit in unknown
        else Ok(frozenset(found.get(unit, ())))
        for unit in memberships.units
    }


def _has_driver_mismatch(report: Reading[NvmlReport]) -> bool:
    if isinstance(report, Failed):
        return report.cause is Cause.DRIVER_MISMATCH
    return isinstance(report, Ok) and bool(report.value.driver_mismatch)


def _is_guarded(unit: Unit) -> bool:
    settings = unit.settings
    commands = (*settings.exec_start_pre, *settings.exec_start) if settings is not None else ()
    return any(is_guard(command) for command in commands)
