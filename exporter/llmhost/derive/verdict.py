"""What a start finds on its GPUs: clean, or memory of others in the way."""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from llmhost.config.schema import Config
from llmhost.derive.activation import is_up, main_process
from llmhost.derive.attribution import HolderKind, attribute
from llmhost.derive.gpu_set import GpuSet
from llmhost.derive.in_the_way import Obstacle, Scene, Target, failed
from llmhost.derive.orphans import orphans
from llmhost.derive.requirements import requirements_of
from llmhost.derive.unit_membership import members_by_unit
from llmhost.model.gpu import Gpu
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import UNATTRIBUTED, InTheWay, Verdict
from llmhost.model.ids import GpuUuid, ProcessId, UnitId
from llmhost.model.process import Process
from llmhost.model.reading import Cause, Failed, Ok, Reading, mapped
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit, UnitsReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    verdict: Verdict  # CLEAN or RESIDENT
    in_the_way: tuple[InTheWay, ...]  # summed per GPU and kind, also where it is below the threshold
    obstacles: tuple[Obstacle, ...]  # the same one by one, the largest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What was read for starts, and what follows from it for all of them alike."""

    snapshot: Snapshot
    config: Config
    history: History
    members: Reading[Mapping[UnitId, tuple[Process, ...]]]
    orphan_ids: AbstractSet[ProcessId]

    @classmethod
    def of(cls, snapshot: Snapshot, config: Config, history: History) -> "Grounds":
        found = orphans(snapshot, history.orphan_since, history.processes_since, config.policy)
        return cls(
            snapshot=snapshot,
            config=config,
            history=history,
            members=mapped(snapshot.processes, members_by_unit),
            orphan_ids=frozenset(orphan.process.id for orphan in found.value) if isinstance(found, Ok) else frozenset(),
        )


def judge(
    snapshot: Snapshot,
    unit: Unit,
    used_at_start: Mapping[GpuUuid, int],
    config: Config,
    history: History,
) -> Reading[Judgement]:
    """Judge one start by what was read for it alone (see judge_on)."""
    return judge_on(Grounds.of(snapshot, config, history), unit, used_at_start)


def judge_on(grounds: Grounds, unit: Unit, used_at_start: Mapping[GpuUuid, int]) -> Reading[Judgement]:
    """Judge a start from what was read for it; Failed where that does not tell.

    `unit` is the unit as it was when its main process started, whatever the snapshot says of it by now; `used_at_start`
    is the memory in use as read right then, which counts where it differs from the snapshot's.

    In the way on a GPU of the unit's set are what ended activations, orphans and processes that are gone hold, and
    memory that nobody holds. Sessions, containers and others count with them where they leave less than the unit needs;
    units that are up and the machine's own programs never. More than policy.resident of it on one GPU is resident. A
    GPU on which no more than that is in use at all is told by that alone: a start that needs nearly the whole of a GPU
    may fail there, but not because of what is in the way. What started after the unit's main process held nothing that
    this found. A GPU of which that cannot be told leaves only `resident` to be said, of another; so does one where
    sessions, containers and others would decide, and nobody knows what the unit needs, or where what nobody holds may
    have been held by a unit that has gone down since.

    Where the set is not known, or names a GPU that is split into MIG instances, it is told if all that it may be are
    clean. In the way is then nothing: nobody knows which of it would have been.
    """
    snapshot, config, history = grounds.snapshot, grounds.config, grounds.history
    if not isinstance(snapshot.nvml, Ok):
        return failed(snapshot.nvml)
    if unit.settings is None:
        return Failed(Cause.UNKNOWN, "systemd has not told yet what the unit runs")
    units_read = isinstance(snapshot.units, Ok)
    gpus = snapshot.nvml.value.gpus
    unit = unit if is_up(unit) else replace(unit, active_state="activating", sub_state="start")
    units = {one.id: one for one in snapshot.units.value.units} if isinstance(snapshot.units, Ok) else {}
    leaving = _leaving(units, unit)
    units |= leaving
    units[unit.id] = unit
    snapshot = replace(snapshot, units=Ok(UnitsReport(systemd_version="", units=tuple(units.values()))))
    members = grounds.members.value.get(unit.id, ()) if isinstance(grounds.members, Ok) else ()
    requirements = requirements_of(unit, members, snapshot, config, history)
    scene = Scene(
        snapshot=snapshot,
        unit=unit,
        units=units.keys(),
        units_read=units_read,
        used_at_start=used_at_start,
        needed=requirements.needed,
        attribution=attribute(snapshot, units, grounds.orphan_ids, history.process_runs),
        main_ticks=_main_ticks(snapshot, unit),
        leaving_bytes=_held_by(leaving, history),
        policy=config.policy,
    )
    found = [scene.look_at(target) for target in _targets(requirements.gpus, gpus)]
    certain = [one for one in found if one.target.doubt is None]
    obstacles = [obstacle for one in certain for obstacle in one.obstacles]
    resident = any(one.counted_bytes > config.policy.resident_bytes for one in certain)
    untold = next((one.untold for one in found if one.untold is not None), None)
    if not resident and untold is not None:
        return untold
    return Ok(
        Judgement(
            verdict=Verdict.RESIDENT if resident else Verdict.CLEAN,
            in_the_way=_summed(obstacles),
            obstacles=tuple(sorted(obstacles, key=lambda one: -one.used_bytes)),
        )
    )


