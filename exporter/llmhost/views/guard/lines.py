"""What the guard says: one line while it waits, one at the end with the cause and the next step. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo

from llmhost.decide.guard.decision import Decision, Lack, Rule, Wanted
from llmhost.decide.guard.memory_stability import Traces
from llmhost.decide.holder_summary import SeenGpu, SeenHolder
from llmhost.model.gpu import Gpu
from llmhost.model.ids import SYSTEM_MANAGER, GpuUuid, UnitId
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.views.text import clean

_GIB = 1 << 30
_LEAST_BYTES = _GIB // 20  # less is 0.0 GiB
_FALLING_BYTES_PER_SECOND = _GIB // 10
_MOST_GPUS = 3  # in one line
_MOST_HOLDERS = 2  # of one GPU
_LONGEST_COMMAND = 40  # characters; anybody can choose their own title
_DAY_SECONDS = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What there is to tell of."""

    decision: Decision
    rule: Rule
    wanted: Wanted
    holders: Mapping[GpuUuid, SeenGpu] = field(default_factory=dict)  # as of the last lists
    traces: Traces = field(default_factory=dict)
    at: float = 0.0  # seconds since the epoch
    zone: tzinfo | None = None


def waits_for(scene: Scene) -> str:
    """Tell what is waited for: which GPU, how much is free and needed, who has it, since when."""
    decision = scene.decision
    if decision.trouble is not None:
        return f"for the driver: {_trouble(decision.trouble)}"
    parts = [_lack(lack, scene) for lack in decision.lacks[:_MOST_GPUS]]
    if len(decision.lacks) > _MOST_GPUS:
        parts.append(f"and {len(decision.lacks) - _MOST_GPUS} more GPUs")
    if not decision.lacks and decision.moving:
        parts.append(_moving(decision.moving, scene))
    if decision.shm is not None:
        free, needed = _gib(decision.shm.free_bytes), _gib(decision.shm.needed_bytes)
        parts.append(f"shared memory ({free} of {needed} GiB free)")
    return "for " + "; ".join(parts)


def is_free(scene: Scene) -> str:
    """Tell what is free."""
    gpus = scene.decision.gpus
    if not gpus:
        return "the unit uses no GPU"
    steady = f", steady for {scene.wanted.settle_seconds:g} s" if scene.wanted.settle_seconds else ""
    if not isinstance(scene.rule.need, Ok):
        return f"less than {_gib(scene.wanted.max_used_bytes)} GiB in use on {_names(gpus)}{steady}"
    needed = max(scene.rule.need.value[gpu.uuid] for gpu in gpus)
    return f"{_gib(needed)} GiB or more free on {_names(gpus)}{steady}"


def next_step(scene: Scene) -> str:
    """Tell what a person can do about it."""
    decision = scene.decision
    if decision.trouble is not None:
        return _mend(decision.trouble)
    if decision.lacks:
        lack = decision.lacks[0]
        step = _next_step_for(lack, scene)
        return f"{step}; or say with --gpus which GPUs the unit uses: {scene.rule.doubt}" if scene.rule.doubt else step
    if decision.shm is not None:
        return "remove what nobody uses from /dev/shm, or make it larger"
    return "something else still allocates or frees memory on these GPUs; see llmhost_gpu_memory_used_bytes"


def whose(scene: Scene) -> tuple[object, ...]:
    """Give what makes a line worth another one before its time: other GPUs, other holders; no figures."""
    decision = scene.decision
    seen = [scene.holders.get(lack.gpu.uuid) for lack in decision.lacks]
    return (
        decision.trouble.cause if decision.trouble is not None else None,
        tuple(lack.gpu.uuid for lack in decision.lacks),
        tuple(frozenset(holder.pid for holder in gpu.holders) if gpu is not None else None for gpu in seen),
        decision.shm is not None,
    )


def _lack(lack: Lack, scene: Scene) -> str:
    name = f"GPU {lack.gpu.index}"
    if lack.why:
        return f"{name} ({lack.why})"
    if lack.needed_bytes is not None and lack.free_bytes is not None:
        what = f"{_gib(lack.free_bytes)} of {_gib(lack.needed_bytes)} GiB free"
    else:
        what = f"{_gib(lack.used_bytes or 0)} GiB in use, less than {_gib(scene.wanted.max_used_bytes)} GiB wanted"
    told = _held(lack.gpu, scene)
    return f"{name} ({what}): {told}" if told else f"{name} ({what})"


def _held(gpu: Gpu, scene: Scene) -> str:
    """Tell who has the memory, the largest first."""
    seen = scene.holders.get(gpu.uuid)
    parts: list[str] = []
    if seen is not None:
        large = [holder for holder in seen.holders if holder.used_bytes is None or holder.used_bytes >= _LEAST_BYTES]
        parts = [_holder(one, scene) for one in large[:_MOST_HOLDERS]]
        if len(large) > _MOST_HOLDERS:
            parts.append(f"{len(large) - _MOST_HOLDERS} more processes")
        if seen.nobodys_bytes is not None and seen.nobodys_bytes >= _LEAST_BYTES:
            parts.append(f"{_gib(seen.nobodys_bytes)} GiB with no visible owner")
    trace = scene.traces.get(gpu.uuid)
    if trace is not None and trace.falling_bytes_per_second >= _FALLING_BYTES_PER_SECOND:
        parts.append(f"falling {_gib(int(trace.falling_bytes_per_second))} GiB/s")
    return ", ".join(parts)


