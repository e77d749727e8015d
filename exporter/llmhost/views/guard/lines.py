"""The guard's lines: one while it waits, one at the end with the cause and the next step. Pure."""

from collections.abc import Sequence
from datetime import datetime

from llmhost.decide.guard.admissions import Awaited
from llmhost.decide.guard.decision import Lack
from llmhost.decide.guard.holder_summary import HolderSummary
from llmhost.decide.guard.state import Say, Topic, WaitStatus
from llmhost.decide.guard.target import Target
from llmhost.model.gpu import Gpu
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.ids import SYSTEM_MANAGER, UnitId
from llmhost.model.process import Process
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.wording import GIB, LEAST_SHOWN_BYTES, gib, shortened
from llmhost.views.text import clean

_FALLING_BYTES_PER_SECOND = GIB // 10
_MOST_GPUS = 3  # in one line
_MOST_HOLDERS = 2  # of one GPU
_DAY_SECONDS = 86400.0
_SHOWN = frozenset({Topic.WAITS, Topic.FREE, Topic.GIVES_UP, Topic.TERMINATED, Topic.NEED_UNKNOWN})


def log_line(say: Say, target: Target) -> str:
    subject = target.unit.name if target.unit is not None else "the start"
    match say.topic:
        case Topic.WAITS:
            return f"{subject} {_text(say)}; {say.seconds:.0f} s of {say.limit_seconds:.0f} s"
        case Topic.NO_CONFIG | Topic.NO_CONFIG_REFUSED | Topic.NO_HISTORY | Topic.FILE_CAME:
            return _about_file(say)
        case Topic.NOT_LOADED:
            return f"systemd has not loaded {say.why}, so what it runs is not known (systemctl show loads it)"
        case _:
            return f"{subject}: {_text(say)}"


def status_line(say: Say) -> str:
    """Give what `systemctl status` shows; "" for nothing new."""
    return f"guard: {_text(say)}" if say.topic in _SHOWN else ""  # it shows no warnings


def _text(say: Say) -> str:
    match say.topic:
        case Topic.WAITS if say.status is not None:
            return f"waits {_waits_for(say.status)}"
        case Topic.FREE if say.status is not None:
            return f"free after {say.seconds:.1f} s: {_is_free(say.status)}"
        case Topic.GIVES_UP:
            return _gives_up(say)
        case Topic.TERMINATED:
            what = f"it waited {_waits_for(say.status)}" if say.status is not None else "nothing was known yet"
            return f"ended by {say.why} after {say.seconds:.1f} s: {what}"
        case Topic.REMEDIES_LATE:
            why = f": {clean(say.why)}" if say.why else ""
            return f"not done with what earlier runs have left after {say.limit_seconds:.0f} s{why}"
        case Topic.REMEDIES_UNPROVEN:
            return f"{clean(say.why)}: nothing can be told to be of an ended run"
        case _:
            return f"cannot tell what is needed: {say.why}"


def _about_file(say: Say) -> str:
    match say.topic:
        case Topic.NO_CONFIG:
            return f"{clean(say.why)}: it is done without, by the defaults"
        case Topic.NO_HISTORY:
            return f"there is no history: {clean(say.why)}"
        case Topic.FILE_CAME:
            return f"the {say.why} has been read after {say.seconds:.1f} s, and counts from now on"
        case _:
            return clean(say.why)


def _gives_up(say: Say) -> str:
    known = "held" if say.verdict is GuardVerdict.HELD else "cannot tell"
    if say.status is None or not say.answered:
        what = "neither the driver nor systemd has answered yet"
    else:
        what = f"waits {_waits_for(say.status)}"
    step = f". Next step: {_next_step(say.status)}" if say.status is not None else ""
    return f"{known} after {say.seconds:.1f} s ({say.why}): {what}{step}"


def _waits_for(status: WaitStatus) -> str:
    """Name what is waited for: which GPU, how much is free and needed, who holds it, since when."""
    is_free = status.decision.verdict is GuardVerdict.FREE
    if is_free and status.unseen:
        return f"to see what ended runs have left (enough is free): {clean(status.unseen)}"
    if is_free and not status.need_unknown:
        return "for what ended runs have left to be gone (enough is free)"
    systemd = (f"for systemd to say what is needed: {clean(status.need_unknown)}",) if status.need_unknown else ()
    lacking = () if is_free else (_lacking(status),)
    return "; ".join((*systemd, *lacking, *(_stuck(process) for process in status.stuck)))


def _lacking(status: WaitStatus) -> str:
    decision = status.decision
    if decision.failure is not None:
        return f"for the driver: {_failure(decision.failure)}"
    parts = [_lack(lack, status) for lack in decision.lacks[:_MOST_GPUS]]
    if len(decision.lacks) > _MOST_GPUS:
        parts.append(f"and {len(decision.lacks) - _MOST_GPUS} more GPUs")
    if not decision.lacks and decision.moving:
        parts.append(_moving(decision.moving, status))
    if decision.shm is not None:
        free, needed = gib(decision.shm.free_bytes), gib(decision.shm.needed_bytes)
        parts.append(f"shared memory ({free} of {needed} GiB free)")
    return "for " + "; ".join(parts)


def _is_free(status: WaitStatus) -> str:
    """Name what is free."""
    gpus = status.decision.gpus
    if not gpus:
        return "the unit uses no GPU"
    settled = f", steady for {status.options.settle_seconds:g} s" if status.options.settle_seconds else ""
    if not isinstance(status.rule.need, Ok):
        return f"less than {gib(status.options.max_used_bytes)} GiB in use on {_names(gpus)}{settled}"
    needed = max(status.rule.need.value[gpu.uuid] for gpu in gpus)
    return f"{gib(needed)} GiB or more free on {_names(gpus)}{settled}"


