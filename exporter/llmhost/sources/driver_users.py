"""Processes that have the driver open, and those of llmhost: /proc/PID/fd, cmdline and status (proc(5)).

Only open descriptors count, not a file that is mapped and closed again. Anybody can give a process any arguments: they
tell of llmhost only where its user is one that llmhost is run by, and of an NVML child only where it has the driver
open, or an llmhost has started it.
"""

import itertools
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from llmhost.model.driver_user import DriverUser, DriverUsers
from llmhost.sources.procfs_files import (
    DIRECTORY_FLAGS,
    KERNEL_THREAD_FLAG,
    links_in,
    parse_cmdline,
    parse_stat,
    small_file,
    text_of,
    whole_file,
)

_DEVICES = "/dev/nvidia"  # nvidiactl, nvidia0…, nvidia-uvm, nvidia-caps/…
_WORKER = ("-m", "llmhost.sources.nvml.child.worker")
_ISOLATED = (("-I",), ("-P",))  # before it (sources/nvml/child_process.py)
_COMMANDS = frozenset({"serve", "guard", "status", "doctor", "clean"})  # those that have an NVML child


def read_driver_users(procfs: Path, llmhost_uids: Collection[int]) -> DriverUsers:
    """Read all processes; `llmhost_uids` are the users that llmhost is run by. Raises OSError without a procfs."""
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
            user = _user(int(name), directory, llmhost_uids)
        except (OSError, ValueError, IndexError):  # gone meanwhile
            continue
        finally:
            os.close(directory)
        if user.has_open or user.nvml_child or user.command:
            found.append(user)
        elif user.has_open is None:
            unseen += 1
    commands = {user.pid for user in found if user.command}
    proven = (replace(user, nvml_child=user.nvml_child and _is_proven(user, commands)) for user in found)
    users = tuple(
        sorted((user for user in proven if user.has_open or user.nvml_child or user.command), key=lambda user: user.pid)
    )
    return DriverUsers(users=users, unseen=unseen, hidden="1" not in names)  # hidepid= in proc(5)


def _is_proven(child: DriverUser, commands: Collection[int]) -> bool:
    return child.has_open is not False or child.ppid in commands


def _user(pid: int, directory: int, llmhost_uids: Collection[int]) -> DriverUser:
    stat = parse_stat(whole_file("stat", directory) or b"")
    argv = parse_cmdline(whole_file("cmdline", directory) or b"")
    ours = _uids(directory) <= set(llmhost_uids)
    return DriverUser(
        pid=pid,
        comm=text_of(stat.comm),
        state=stat.state,
        ppid=stat.ppid,
        nvml_child=ours and argv[1:2] in _ISOLATED and argv[2:4] == _WORKER,
        command=command_of(argv) if ours else "",
        has_open=False if stat.flags & KERNEL_THREAD_FLAG else _has_open(directory),
    )


def _uids(directory: int) -> set[int]:
    """Give a process's real and effective user; the owner of its directory is root for what may not dump core."""
    try:
        _, uids = small_file("status", directory).split(b"\nUid:", 1)
    except FileNotFoundError:
        return {os.fstat(directory).st_uid}
    return {int(uid) for uid in uids.split(None, 2)[:2]}


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