def _holder(holder: SeenHolder, scene: Scene) -> str:
    size = f"{_gib(holder.used_bytes)} GiB" if holder.used_bytes is not None else "memory"
    who = f"{_command(holder.command)} pid {holder.pid}" if holder.command else f"pid {holder.pid}"
    whose_ = f" of {_unit(holder.unit)}" if holder.unit is not None else ""
    since = f", since {_clock(holder.since_at, scene)}" if holder.since_at is not None else ""
    return f"{size} {who}{whose_} ({holder.kind}{since})"


def _moving(gpus: Sequence[Gpu], scene: Scene) -> str:
    rates = [scene.traces[gpu.uuid].falling_bytes_per_second for gpu in gpus if gpu.uuid in scene.traces]
    rate = max(rates, key=abs, default=0.0)
    how = ""
    if abs(rate) >= _FALLING_BYTES_PER_SECOND:
        how = f", {'falling' if rate > 0 else 'rising'} {_gib(int(abs(rate)))} GiB/s"
    return f"memory to stand still on {_names(gpus)} (enough is free{how})"


def _next_step_for(lack: Lack, scene: Scene) -> str:
    if lack.why:
        return "see that nvidia-fabricmanager.service runs, and what its journal says"
    seen = scene.holders.get(lack.gpu.uuid)
    nobodys = seen.nobodys_bytes if seen is not None else None
    largest = seen.holders[0] if seen is not None and seen.holders else None
    if largest is None or (nobodys is not None and nobodys > (largest.used_bytes or 0)):
        return (
            "no visible process has this memory: see who has /dev/nvidia* open (fuser -v /dev/nvidia*), also in "
            "containers; if nobody, only a reset of the GPU or a reboot gives it back"
        )
    if largest.kind == "gone":
        return (
            f"process {largest.pid} has ended or is in a PID namespace that cannot be seen; if its memory stays, only "
            "a reset of the GPU or a reboot gives it back"
        )
    if largest.kind == "current" and largest.unit is not None:
        return f"stop {_unit(largest.unit)}, or give this unit other GPUs"
    if largest.kind in {"leftover", "orphan"}:
        return f"end process {largest.pid}, which its service has left behind: kill {largest.pid}"
    return f"end process {largest.pid}, or give this unit other GPUs"


def _trouble(trouble: Failed) -> str:
    if trouble.stuck is not None:
        about = f" of GPU {trouble.stuck.subject}" if trouble.stuck.subject else ""
        return f"it hangs in {trouble.stuck.call}{about} for {trouble.stuck.seconds:.0f} s"
    cause = str(trouble.cause).replace("_", " ")
    return f"{cause} ({clean(trouble.detail)})" if trouble.detail else cause


def _mend(trouble: Failed) -> str:
    match trouble.cause:
        case Cause.DRIVER_MISMATCH:
            return "reboot, or reload the driver's modules"
        case Cause.NO_DRIVER | Cause.NO_LIBRARY:
            return "install or load the NVIDIA driver (modprobe nvidia), and see dmesg"
        case Cause.NO_PERMISSION:
            return "run the guard as root (ExecStartPre=+...)"
        case Cause.TIMEOUT:
            return "see dmesg for Xid errors of the GPU; it may take a reset or a reboot"
        case Cause.NO_SHM:
            return "mount a tmpfs at /dev/shm"
        case _:
            return "see nvidia-smi and dmesg; it may take a reset of the GPU or a reboot"


def _names(gpus: Sequence[Gpu]) -> str:
    indexes = ", ".join(gpu.index for gpu in gpus)
    return f"GPU {indexes}" if len(gpus) == 1 else f"GPUs {indexes}"


def _unit(unit: UnitId) -> str:
    return unit.name if unit.manager == SYSTEM_MANAGER else f"{unit.name} of {unit.manager}"


def _command(command: str) -> str:
    """Keep what a process calls itself short, and within its place: it must not pass for another holder."""
    shown = clean(command if len(command) <= _LONGEST_COMMAND else f"{command[:_LONGEST_COMMAND]}...")
    return shown.translate({ord("("): "[", ord(")"): "]", ord(";"): ",", ord(","): "."})


def _clock(at: float, scene: Scene) -> str:
    told = datetime.fromtimestamp(at, scene.zone)
    return f"{told:%H:%M:%S}" if scene.at - at < _DAY_SECONDS else f"{told:%Y-%m-%d}"


def _gib(count: int) -> str:
    return f"{count / _GIB:.1f}"