def _next_step(status: WaitStatus) -> str:
    """Name what a person can do about it."""
    if status.stuck:
        return "reset the GPU (nvidia-smi --gpu-reset), or reboot"
    decision = status.decision
    if decision.failure is not None:
        return _fix(decision.failure)
    if decision.lacks:
        lack = decision.lacks[0]
        step = _next_step_for(lack, status)
        return (
            f"{step}; or say with --gpus which GPUs the unit uses: {status.rule.doubt}" if status.rule.doubt else step
        )
    if decision.shm is not None:
        return "remove what nobody uses from /dev/shm, or make it larger"
    return "something else still allocates or frees memory on these GPUs; see llmhost_gpu_memory_used_bytes"


def _lack(lack: Lack, status: WaitStatus) -> str:
    name = f"GPU {lack.gpu.index}"
    if lack.why:
        return f"{name} ({lack.why})"
    if lack.needed_bytes is not None and lack.free_bytes is not None:
        what = f"{gib(lack.free_bytes)} of {gib(lack.needed_bytes)} GiB free"
    else:
        what = f"{gib(lack.used_bytes or 0)} GiB in use, less than {gib(status.options.max_used_bytes)} GiB wanted"
    awaited = "".join(f", {_awaited(each)}" for each in lack.awaited[:_MOST_HOLDERS])
    holders = _held(lack.gpu, status)
    return f"{name} ({what}{awaited}): {holders}" if holders else f"{name} ({what}{awaited})"


def _awaited(awaited: Awaited) -> str:
    """Name a start that has yet to take its memory."""
    size = f"{gib(awaited.awaited_bytes)} GiB" if awaited.awaited_bytes is not None else "memory"
    return f"{size} awaited by {awaited.name}, let start {awaited.seconds:.0f} s ago"


def _held(gpu: Gpu, status: WaitStatus) -> str:
    """Name the holders of the memory, the largest first."""
    held = status.holders.get(gpu.uuid)
    parts: list[str] = []
    if held is not None:
        large = [
            holder for holder in held.holders if holder.used_bytes is None or holder.used_bytes >= LEAST_SHOWN_BYTES
        ]
        parts = [_holder(holder, status) for holder in large[:_MOST_HOLDERS]]
        if len(large) > _MOST_HOLDERS:
            parts.append(f"{len(large) - _MOST_HOLDERS} more processes")
        if held.unattributed_bytes is not None and held.unattributed_bytes >= LEAST_SHOWN_BYTES:
            parts.append(f"{gib(held.unattributed_bytes)} GiB with no visible owner")
    trend = status.trends.get(gpu.uuid)
    if trend is not None and trend.falling_bytes_per_second >= _FALLING_BYTES_PER_SECOND:
        parts.append(f"falling {gib(int(trend.falling_bytes_per_second))} GiB/s")
    return ", ".join(parts)


def _holder(holder: HolderSummary, status: WaitStatus) -> str:
    size = f"{gib(holder.used_bytes)} GiB" if holder.used_bytes is not None else "memory"
    who = f"{_command(holder.command)} pid {holder.pid}" if holder.command else f"pid {holder.pid}"
    of_unit = f" of {_unit(holder.unit)}" if holder.unit is not None else ""
    since = f", since {_clock(holder.since_at, status)}" if holder.since_at is not None else ""
    return f"{size} {who}{of_unit} ({holder.kind}{since})"


def _moving(gpus: Sequence[Gpu], status: WaitStatus) -> str:
    rates = [status.trends[gpu.uuid].falling_bytes_per_second for gpu in gpus if gpu.uuid in status.trends]
    rate = max(rates, key=abs, default=0.0)
    how = ""
    if abs(rate) >= _FALLING_BYTES_PER_SECOND:
        how = f", {'falling' if rate > 0 else 'rising'} {gib(int(abs(rate)))} GiB/s"
    return f"memory to stand still on {_names(gpus)} (enough is free{how})"


def _next_step_for(lack: Lack, status: WaitStatus) -> str:
    if lack.is_awaited:
        return f"start it again when {lack.awaited[0].name} has loaded, or give one of the two other GPUs"
    if lack.why:
        return "see that nvidia-fabricmanager.service runs, and what its journal says"
    held = status.holders.get(lack.gpu.uuid)
    if held is None:
        return "see who has this memory, which could not be read until now: llmhost status, or nvidia-smi"
    unattributed = held.unattributed_bytes
    largest = held.holders[0] if held.holders else None
    if largest is None or (unattributed is not None and unattributed > (largest.used_bytes or 0)):
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


def _failure(failure: Failed) -> str:
    if failure.stuck is not None:
        about = f" of GPU {failure.stuck.subject}" if failure.stuck.subject else ""
        return f"it hangs in {failure.stuck.call}{about} for {failure.stuck.seconds:.0f} s"
    return f"{failure.cause.words} ({clean(failure.detail)})" if failure.detail else failure.cause.words


def _fix(failure: Failed) -> str:
    match failure.cause:
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
    shown = clean(shortened(command))
    return shown.translate({ord("("): "[", ord(")"): "]", ord(";"): ",", ord(","): "."})


def _clock(at: float, status: WaitStatus) -> str:
    time = datetime.fromtimestamp(at, status.zone)
    return f"{time:%H:%M:%S}" if status.at - at < _DAY_SECONDS else f"{time:%Y-%m-%d}"


def _stuck(process: Process) -> str:
    return f"process {clean(process.name)} of an ended run does not die, and only a GPU reset or a reboot ends it"
