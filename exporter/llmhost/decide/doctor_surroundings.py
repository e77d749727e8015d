"""Checks of a unit against the host around it: GPUs, fabric, shared memory, users, and the guard. Pure."""

from collections.abc import Iterator

from llmhost.decide.finding import Case, Finding, Severity, guard_drop_in
from llmhost.derive.command import expand_variables
from llmhost.derive.ledger.record import Verdict
from llmhost.model.engine_arguments import parse_engine_arguments
from llmhost.model.engine_command import is_engine_command
from llmhost.model.gpu import Gpu
from llmhost.model.reading import Ok

_MIB = 1 << 20
_FABRIC_MANAGER = "nvidia-fabricmanager.service"
# vLLM 0.32, measured with two workers: a ring for requests, one per worker for answers, one of the tensor parallel
# group. Pages are allocated as they are first used, so these are the most that it comes to.
_REQUEST_RING_BYTES = 160 * _MIB
_ANSWER_RING_BYTES = 240 * _MIB
_GROUP_RING_BYTES = 24 * _MIB
_FIRST_PERSON = 1000  # login.defs(5): UID_MIN; below are system users
_NOBODY = 65534
_DYNAMIC_USERS = range(61184, 65520)  # systemd.exec(5), DynamicUser=
_GUARDED_ENGINES = frozenset({"vllm", "sglang"})  # whose start fails for want of memory that comes back later


def plain_numbers(case: Case) -> Iterator[Finding]:
    """CUDA counts the fastest GPU first, the driver and everybody else by PCI address."""
    environment = dict(case.settings.environment)
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    names = sorted({gpu.name for gpu in _gpus(case)})
    if len(names) <= 1 or environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return
    if not any(entry.strip().isdigit() for entry in visible.split(",")):
        return
    yield case.finding(
        "plain-numbers",
        Severity.WARNING,
        f"CUDA_VISIBLE_DEVICES={visible} may be other GPUs than nvidia-smi shows by these numbers",
        f"CUDA counts the fastest first, and the GPUs differ: {', '.join(names)}",
        "[Service]",
        "Environment=CUDA_DEVICE_ORDER=PCI_BUS_ID",
        remedy="or name the GPUs by their UUIDs",
    )


def fabric_order(case: Case) -> Iterator[Finding]:
    """On a host with NVSwitch no program can start before the fabric manager has registered the GPUs."""
    fabric = [gpu for gpu in _gpus(case) if gpu.fabric_ready is not None]
    if not case.facts.engine or not fabric or _FABRIC_MANAGER in case.settings.after:
        return
    waits = [gpu.index for gpu in fabric if gpu.fabric_ready is False]
    now = f"; GPU {', '.join(waits)} is not registered now" if waits else ""
    yield case.finding(
        "fabric-order",
        Severity.ERROR if waits else Severity.WARNING,
        "may start before the fabric manager is ready",
        f"this host has an NVLink fabric, and the unit is not ordered after {_FABRIC_MANAGER}{now}",
        "[Unit]",
        f"Wants={_FABRIC_MANAGER}",
        f"After={_FABRIC_MANAGER}",
    )


def small_shm(case: Case) -> Iterator[Finding]:
    """Shared memory that is too small for what vLLM may use of it, by its tensor parallel size."""
    shared = case.look.snapshot.shm
    size = shared.value.size_bytes if isinstance(shared, Ok) else None
    workers = _tensor_parallel(case)
    if size is None or workers is None:
        return
    most = _REQUEST_RING_BYTES + workers * _ANSWER_RING_BYTES + (_GROUP_RING_BYTES if workers > 1 else 0)
    if size >= most:
        return
    enough = -(-2 * most // (1 << 30))
    yield case.finding(
        "small-shm",
        Severity.WARNING,
        f"/dev/shm of {size // _MIB} MiB may be too small for it",  # noqa: S108 - a text
        f"vLLM's rings for {workers} {'worker' if workers == 1 else 'workers'} may come to {most // _MIB} MiB",
        remedy=f"mount -o remount,size={enough}G /dev/shm; so that it stays, in /etc/fstab: "
        f"tmpfs /dev/shm tmpfs size={enough}G 0 0",
    )


def removed_ipc(case: Case) -> Iterator[Finding]:
    """Tell of users whose shared memory logind removes with their last session (logind.conf(5), RemoveIPC=)."""
    table = case.look.snapshot.processes
    main = table.value.by_pid.get(case.facts.unit.main_pid) if isinstance(table, Ok) else None
    if not case.facts.engine or main is None or main.uid is None or main.placement.unit != case.facts.unit.id:
        return
    if main.uid < _FIRST_PERSON or main.uid == _NOBODY or main.uid in _DYNAMIC_USERS:
        return
    yield case.finding(
        "remove-ipc",
        Severity.NOTE,
        f"runs as user {main.uid}, who is no system user: logind may remove its shared memory",
        "unless logind.conf says RemoveIPC=no, that happens when the last session of that user ends",
        remedy="RemoveIPC=no in /etc/systemd/logind.conf, a system user for the service, or loginctl enable-linger",
    )


def guard(case: Case) -> Iterator[Finding]:
    """Nothing waits for memory before the start."""
    if case.facts.guarded or case.facts.engine not in _GUARDED_ENGINES:
        return
    record = case.record
    starts = record.starts_total if record is not None else {}
    resident = sum(number for (_, verdict), number in starts.items() if verdict is Verdict.RESIDENT)
    total = sum(starts.values())
    if resident:
        why = f"{resident} of its {total} starts found memory in the way"
    else:
        why = "a restart right after a run may find its memory still in the way"
    yield case.finding(
        "guard",
        Severity.WARNING if resident else Severity.NOTE,
        "starts without waiting for the memory that it needs",
        why,
        remedy=guard_drop_in(case.name),
    )


def _gpus(case: Case) -> tuple[Gpu, ...]:
    return case.look.snapshot.nvml.value.gpus if isinstance(case.look.snapshot.nvml, Ok) else ()


def _tensor_parallel(case: Case) -> int | None:
    """Give what ExecStart= says; None where it runs no vLLM, or does not tell."""
    environment = dict(case.settings.environment)
    for command in case.settings.exec_start:
        argv = expand_variables(command, environment)
        if is_engine_command(argv) == "vllm":
            return parse_engine_arguments("vllm", argv).tensor_parallel
    return None
