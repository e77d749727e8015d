"""Checks that our pids, cgroups, shared memory and loopback are the host's, and not those of namespaces of our own.

In a container, and in a unit with a sandbox, namespaces hide what is outside of them (namespaces(7)): without a check,
what they hide would be told as not there. Process 1 has the host's view wherever its pids are the host's.
"""

import os
from typing import Final

from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError

# include/linux/proc_ns.h: PROC_PID_INIT_INO 0xEFFFFFFC, PROC_CGROUP_INIT_INO 0xEFFFFFFB, PROC_IPC_INIT_INO 0xEFFFFFFF
_INITIAL_PID_NAMESPACE: Final = "pid:[4026531836]"
_INITIAL_CGROUP_NAMESPACE: Final = "cgroup:[4026531835]"
_INITIAL_IPC_NAMESPACE: Final = "ipc:[4026531839]"
_HOST_SHM: Final = "/dev/shm"  # noqa: S108 - it is asked for
_SHARE_SHM: Final = (
    "not the host's, so its files tell nothing; run with the host's (of a container: --ipc=host, or mount it)"
)


def sees_host_pids(procfs: str) -> bool:
    """Say whether pids are the host's, as far as can be told."""
    return _namespace(procfs, "pid") == _INITIAL_PID_NAMESPACE


def require_host_pids(procfs: str) -> None:
    """Raise SourceError(PID_NAMESPACE) where pids are not those that the driver means."""
    try:
        namespace = os.readlink(f"{procfs}/self/ns/pid")  # noqa: PTH115  # a link to no path
    except OSError as error:
        raise SourceError(
            Cause.PID_NAMESPACE,
            f"cannot tell whose pids these are: {procfs}/self/ns/pid: {error.strerror}; "
            "set host.pid_namespace to trust if they are the host's",
        ) from error
    if namespace != _INITIAL_PID_NAMESPACE:
        raise SourceError(
            Cause.PID_NAMESPACE,
            f"we run in {namespace}, not in the host's {_INITIAL_PID_NAMESPACE}, so pids of NVML and of /proc may "
            "not be the same processes; run in the host's, or set host.pid_namespace to trust",
        )


def require_host_cgroups(procfs: str) -> None:
    """Raise SourceError(CGROUP_NAMESPACE) where cgroups are seen from another namespace than that of process 1.

    The names of units are then cut off from the paths in /proc/PID/cgroup (cgroup_namespaces(7)), and process 1 is at a
    path with "..".
    """
    ours, theirs = _namespace(procfs, "cgroup"), _namespace(procfs, "cgroup", of="1")
    if not theirs and sees_host_pids(procfs):
        theirs = _INITIAL_CGROUP_NAMESPACE
    if (ours and theirs and ours != theirs) or _init_is_outside(procfs):
        raise SourceError(
            Cause.CGROUP_NAMESPACE,
            "we run in a cgroup namespace of our own, in which the units of processes cannot be told; run in the "
            "host's (of a container: --cgroupns=host)",
        )


def require_host_shm(procfs: str, shm: str, device: int, *, trusts_pids: bool) -> None:
    """Raise SourceError(NO_SHM) where the directory `shm`, of this device, is not the host's shared memory.

    It is the host's where process 1 has the same filesystem there, or at /dev/shm. To look takes privilege, and says
    nothing where process 1 is not the host's: then it goes by the IPC namespace, which containers share with /dev/shm
    or not.
    """
    theirs = {_device(f"{procfs}/1/root{path}") for path in (_HOST_SHM, os.path.realpath(shm))} - {None}
    if theirs and device not in theirs:
        raise SourceError(Cause.NO_SHM, f"{shm} is one of our own mount namespace, {_SHARE_SHM}")
    sure = trusts_pids or (theirs and sees_host_pids(procfs))
    if not sure and _namespace(procfs, "ipc") not in {"", _INITIAL_IPC_NAMESPACE}:
        raise SourceError(Cause.NO_SHM, f"{shm} may be one of our own IPC namespace, {_SHARE_SHM}")


def require_host_network(procfs: str) -> None:
    """Raise SourceError(NETWORK_NAMESPACE) where our network is not that of process 1, as far as that can be told."""
    ours, theirs = _namespace(procfs, "net"), _namespace(procfs, "net", of="1")
    if ours and theirs and ours != theirs:
        raise SourceError(
            Cause.NETWORK_NAMESPACE,
            f"we run in {ours}, whose loopback is not the host's {theirs}; run in the host's (of a container: "
            "--network=host)",
        )


def _init_is_outside(procfs: str) -> bool:
    """Say whether process 1 is not in our root cgroup, or below."""
    try:
        with open(f"{procfs}/1/cgroup", "rb") as opened:  # noqa: PTH123  # a Path of it takes longer
            paths = [line.split(b":", 2)[-1] for line in opened.read().splitlines()]
    except OSError:
        return False  # whoever reads processes says that it is hidden
    return any(b".." in path.split(b"/") for path in paths)


def _device(path: str) -> int | None:
    try:
        return os.stat(path).st_dev  # noqa: PTH116  # as above
    except OSError:
        return None


def _namespace(procfs: str, kind: str, of: str = "self") -> str:
    try:
        return os.readlink(f"{procfs}/{of}/ns/{kind}")  # noqa: PTH115  # a link to no path
    except OSError:
        return ""
