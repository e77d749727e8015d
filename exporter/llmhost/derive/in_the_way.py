"""Memory in the way of a start, GPU by GPU, from the readings made for the start."""

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
class GpuOfSet:
    """A GPU that the unit uses, or, with a doubt, may use."""

    uuid: GpuUuid
    listed: Gpu | None  # None where the driver does not list it
    doubt: Failed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFinding:
    """The outcome for one GPU. A start is clean where nothing is unknown and no more counts than policy.resident."""

    gpu: GpuOfSet
    counted_bytes: int  # in the way for certain, and of a kind that counts
    obstacles: tuple[Obstacle, ...] = ()
    short_bytes: int | None = None  # how much less was free than the unit needs, whoever held it; None: not known
    unknown: Failed | None = None  # the reason why it may be more than is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class StartContext:
    """The readings for one start, and what the unit needs."""

    snapshot: Snapshot  # with the unit as it was
    unit: Unit
    units: AbstractSet[UnitId]  # watched ones, as far as they were read
    units_read: bool
    used_at_start: Mapping[GpuUuid, int]
    needed: Reading[Need]
    attribution: Reading[Mapping[GpuUuid, Reading[GpuAttribution]]]
    main_ticks: int | None  # start of the main process, in ticks since boot
    leaving_bytes: Mapping[GpuUuid, int]  # at the last observation, of units that were up then and have gone down since
    policy: Policy

    def examine(self, gpu: GpuOfSet) -> GpuFinding:
        if gpu.listed is None:
            return GpuFinding(gpu=gpu, counted_bytes=0, unknown=Failed(Cause.LOST, f"{gpu.uuid} is not listed"))
        return self._examine_listed(gpu, gpu.listed)

    def _examine_listed(self, gpu: GpuOfSet, listed: Gpu) -> GpuFinding:
        used = None if listed.unified_memory else self.used_at_start.get(listed.uuid)
        attribution = self.attribution if not isinstance(self.attribution, Ok) else self.attribution.value[listed.uuid]
        now = attribution.value.holders if isinstance(attribution, Ok) else ()
        holders = [holder for holder in now if not self._came_later(holder)]
        obstacles = [
            Obstacle(uuid=listed.uuid, gpu=listed.index, used_bytes=holder.used_bytes, holder=holder)
            for holder in holders
            if holder.used_bytes and holder.kind in _ALWAYS | _WHERE_SHORT and not self._is_doubtful(holder)
        ]
        unattributed = _unattributed(used, holders) if isinstance(attribution, Ok) else None
        if unattributed:
            obstacles.append(Obstacle(uuid=listed.uuid, gpu=listed.index, used_bytes=unattributed))
        held_later = sum(holder.used_bytes or 0 for holder in now if self._came_later(holder))
        short_bytes = self._short_bytes(listed, used, held_later)
        if used is not None and used <= self.policy.resident_bytes:
            return GpuFinding(gpu=gpu, counted_bytes=0, obstacles=tuple(obstacles), short_bytes=short_bytes)
        counting = {*_ALWAYS, UNATTRIBUTED} | (_WHERE_SHORT if short_bytes else set())
        counted = sum(obstacle.used_bytes for obstacle in obstacles if obstacle.kind in counting)
        doubtful = min(unattributed or 0, self.leaving_bytes.get(listed.uuid, 0))
        unknown: Failed | None
        if not isinstance(attribution, Ok):
            unknown = failed(attribution)
        elif used is None and not listed.unified_memory:
            unknown = (
                Failed(Cause.UNKNOWN, "its memory was not read as the unit started") if listed.up else _fault(listed)
            )
        elif counted - doubtful <= self.policy.resident_bytes < counted:
            counted -= doubtful
            unknown = Failed(Cause.UNKNOWN, "a unit that has gone down since may have held what nobody holds")
        else:
            unknown = self._unknown_holders(listed, holders, counted, counting) or self._unknown_need(
                obstacles, counted
            )
        if unknown is not None:
            unknown = replace(unknown, detail=f"GPU {listed.index}: {unknown.detail or unknown.cause}")
        elif counted > self.policy.resident_bytes:
            unknown = gpu.doubt
        return GpuFinding(
            gpu=gpu, counted_bytes=counted, obstacles=tuple(obstacles), short_bytes=short_bytes, unknown=unknown
        )

    def _came_later(self, holder: Holder) -> bool:
        """Say whether it held nothing yet at the start, as it started with the unit's main process or after it.

        Where that time is unknown, this is so for all processes of the unit's present activation.
        """
        if holder.process is None or self.main_ticks is None:
            return holder.kind is HolderKind.CURRENT and holder.unit == self.unit.id
        return holder.process.start_ticks >= self.main_ticks

    def _is_doubtful(self, holder: Holder) -> bool:
        """Say whether it may be of a watched unit's present activation: the clocks differ, or systemd was not read."""
        if holder.kind is not HolderKind.OTHER or holder.unit is None:
            return False
        return not self.units_read or holder.unit in self.units

    def _short_bytes(self, gpu: Gpu, used: int | None, held_later: int) -> int | None:
        """Work out how much less was free than the unit needs. Of unified memory only what is free by now is known."""
        need = self.needed.value.get(gpu.uuid) if isinstance(self.needed, Ok) else None
        if need is None:
            return None
        if gpu.unified_memory:
            host = self.snapshot.host
            return max(0, need - host.value.memory_available_bytes - held_later) if isinstance(host, Ok) else None
        if used is None or not isinstance(gpu.memory, Ok):
            return None
        return max(0, need - (gpu.memory.value.total_bytes - (gpu.memory.value.reserved_bytes or 0) - used))

    def _unknown_holders(
        self, gpu: Gpu, holders: Sequence[Holder], counted: int, counting: AbstractSet[str]
    ) -> Failed | None:
        """Find a holder that may be more in the way than is counted; unified memory has no sum to miss it in."""
        for holder in holders:
            if holder.used_bytes is None and (
                not gpu.unified_memory or holder.kind in counting or self._is_doubtful(holder)
            ):
                return Failed(Cause.NOT_SUPPORTED, f"the driver does not say how much process {holder.pid} holds")
        doubtful = [holder for holder in holders if self._is_doubtful(holder)]
        if counted + sum(holder.used_bytes or 0 for holder in doubtful) > max(counted, self.policy.resident_bytes):
            if not self.units_read:
                return Failed(Cause.UNKNOWN, "systemd does not say which units are up")
            pids = ", ".join(str(holder.pid) for holder in doubtful)
            return Failed(Cause.UNKNOWN, f"the clocks do not tell of which activation of its unit process {pids} is")
        return None

    def _unknown_need(self, obstacles: Sequence[Obstacle], counted: int) -> Failed | None:
        """Say that it is unknown whether sessions, containers and others leave too little, where that decides."""
        if isinstance(self.needed, Ok):
            return None
        beside = sum(obstacle.used_bytes for obstacle in obstacles if obstacle.kind in _WHERE_SHORT)
        if counted + beside <= max(counted, self.policy.resident_bytes):
            return None
        why = failed(self.needed)
        return Failed(why.cause, f"whether others leave the unit what it needs is not known: {why.detail or why.cause}")


def _unattributed(used: int | None, holders: Sequence[Holder]) -> int | None:
    """Work out the memory that nobody held at the start; None where it is unknown, and for unified memory."""
    held = [holder.used_bytes for holder in holders]
    known = [size for size in held if size is not None]
    return None if used is None or len(known) < len(held) else max(0, used - sum(known))


def _fault(gpu: Gpu) -> Failed:
    return Failed(gpu.fault or Cause.UNKNOWN, gpu.fault_detail)


def failed(reading: Failed | NotApplicable) -> Failed:
    return reading if isinstance(reading, Failed) else Failed(Cause.UNKNOWN, reading.why)
