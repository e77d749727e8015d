"""The verdict on a start: clean, or resident with the memory that was in the way on its GPUs."""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from llmhost.config.schema import Config
from llmhost.derive.activation import is_up, main_process
from llmhost.derive.attribution import HolderKind, attribute
from llmhost.derive.gpu_set import GpuSet
from llmhost.derive.in_the_way import GpuOfSet, Obstacle, StartContext, failed
from llmhost.derive.orphans import orphans
from llmhost.derive.requirements import requirements_of
from llmhost.derive.unit_membership import members_by_unit
from llmhost.model.gpu import Gpu
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import UNATTRIBUTED, InTheWay, Short, Verdict
from llmhost.model.ids import GpuUuid, ProcessId, UnitId
from llmhost.model.process import Process
from llmhost.model.reading import Cause, Failed, Ok, Reading, mapped
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit, UnitsReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with its reasons."""

    verdict: Verdict  # CLEAN or RESIDENT
    in_the_way: tuple[InTheWay, ...]  # summed per GPU and kind, also where it is below the threshold
    obstacles: tuple[Obstacle, ...]  # the same one by one, the largest first
    short: tuple[Short, ...]  # in the order of the set


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReadings:
    """A snapshot that starts are judged by, with what follows from it for all of them."""

    snapshot: Snapshot
    config: Config
    history: History
    members: Reading[Mapping[UnitId, tuple[Process, ...]]]
    orphan_ids: AbstractSet[ProcessId]

    @classmethod
    def of(cls, snapshot: Snapshot, config: Config, history: History) -> "StartReadings":
        found = orphans(snapshot, history.orphan_since, history.processes_since, config.policy)
        return cls(
            snapshot=snapshot,
            config=config,
            history=history,
            members=mapped(snapshot.processes, members_by_unit),
            orphan_ids=frozenset(orphan.process.id for orphan in found.value) if isinstance(found, Ok) else frozenset(),
        )


def judge(readings: StartReadings, unit: Unit, used_at_start: Mapping[GpuUuid, int]) -> Reading[Judgement]:
    """Judge a start; Failed where the readings are not enough for a verdict.

    `unit` is the unit as it was when its main process started, whatever the snapshot says of it by now; `used_at_start`
    is the memory in use that was read right then, which counts where it differs from the snapshot's.

    In the way on a GPU of the unit's set:
    - leftovers, orphans, processes that are gone, and memory that no visible process holds: always;
    - sessions, containers and others: where they leave less than the unit needs;
    - units that are up, programs of the system, and processes that started after the unit's main process: never.

    More than policy.resident of it on one GPU is `resident`. A GPU with no more than that in use at all is clean,
    whatever holds it: a start that needs nearly the whole GPU may fail there, but not because of what is in the way.
    A GPU is unknown where holders could not be read, where sessions, containers and others would decide and the unit's
    requirements are unknown, or where memory that nobody holds may be that of a unit which has gone down since. With an
    unknown GPU a start can only be `resident`, by another GPU.

    Where the set is unknown, or has a GPU that is split into MIG instances, a start is clean if all GPUs that may be in
    the set are clean. Nothing is then in the way, as it is unknown which of it would have been.
    """
    snapshot, config, history = readings.snapshot, readings.config, readings.history
    if not isinstance(snapshot.nvml, Ok):
        return failed(snapshot.nvml)
    if unit.settings is None:
        return Failed(Cause.UNKNOWN, "systemd has not told yet what the unit runs")
    units_read = isinstance(snapshot.units, Ok)
    gpus = snapshot.nvml.value.gpus
    unit = unit if is_up(unit) else replace(unit, active_state="activating", sub_state="start")
    units = {watched.id: watched for watched in snapshot.watched_units}
    leaving = _leaving(units, unit)
    units |= leaving
    units[unit.id] = unit
    snapshot = replace(
        snapshot,
        units=Ok(UnitsReport(systemd_version="", units=tuple(units.values()))),
        # the driver has listed them since the start, whenever they were read
        processes=mapped(snapshot.processes, lambda table: replace(table, read_at_monotonic=None)),
    )
    members = readings.members.value.get(unit.id, ()) if isinstance(readings.members, Ok) else ()
    requirements = requirements_of(unit, members, snapshot, config, history)
    start = StartContext(
        snapshot=snapshot,
        unit=unit,
        units=units.keys(),
        units_read=units_read,
        used_at_start=used_at_start,
        needed=requirements.needed,
        attribution=attribute(snapshot, units, readings.orphan_ids, history.process_runs),
        main_ticks=_main_ticks(snapshot, unit),
        leaving_bytes=_held_by(leaving, history),
        policy=config.policy,
    )
    findings = [start.examine(gpu) for gpu in _gpus_of_set(requirements.gpus, gpus)]
    certain = [finding for finding in findings if finding.gpu.doubt is None]
    obstacles = [obstacle for finding in certain for obstacle in finding.obstacles]
    resident = any(finding.counted_bytes > config.policy.resident_bytes for finding in certain)
    unknown = next((finding.unknown for finding in findings if finding.unknown is not None), None)
    if not resident and unknown is not None:
        return unknown
    return Ok(
        Judgement(
            verdict=Verdict.RESIDENT if resident else Verdict.CLEAN,
            in_the_way=_summed(obstacles),
            obstacles=tuple(sorted(obstacles, key=lambda obstacle: -obstacle.used_bytes)),
            short=tuple(
                Short(uuid=finding.gpu.uuid, gpu=finding.gpu.listed.index, short_bytes=finding.short_bytes)
                for finding in certain
                if finding.gpu.listed is not None and finding.short_bytes is not None
            ),
        )
    )


def _gpus_of_set(uuids: Reading[GpuSet], listed: Sequence[Gpu]) -> tuple[GpuOfSet, ...]:
    """Give the GPUs of the set, or all that may be in it."""
    by_uuid = {gpu.uuid: gpu for gpu in listed}
    instances: dict[GpuUuid, list[Gpu]] = {}
    for gpu in listed:
        if gpu.parent_uuid is not None:
            instances.setdefault(gpu.parent_uuid, []).append(gpu)
    if not isinstance(uuids, Ok):
        doubt = failed(uuids)
        return tuple(GpuOfSet(uuid=gpu.uuid, listed=gpu, doubt=doubt) for gpu in listed if gpu.uuid not in instances)
    found: list[GpuOfSet] = []
    for uuid in dict.fromkeys(uuids.value):
        if uuid in instances:
            doubt = Failed(Cause.UNKNOWN, f"nobody knows which MIG instance of {uuid} the unit uses")
            found += [GpuOfSet(uuid=instance.uuid, listed=instance, doubt=doubt) for instance in instances[uuid]]
        else:
            found.append(GpuOfSet(uuid=uuid, listed=by_uuid.get(uuid)))
    return tuple(found)


def _leaving(units: Mapping[UnitId, Unit], unit: Unit) -> Mapping[UnitId, Unit]:
    """Give the other units that were up at the start and are stopping or down by now, as they were then."""
    began = unit.exec_main_start_monotonic
    if began is None:
        return {}
    return {
        other.id: replace(other, active_state="deactivating", sub_state="stop", inactive_enter_monotonic=None)
        for other in units.values()
        if other.id != unit.id
        and (
            other.active_state == "deactivating"
            or (not is_up(other) and (other.inactive_enter_monotonic or 0.0) > began)
        )
    }


def _held_by(units: Mapping[UnitId, Unit], history: History) -> Mapping[GpuUuid, int]:
    """Sum up what they held at the last observation of their present activation."""
    held: dict[GpuUuid, int] = {}
    for unit in units.values():
        known = history.holdings.get(unit.id)
        if known is not None and known.invocation_id == unit.invocation_id:
            for uuid, own in known.own_bytes.items():
                held[uuid] = held.get(uuid, 0) + own
    return held


def _main_ticks(snapshot: Snapshot, unit: Unit) -> int | None:
    """Find the start of the unit's main process, which may have ended by now, in ticks since boot."""
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
