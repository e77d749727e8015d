"""Processes that have the driver open, and those of llmhost: /proc/PID/fd and cmdline (proc(5)).

Only open descriptors count, not a file that is mapped and closed again.
"""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from llmhost.model.driver_user import DriverUser, DriverUsers
from llmhost.sources.procfs_files import (
    DIRECTORY_FLAGS,
    KERNEL_THREAD_FLAG,
    links_in,
    parse_cmdline,
    parse_stat,
    text_of,
    whole_file,
)

_DEVICES = "/dev/nvidia"  # nvidiactl, nvidia0…, nvidia-uvm, nvidia-caps/…
_WORKER = ("-m", "llmhost.sources.nvml.child.worker")
_COMMANDS = frozenset({"serve", "guard", "status", "doctor", "clean"})  # those that have an NVML child


def read_driver_users(procfs: Path) -> DriverUsers:
    """Read all processes. Raises OSError where there is no procfs."""
    found, unseen = [], 0
    own = os.getpid()
    names = os.listdir(procfs)  # noqa: PTH208 - thousands, and only the names are wanted
    for name in names:
        if not name.isdecimal() or int(name) == own:
            continue
        try:
            directory = os.open(procfs / name, DIRECTORY_FLAGS)
        except OSError:
            continue
        try:
            user = _user(int(name), directory)
        except (OSError, ValueError, IndexError):  # gone meanwhile
            continue
        finally:
            os.close(directory)
        if user.has_open or user.nvml_child or user.command:
            found.append(user)
        elif user.has_open is None:
            unseen += 1
    users = tuple(sorted(found, key=lambda user: user.pid))
    return DriverUsers(users=users, unseen=unseen, hidden="1" not in names)  # hidepid= in proc(5)


def _user(pid: int, directory: int) -> DriverUser:
    stat = parse_stat(whole_file("stat", directory) or b"")
    argv = parse_cmdline(whole_file("cmdline", directory) or b"")
    return DriverUser(
        pid=pid,
        comm=text_of(stat.comm),
        state=stat.state,
        ppid=stat.ppid,
        nvml_child=_WORKER in itertools.pairwise(argv),
        command=command_of(argv),
        has_open=False if stat.flags & KERNEL_THREAD_FLAG else _has_open(directory),
    )


def command_of(argv: Sequence[str]) -> str:
    """Find llmhost's command in `python -m llmhost serve …` or `python /opt/llmhost/bin/llmhost serve …`."""
    for program, command in itertools.pairwise(argv[:5]):
        if program.rpartition("/")[2] == "llmhost" and command in _COMMANDS:
            return command
    return ""


def _has_open(directory: int) -> bool | None:
    try:
        descriptors = os.open("fd", DIRECTORY_FLAGS, dir_fd=directory)
    except PermissionError:
        return None
    try:
        names = os.listdir(descriptors)  # noqa: PTH208 - of an open directory
        return any(target.startswith(_DEVICES) for _, target in links_in(descriptors, names))
    except PermissionError:
        return None
    finally:
        os.close(descriptors)
