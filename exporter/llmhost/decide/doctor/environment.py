"""Checks of a unit against the host around it: GPUs, their devices, shared memory. Pure."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from llmhost.decide.doctor.finding import Case, Finding, Severity
from llmhost.model.engine_arguments import parse_engine_arguments
from llmhost.model.reading import Ok
from llmhost.model.wording import GIB

_MIB = 1 << 20
# vLLM 0.32, measured with two workers: a ring for requests, one per worker for answers, one of the tensor parallel
# group. Pages are allocated as they are first used, so these are the most that it comes to.
_REQUEST_RING_BYTES = 160 * _MIB
_ANSWER_RING_BYTES = 240 * _MIB
_GROUP_RING_BYTES = 24 * _MIB
_NODES = "/dev/nvidia"
_SHM = "/dev/shm"  # noqa: S108 - a text


def plain_numbers(case: Case) -> Iterator[Finding]:
    """Find GPU numbers that may be other GPUs: CUDA numbers by speed, nvidia-smi by PCI address."""
    environment = dict(case.settings.environment)
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    names = sorted({gpu.name for gpu in case.view.snapshot.gpus})
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


def small_shm(case: Case) -> Iterator[Finding]:
    """Find shared memory that is too small for vLLM's rings, by its tensor parallel size."""
    shared = case.view.snapshot.shm
    size = shared.value.size_bytes if isinstance(shared, Ok) else None
    workers = _tensor_parallel(case)
    if size is None or workers is None or _SHM in case.settings.sandbox.hidden_paths:  # it has its own
        return
    most = _REQUEST_RING_BYTES + workers * _ANSWER_RING_BYTES + (_GROUP_RING_BYTES if workers > 1 else 0)
    if size >= most:
        return
    enough = -(-2 * most // GIB)
    yield case.finding(
        "small-shm",
        Severity.WARNING,
        f"/dev/shm of {size // _MIB} MiB may be too small for it",  # noqa: S108 - a text
        f"vLLM's rings for {workers} {'worker' if workers == 1 else 'workers'} may come to {most // _MIB} MiB",
        remedy=f"mount -o remount,size={enough}G /dev/shm; so that it stays, in /etc/fstab: "
        f"tmpfs /dev/shm tmpfs size={enough}G 0 0",
    )


def hidden_devices(case: Case) -> Iterator[Finding]:
    """Find a unit that may not open NVIDIA's devices, unless it is active and so needs none.

    The policy is of the whole cgroup: neither does a guard get by it with "+" (systemd.service(5)).
    """
    sandbox = case.settings.sandbox
    if not case.facts.engine or case.facts.unit.active_state == "active" or not case.view.snapshot.gpus:
        return
    closed = sandbox.device_policy in {"closed", "strict"} or (sandbox.device_policy == "auto" and sandbox.device_allow)
    denied = closed and not any(_is_nvidias(entry) for entry in sandbox.device_allow)
    hidden = sandbox.private_devices and not any(path.startswith(_NODES) for path in sandbox.bound_paths)
    if not denied and not hidden:
        return
    if sandbox.private_devices:
        why = f"PrivateDevices=yes leaves it without {_NODES}*"
    elif sandbox.device_policy == "auto":
        why = f"DeviceAllow= allows others, and so denies {_NODES}*"
    else:
        why = f"DevicePolicy={sandbox.device_policy}, and no DeviceAllow= for {_NODES}*"
    yield case.finding(
        "hidden-devices",
        Severity.ERROR,
        "may not open the GPUs' devices",
        why,
        "[Service]",
        *(["PrivateDevices=no"] if sandbox.private_devices else []),
        "DeviceAllow=char-nvidia* rw",
        "DeviceAllow=char-195 rw",
    )


def _is_nvidias(entry: str) -> bool:
    """Tell if an entry of DeviceAllow= may be for NVIDIA's devices: nodes, or groups of /proc/devices, with globs."""
    if entry.startswith("char-"):
        group = entry.removeprefix("char-")
        return group.startswith("nvidia") or any(
            fnmatchcase(name, group) for name in ("nvidia", "nvidia-frontend", "195")
        )
    return entry.startswith(_NODES)


def _tensor_parallel(case: Case) -> int | None:
    """Read the tensor parallel size from ExecStart=; None without vLLM or where it is unknown."""
    engine, own = case.command
    return parse_engine_arguments(engine, own).tensor_parallel if engine == "vllm" else None
