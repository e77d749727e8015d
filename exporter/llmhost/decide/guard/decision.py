"""The decision on a start by the latest readings: free, held, or unknown. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llmhost.config.schema import MIB, Config, UnitGpus
from llmhost.decide.guard.admissions import Awaited
from llmhost.decide.guard.memory_stability import UsageTrends
from llmhost.derive.requirements import Need, free_bytes, needed, requirements_of
from llmhost.model.gpu import Gpu
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.history.history import History
from llmhost.model.host import Host
from llmhost.model.ids import GpuUuid
from llmhost.model.reading import Cause, Failed, Ok, Reading
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit

# It takes a reset, a reload of the driver or a reboot.
_HOPELESS = frozenset({Cause.DRIVER_MISMATCH, Cause.LOST, Cause.RESET_REQUIRED})


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """The needs given on the command line; the unit and the engine's arguments give the rest."""

    gpus: tuple[str, ...] = ()  # indexes, UUIDs, PCI bus ids; (): those of the unit
    free_bytes: int | None = None  # on each GPU
    free_ratio: float | None = None  # of the memory of each GPU that programs can use
    max_used_bytes: int = 1000 * MIB  # where the need is not known
    shm_bytes: int | None = None
    settle_seconds: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The memory that must be free, and the GPUs."""

    gpus: Reading[tuple[GpuUuid, ...]]  # Failed: one of them is not listed
    doubt: str = ""  # why these are all GPUs: the unit's own are not known
    need: Reading[Need]  # not Ok: on each GPU less than max_used_bytes must be in use


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """A GPU on which the start does not find what it needs. Sizes are None where they are unknown or do not matter."""

    gpu: Gpu
    free_bytes: int | None = None
    needed_bytes: int | None = None
    used_bytes: int | None = None
    why: str = ""  # "" where it is memory
    awaited: tuple[Awaited, ...] = ()  # by starts that other guards have let go on

    @property
    def is_awaited(self) -> bool:
        """Enough is free, and it is others that were let start who will take it."""
        enough = self.needed_bytes is None or (self.free_bytes is not None and self.free_bytes >= self.needed_bytes)
        return bool(self.awaited) and enough


@dataclass(frozen=True, slots=True, kw_only=True)
class ShmLack:
    free_bytes: int
    needed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """FREE, HELD or UNKNOWN, by what was read last."""

    verdict: GuardVerdict
    gpus: tuple[Gpu, ...] = ()  # those of the rule, as far as they are listed
    lacks: tuple[Lack, ...] = ()
    shm: ShmLack | None = None
    moving: tuple[Gpu, ...] = ()  # enough is free there, but memory does not stand still yet
    failure: Failed | None = None  # of UNKNOWN
    is_unlisted: bool = False  # the failure is that the driver does not list a GPU that it should

    @property
    def is_hopeless(self) -> bool:
        return self.failure is not None and (self.is_unlisted or self.failure.cause in _HOPELESS)


def rule_of(unit: Unit, options: GuardOptions, snapshot: Snapshot, config: Config, history: History) -> Rule:
    """Work out the needs of a start of the unit; if its GPUs are not known, on all GPUs."""
    if options.gpus:
        named = UnitGpus(pattern="*", gpus=options.gpus)
        config = replace(config, units=replace(config.units, gpus=(named,)))
    requirements = requirements_of(unit, (), snapshot, config, history)
    listed = snapshot.gpus
    doubt = ""
    gpus: Reading[tuple[GpuUuid, ...]]
    if isinstance(requirements.gpus, Ok):
        gpus = Ok(_split(requirements.gpus.value, listed))
    elif (
        options.gpus
        or not isinstance(snapshot.nvml, Ok)
        or (isinstance(requirements.gpus, Failed) and requirements.gpus.cause is Cause.LOST)
    ):
        gpus = requirements.gpus
    else:
        gpus = Ok(_split([gpu.uuid for gpu in listed if gpu.parent_uuid is None], listed))
        doubt = requirements.gpus.detail if isinstance(requirements.gpus, Failed) else requirements.gpus.why
    missing = _missing(gpus, listed, snapshot, config.gpus.expected)
    if missing is not None:
        return Rule(gpus=missing, need=missing)
    if options.free_bytes is not None and isinstance(gpus, Ok):
        return Rule(gpus=gpus, doubt=doubt, need=Ok(dict.fromkeys(gpus.value, options.free_bytes)))
    if options.free_ratio is None and gpus == requirements.gpus:
        return Rule(gpus=gpus, doubt=doubt, need=requirements.needed)
    ratio: Reading[float] = Ok(options.free_ratio) if options.free_ratio is not None else requirements.ratio_of_all
    return Rule(gpus=gpus, doubt=doubt, need=needed(ratio, gpus, listed, snapshot.host))


def decide(
    rule: Rule,
    options: GuardOptions,
    snapshot: Snapshot,
    trends: UsageTrends,
    *,
    shm_free_bytes: int | None = None,
    awaited: Mapping[GpuUuid, tuple[Awaited, ...]] | None = None,
) -> Decision:
    """Decide by the memory that was read last. `shm_free_bytes` is None where that could not be read.

    What others that were let start have yet to take, `awaited`, counts as used.
    """
    report = snapshot.nvml
    if not isinstance(report, Ok):
        return _unknown(report if isinstance(report, Failed) else Failed(Cause.UNKNOWN, report.why))
    if report.value.driver_mismatch:
        on_disk, loaded = report.value.library_on_disk_version, report.value.driver_version
        detail = f"the library on disk is {on_disk}, the loaded driver {loaded}: no program can start"
        return _unknown(Failed(Cause.DRIVER_MISMATCH, detail))
    if not isinstance(rule.gpus, Ok):
        failed = rule.gpus if isinstance(rule.gpus, Failed) else Failed(Cause.UNKNOWN, rule.gpus.why)
        return replace(_unknown(failed), is_unlisted=True)
    by_uuid = {gpu.uuid: gpu for gpu in report.value.gpus}
    gpus = tuple(by_uuid[uuid] for uuid in rule.gpus.value)
    failure = next((lost for gpu in gpus if (lost := _failure(gpu)) is not None), None)
    if failure is not None:
        return replace(_unknown(failure), gpus=gpus)
    by_others = awaited or {}
    found = (_lack(gpu, rule, options, snapshot.host, by_others.get(gpu.uuid, ())) for gpu in gpus)
    lacks = tuple(lack for lack in found if lack is not None)
    moving = tuple(
        gpu
        for gpu in gpus
        if not gpu.unified_memory  # the host's memory never stands still
        and all(lack.gpu is not gpu for lack in lacks)
        and not _stands_still(gpu, trends, snapshot.at_monotonic, options.settle_seconds)
    )
    shm: ShmLack | None = None
    if options.shm_bytes is not None:
        if shm_free_bytes is None:
            return replace(_unknown(Failed(Cause.NO_SHM, "it cannot be read how much is free")), gpus=gpus)
        if shm_free_bytes < options.shm_bytes:
            shm = ShmLack(free_bytes=shm_free_bytes, needed_bytes=options.shm_bytes)
    held = bool(lacks or moving or shm is not None)
    verdict = GuardVerdict.HELD if held else GuardVerdict.FREE
    return Decision(verdict=verdict, gpus=gpus, lacks=lacks, shm=shm, moving=moving)


def _unknown(failure: Failed) -> Decision:
    return Decision(verdict=GuardVerdict.UNKNOWN, failure=failure)


def _split(uuids: Sequence[GpuUuid], listed: Sequence[Gpu]) -> tuple[GpuUuid, ...]:
    """Put the instances of a GPU that is split into MIG instances in its place: it has no memory of its own."""
    found: list[GpuUuid] = []
    for uuid in dict.fromkeys(uuids):
        found += [gpu.uuid for gpu in listed if gpu.parent_uuid == uuid] or [uuid]
    return tuple(found)


def _missing(
    gpus: Reading[tuple[GpuUuid, ...]], listed: Sequence[Gpu], snapshot: Snapshot, expected: int | None
) -> Failed | None:
    """Say which GPU is not there, or that the unit would have to use all GPUs and not all are there."""
    if not isinstance(gpus, Ok) or not isinstance(snapshot.nvml, Ok):
        return None
    uuids = {gpu.uuid for gpu in listed}
    absent = [uuid for uuid in gpus.value if uuid not in uuids]
    if absent:
        return Failed(Cause.LOST, f"the driver does not list {', '.join(absent)}")
    count = snapshot.nvml.value.listed
    if expected is not None and count < expected and set(gpus.value) == set(_split(_whole(listed), listed)):
        return Failed(Cause.LOST, f"the driver lists {count} GPUs, expected are {expected}")
    return None


def _whole(listed: Sequence[Gpu]) -> list[GpuUuid]:
    return [gpu.uuid for gpu in listed if gpu.parent_uuid is None]


def _failure(gpu: Gpu) -> Failed | None:
    if gpu.fault is not None:
        return Failed(gpu.fault, f"GPU {gpu.index}: {gpu.fault_detail or gpu.fault}")
    if isinstance(gpu.memory, Failed):
        return replace(gpu.memory, detail=f"GPU {gpu.index}: its memory cannot be read: {gpu.memory.detail}")
    return None


def _lack(
    gpu: Gpu, rule: Rule, options: GuardOptions, host: Reading[Host], awaited: tuple[Awaited, ...]
) -> Lack | None:
    if gpu.fabric_ready is False:
        return Lack(gpu=gpu, why="its NVLink fabric is not ready")
    used = gpu.memory.value.used_bytes if isinstance(gpu.memory, Ok) else None
    known = [each.awaited_bytes for each in awaited if each.awaited_bytes is not None]
    all_known = len(known) == len(awaited)
    if not isinstance(rule.need, Ok):
        # Of unified memory it is not known how much of it GPU programs have: there is nothing to go by.
        if all_known and (used or 0) + sum(known) < options.max_used_bytes:
            return None
        return Lack(gpu=gpu, used_bytes=used, awaited=awaited)
    free = free_bytes(gpu, host)
    need = rule.need.value[gpu.uuid]
    if not isinstance(free, Ok):
        return Lack(gpu=gpu, needed_bytes=need, why="how much memory is free is not known")
    if all_known and free.value - sum(known) >= need:
        return None
    return Lack(gpu=gpu, free_bytes=free.value, needed_bytes=need, used_bytes=used, awaited=awaited)


def _stands_still(gpu: Gpu, trends: UsageTrends, at: float, settle_seconds: float) -> bool:
    trend = trends.get(gpu.uuid)
    return trend is not None and at - trend.since >= settle_seconds
