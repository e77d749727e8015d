"""Which pipes processes hold: what tells a living creator from who has merely adopted its child.

/proc/PID/fd of another takes root's privilege, or to be its owner (proc(5)). To read it costs some 2 µs for each
descriptor, so it is read of few: of trackers, engines' processes and bare children of Python's multiprocessing, and of
their parents. One who holds a tracker's pipe may be anybody, though: a program that went to the background, say. He is
looked for among all processes of the tracker's user or place where nobody else is known to hold it, which takes some
75 ms at 2,000 processes, and no more than once a minute.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from llmhost.model.children import is_bare_child, is_engine_child
from llmhost.model.engines import tracker_fd
from llmhost.model.ids import ProcessId
from llmhost.model.process import Home, Process, Role
from llmhost.sources.procfs_files import parse_stat, small_file

MOST_DESCRIPTORS = 4096
SEARCH_SECONDS = 60

Pipes = Mapping[int, int]  # fd → inode

_PIPE, _END = "pipe:[", "]"


def read_pipes(root: str, start_ticks: int) -> Pipes | None:
    """Read the pipes of the process at `root` that started then.

    None where they cannot be read, where the process is gone or another, and where it has more descriptors than are
    looked at: of some of its pipes it could not be told that it lacks one.
    """
    try:
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if parse_stat(small_file("stat", directory)).start_ticks != start_ticks:
                return None
            descriptors = os.open("fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        finally:
            os.close(directory)
        try:
            return _pipes_in(descriptors)
        finally:
            os.close(descriptors)
    except (OSError, ValueError, IndexError):
        return None


def _pipes_in(descriptors: int) -> Pipes | None:
    with os.scandir(descriptors) as entries:
        names = [entry.name for entry in islice(entries, MOST_DESCRIPTORS + 1)]
    if len(names) > MOST_DESCRIPTORS:
        return None
    pipes: dict[int, int] = {}
    for name in names:
        try:
            target = os.readlink(name, dir_fd=descriptors)
        except FileNotFoundError:  # closed meanwhile
            continue
        if target.startswith(_PIPE) and target.endswith(_END):
            pipes[int(name)] = int(target[len(_PIPE) : -len(_END)])
    return pipes


def is_of_interest(process: Process) -> bool:
    """Whether a process's pipes are told: by what it is, not by whose parent it is."""
    return bool(process.engine) or process.role is Role.TRACKER or is_bare_child(process)


class PipeLook:
    """Looks at pipes, one look after the other; remembers who was found to hold a tracker's."""

    def __init__(self) -> None:
        self._holders: frozenset[ProcessId] = frozenset()
        self._searched: dict[ProcessId, float] = {}  # tracker → when, on the clock of `now`

    def look(
        self,
        by_pid: Mapping[int, Process],
        interesting: Iterable[int],
        read: Callable[[Process], Pipes | None],
        now: float,
    ) -> dict[int, Pipes]:
        """Read the pipes of the interesting processes and of who matters to them, by pid; only those that could be."""
        wanted = {pid: by_pid[pid] for pid in interesting if not by_pid[pid].zombie}
        trackers = [process for process in wanted.values() if process.role is Role.TRACKER]
        for process in list(wanted.values()):
            parent = by_pid.get(process.ppid)
            if parent is not None and not parent.zombie and _has_parent_to_lose(process):
                wanted.setdefault(process.ppid, parent)
        for one in self._holders:
            process = by_pid.get(one.pid)
            if process is not None and process.id == one and not process.zombie:
                wanted.setdefault(one.pid, process)
        pipes = {pid: found for pid, process in wanted.items() if (found := read(process)) is not None}
        self._search(trackers, by_pid, pipes, read, now)
        return pipes

    def _search(
        self,
        trackers: Iterable[Process],
        by_pid: Mapping[int, Process],
        pipes: dict[int, Pipes],
        read: Callable[[Process], Pipes | None],
        now: float,
    ) -> None:
        """Find holders of pipes that nobody is known to hold beside the tracker, and add theirs to `pipes`."""
        inodes = {one: inode for one in trackers if (inode := _inode(one, pipes)) is not None}
        self._searched = {one.id: self._searched[one.id] for one in inodes if one.id in self._searched}
        lonely = {
            one: inode
            for one, inode in inodes.items()
            if not any(inode in found.values() for pid, found in pipes.items() if pid != one.id.pid)
            and not 0 <= now - self._searched.get(one.id, -math.inf) < SEARCH_SECONDS
        }
        if lonely:
            self._searched.update((one.id, now) for one in lonely)
            for pid, process in by_pid.items():
                if pid not in pipes and any(_may_hold(process, one) for one in lonely):
                    found = read(process)
                    if found is not None and not frozenset(lonely.values()).isdisjoint(found.values()):
                        pipes[pid] = found
        theirs = frozenset(inodes.values())
        self._holders = frozenset(
            by_pid[pid].id for pid, found in pipes.items() if not theirs.isdisjoint(found.values())
        )


def _has_parent_to_lose(process: Process) -> bool:
    """Whether it matters who its parent is. A server's is whoever started the service."""
    return process.role is Role.TRACKER or is_engine_child(process) or is_bare_child(process)


def _inode(tracker: Process, pipes: Mapping[int, Pipes]) -> int | None:
    number = tracker_fd(tracker.argv)
    return None if number is None else pipes.get(tracker.id.pid, {}).get(number)


def _may_hold(process: Process, tracker: Process) -> bool:
    if process.kernel_thread or process.zombie:
        return False
    same_place = process.placement == tracker.placement and process.placement.home in {Home.SERVICE, Home.CONTAINER}
    return same_place or process.uid == tracker.uid
