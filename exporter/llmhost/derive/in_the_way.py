"""What was in the way of a start on each GPU, from what was read for it."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from llmhost.config.schema import Policy
from llmhost.derive.attribution import GpuAttribution, Holder, HolderKind
from llmhost.derive.requirements import Need
from llmhost.model.gpu import Gpu
from llmhost.model.history.unit_history import UNATTRIBUTED
from llmhost.model.ids import GpuUuid, UnitId
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit

_ALWAYS = frozenset({HolderKind.LEFTOVER, HolderKind.ORPHAN, HolderKind.GONE})
_WHERE_SHORT = frozenset({HolderKind.CONTAINER, HolderKind.SESSION, HolderKind.OTHER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Memory in the way on one GPU: a holder's, or what no visible process holds."""

    uuid: GpuUuid
    gpu: str  # NVML's index
    used_bytes: int
    holder: Holder | None = None  # None: memory that no visible process holds

    @property
    def kind(self) -> str:
        return UNATTRIBUTED if self.holder is None else self.holder.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A GPU that the unit uses, or, with a doubt, may use."""

    uuid: GpuUuid
    gpu: Gpu | None  # None where the driver does not list it
    doubt: Failed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    target: Target
    counted_bytes: int  # what is known to be in the way and held against policy.resident
    obstacles: tuple[Obstacle, ...] = ()
    untold: Failed | None = None  # why it is not known to be clean


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What was read for a start."""

    snapshot: Snapshot  # with the unit as it was
    unit: Unit
    units: AbstractSet[UnitId]  # watched ones, as far as they were read
    units_read: bool
    used_at_start: Mapping[GpuUuid, int]
    needed: Reading[Need]
    attribution: Reading[Mapping[GpuUuid, Reading[GpuAttribution]]]
    main_ticks: int | None  # when the main process started, in ticks since boot
    leaving_bytes: Mapping[GpuUuid, int]  # at the last look, of units that were up then and have been ending since
    policy: Policy

    def look_at(self, target: Target) -> Found:
        gpu = target.gpu
        if gpu is None:
            return Found(target=target, counted_bytes=0, untold=Failed(Cause.LOST, f"{target.uuid} is not listed"))
        used = None if gpu.unified_memory else self.used_at_start.get(gpu.uuid)
        attribution = self.attribution if not isinstance(self.attribution, Ok) else self.attribution.value[gpu.uuid]
        listed = attribution.value.holders if isinstance(attribution, Ok) else ()
        holders = [one for one in listed if not self._came_later(one)]
        in_the_way = [
            holder for holder in holders if holder.kind in _ALWAYS | _WHERE_SHORT and not self._is_doubtful(holder)
        ]
        obstacles = [
            Obstacle(uuid=gpu.uuid, gpu=gpu.index, used_bytes=holder.used_bytes, holder=holder)
            for holder in in_the_way
            if holder.used_bytes
        ]
        nobodys = _unattributed(used, holders) if isinstance(attribution, Ok) else None
        if nobodys:
            obstacles.append(Obstacle(uuid=gpu.uuid, gpu=gpu.index, used_bytes=nobodys))
        if used is not None and used <= self.policy.resident_bytes:
            return Found(target=target, counted_bytes=0, obstacles=tuple(obstacles))
        held_later = sum(one.used_bytes or 0 for one in listed if self._came_later(one))
        counting = {*_ALWAYS, UNATTRIBUTED} | (_WHERE_SHORT if self._is_short(gpu, used, held_later) else set())
        counted = sum(obstacle.used_bytes for obstacle in obstacles if obstacle.kind in counting)
        doubtful = min(nobodys or 0, self.leaving_bytes.get(gpu.uuid, 0))
        untold: Failed | None
        if not isinstance(attribution, Ok):
            untold = failed(attribution)
        elif used is None and not gpu.unified_memory:
            untold = Failed(Cause.UNKNOWN, "its memory was not read as the unit started") if gpu.up else _fault(gpu)
        elif counted - doubtful <= self.policy.resident_bytes < counted:
            counted -= doubtful
            untold = Failed(Cause.UNKNOWN, "a unit that has gone down since may have held what nobody holds")
        else:
            untold = self._untold_holders(gpu, holders, counted, counting) or self._untold_need(obstacles, counted)
        if untold is not None:
            untold = replace(untold, detail=f"GPU {gpu.index}: {untold.detail or untold.cause}")
        elif counted > self.policy.resident_bytes:
            untold = target.doubt
        return Found(target=target, counted_bytes=counted, obstacles=tuple(obstacles), untold=untold)

    def _came_later(self, holder: Holder) -> bool:
        """Whether it held nothing yet: it started with the unit's main process or after it.

        Where it is not known when that was, that goes for all of the unit's own.
        """
        if holder.process is None or self.main_ticks is None:
            return holder.kind is HolderKind.CURRENT and holder.unit == self.unit.id
        return holder.process.start_ticks >= self.main_ticks

    def _is_doubtful(self, holder: Holder) -> bool:
        """Whether it may be of a watched unit's present activation: the clocks do not tell, or systemd was not read."""
        if holder.kind is not HolderKind.OTHER or holder.unit is None:
            return False
        return not self.units_read or holder.unit in self.units

    def _is_short(self, gpu: Gpu, used: int | None, held_later: int) -> bool:
        """Whether less was free than the unit needs. Of unified memory only what is free by now is known."""
        need = self.needed.value.get(gpu.uuid) if isinstance(self.needed, Ok) else None
        if need is None:
            return False
        if gpu.unified_memory:
            host = self.snapshot.host
            return isinstance(host, Ok) and host.value.memory_available_bytes + held_later < need
        if used is None or not isinstance(gpu.memory, Ok):
            return False
        return gpu.memory.value.total_bytes - (gpu.memory.value.reserved_bytes or 0) - used < need

    def _untold_holders(
        self, gpu: Gpu, holders: Sequence[Holder], counted: int, counting: AbstractSet[str]
    ) -> Failed | None:
        """Say which holder may be more in the way than is counted; unified memory has no sum that it is missing in."""
        for holder in holders:
            if holder.used_bytes is None and (
                not gpu.unified_memory or holder.kind in counting or self._is_doubtful(holder)
            ):
                return Failed(Cause.NOT_SUPPORTED, f"the driver does not say how much process {holder.pid} holds")
        doubtful = [holder for holder in holders if self._is_doubtful(holder)]
        if counted + sum(one.used_bytes or 0 for one in doubtful) > max(counted, self.policy.resident_bytes):
            if not self.units_read:
                return Failed(Cause.UNKNOWN, "systemd does not say which units are up")
            pids = ", ".join(str(one.pid) for one in doubtful)
            return Failed(Cause.UNKNOWN, f"the clocks do not tell of which activation of its unit process {pids} is")
        return None

    def _untold_need(self, obstacles: Sequence[Obstacle], counted: int) -> Failed | None:
        """Say that it is not known whether sessions, containers and others leave too little, where that decides."""
        if isinstance(self.needed, Ok):
            return None
        beside = sum(obstacle.used_bytes for obstacle in obstacles if obstacle.kind in _WHERE_SHORT)
        if counted + beside <= max(counted, self.policy.resident_bytes):
            return None
        why = failed(self.needed)
        return Failed(why.cause, f"whether others leave the unit what it needs is not known: {why.detail or why.cause}")


def _unattributed(used: int | None, holders: Sequence[Holder]) -> int | None:
    """Work out what nobody held at the start; None where that is not known, and where there is no such sum."""
    held = [holder.used_bytes for holder in holders]
    known = [one for one in held if one is not None]
    return None if used is None or len(known) < len(held) else max(0, used - sum(known))


def _fault(gpu: Gpu) -> Failed:
    return Failed(gpu.fault or Cause.UNKNOWN, gpu.fault_detail)


def failed(reading: Failed | NotApplicable) -> Failed:
    return reading if isinstance(reading, Failed) else Failed(Cause.UNKNOWN, reading.why)