def _targets(uuids: Reading[GpuSet], listed: Sequence[Gpu]) -> tuple[Target, ...]:
    """Give the GPUs of the set, or all that may be in it."""
    by_uuid = {gpu.uuid: gpu for gpu in listed}
    instances: dict[GpuUuid, list[Gpu]] = {}
    for gpu in listed:
        if gpu.parent_uuid is not None:
            instances.setdefault(gpu.parent_uuid, []).append(gpu)
    if not isinstance(uuids, Ok):
        doubt = failed(uuids)
        return tuple(Target(uuid=gpu.uuid, gpu=gpu, doubt=doubt) for gpu in listed if gpu.uuid not in instances)
    found: list[Target] = []
    for uuid in dict.fromkeys(uuids.value):
        if uuid in instances:
            doubt = Failed(Cause.UNKNOWN, f"nobody knows which MIG instance of {uuid} the unit uses")
            found += [Target(uuid=instance.uuid, gpu=instance, doubt=doubt) for instance in instances[uuid]]
        else:
            found.append(Target(uuid=uuid, gpu=by_uuid.get(uuid)))
    return tuple(found)


def _leaving(units: Mapping[UnitId, Unit], unit: Unit) -> Mapping[UnitId, Unit]:
    """Give the other units that were up at the start and on their way out by now, as they were."""
    began = unit.exec_main_start_monotonic
    if began is None:
        return {}
    return {
        one.id: replace(one, active_state="deactivating", sub_state="stop", inactive_enter_monotonic=None)
        for one in units.values()
        if one.id != unit.id
        and (one.active_state == "deactivating" or (not is_up(one) and (one.inactive_enter_monotonic or 0.0) > began))
    }


def _held_by(units: Mapping[UnitId, Unit], history: History) -> Mapping[GpuUuid, int]:
    """Sum up what they held at the last look at their present activation."""
    held: dict[GpuUuid, int] = {}
    for unit in units.values():
        known = history.holdings.get(unit.id)
        if known is not None and known.invocation_id == unit.invocation_id:
            for uuid, own in known.own_bytes.items():
                held[uuid] = held.get(uuid, 0) + own
    return held


def _main_ticks(snapshot: Snapshot, unit: Unit) -> int | None:
    """When the unit's main process started, which may have ended by now, in ticks since boot."""
    main = main_process(unit, snapshot.processes.value) if isinstance(snapshot.processes, Ok) else None
    if main is not None:
        return main.id.start_ticks
    if unit.exec_main_start_monotonic is None or not isinstance(snapshot.host, Ok):
        return None
    host = snapshot.host.value
    return math.floor((unit.exec_main_start_monotonic + host.boottime_ahead_seconds) * host.ticks_per_second)


def _summed(obstacles: Sequence[Obstacle]) -> tuple[InTheWay, ...]:
    """Sum up by GPU and kind, in the order of the set and of the kinds."""
    order = [*HolderKind, UNATTRIBUTED]
    sums: dict[tuple[GpuUuid, str], InTheWay] = {}
    for obstacle in obstacles:
        before = sums.get((obstacle.uuid, obstacle.kind))
        total = obstacle.used_bytes + (before.used_bytes if before is not None else 0)
        sums[obstacle.uuid, obstacle.kind] = InTheWay(
            uuid=obstacle.uuid, gpu=obstacle.gpu, kind=obstacle.kind, used_bytes=total
        )
    uuids = list(dict.fromkeys(obstacle.uuid for obstacle in obstacles))
    return tuple(sorted(sums.values(), key=lambda way: (uuids.index(way.uuid), order.index(way.kind))))
