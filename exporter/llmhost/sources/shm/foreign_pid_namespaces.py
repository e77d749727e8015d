"""Processes of other PID namespaces that have the same tmpfs: there, the pid in a file's name is another process."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from llmhost.model.process import Process
from llmhost.model.reading import Cause, Failed, Ok, Reading
from llmhost.sources.procfs_files import ENDED_ERRNOS


def read_foreign_pids(procfs: Path, shm: Path, processes: Iterable[Process]) -> Reading[frozenset[int]]:
    """Find the processes in another PID namespace than ours that have the filesystem of `shm` mounted, by pid.

    Failed where that cannot be read of a single one. namespaces(7), proc_pid_mountinfo(5).
    """
    try:
        device = shm.stat().st_dev
        ours = (procfs / "self/ns/pid").readlink()
    except OSError as error:
        return Failed(Cause.UNKNOWN, f"{error.filename}: {error.strerror}")
    number = f"{os.major(device)}:{os.minor(device)}".encode()
    found: set[int] = set()
    for process in processes:
        if process.kernel_thread or process.zombie:
            continue
        root = procfs / str(process.id.pid)
        try:
            if (root / "ns/pid").readlink() == ours:
                continue
            mounts = (root / "mountinfo").read_bytes()
        except OSError as error:
            if error.errno in ENDED_ERRNOS and not root.exists():
                continue
            cause = Cause.NO_PERMISSION if error.errno in {errno.EACCES, errno.EPERM} else Cause.UNKNOWN
            return Failed(cause, f"{error.filename}: {error.strerror}")
        if any(line.split(b" ", 3)[2:3] == [number] for line in mounts.splitlines()):
            found.add(process.id.pid)
    return Ok(frozenset(found))
