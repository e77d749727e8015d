"""Which pipes processes hold: what tells a living creator from who has merely adopted its child.

/proc/PID/fd of another takes root's privilege, or to be its owner (proc(5)). To read it costs some 2 µs for each
descriptor, so it is read of few: of trackers, of children of engines and of Python's multiprocessing whose parent is
no living engine's process, and of the parents of both. So a healthy engine costs its tracker's and its server's.

Who holds a tracker's pipe though its parent does not may be anybody: a program that went to the background, say. He is
looked for among the engines' processes, and then, no more than once a minute, among all of the tracker's user or place.
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
        self._holders: frozenset[int] = frozenset()
        self._searched: dict[ProcessId, float] = {}  # tracker → when, on the clock of `now`

    def look(
        self,
        by_pid: Mapping[int, Process],
        interesting: Iterable[int],
        read: Callable[[Process], Pipes | None],
        now: float,
    ) -> dict[int, Pipes]:
        """Read the pipes of those among the interesting for whom they matter, by pid; only those that could be."""
        living = [by_pid[pid] for pid in interesting if not by_pid[pid].zombie]
        wanted: dict[int, Process] = {}
        for process in living:
            parent = by_pid.get(process.ppid)
            if _needs_proof(process, parent):
                wanted[process.id.pid] = process
                if parent is not None and not parent.zombie:
                    wanted[process.ppid] = parent
        wanted.update((pid, by_pid[pid]) for pid in self._holders if pid in by_pid and not by_pid[pid].zombie)
        pipes: dict[int, Pipes] = {}
        _read_into(pipes, wanted.values(), read)
        trackers = {
            one.id.pid: inode
            for one in living
            if one.role is Role.TRACKER and (inode := _inode(one, pipes)) is not None
        }
        if _lonely(trackers, pipes):
            _read_into(pipes, living, read)
        self._search(trackers, by_pid, pipes, read, now)
        inodes = frozenset(trackers.values())
        self._holders = frozenset(pid for pid, found in pipes.items() if not inodes.isdisjoint(found.values()))
        return pipes

    def _search(
        self,
        trackers: Mapping[int, int],
        by_pid: Mapping[int, Process],
        pipes: dict[int, Pipes],
        read: Callable[[Process], Pipes | None],
        now: float,
    ) -> None:
        """Find anybody who holds the pipe of a tracker that nobody is known to hold, and add his to `pipes`."""
        identities = {by_pid[pid].id for pid in trackers}
        self._searched = {one: at for one, at in self._searched.items() if one in identities}
        lonely = [
            by_pid[pid]
            for pid in _lonely(trackers, pipes)
            if not 0 <= now - self._searched.get(by_pid[pid].id, -math.inf) < SEARCH_SECONDS
        ]
        if not lonely:
            return
        self._searched.update((one.id, now) for one in lonely)
        sought = frozenset(trackers[one.id.pid] for one in lonely)
        for pid, process in by_pid.items():
            if pid not in pipes and any(_may_hold(process, one) for one in lonely):
                found = read(process)
                if found is not None and not sought.isdisjoint(found.values()):
                    pipes[pid] = found


def _needs_proof(process: Process, parent: Process | None) -> bool:
    """Whether pipes have to tell who its parent is. A server's is whoever started the service."""
    if process.role is Role.TRACKER:
        return True
    if parent is not None and parent.engine and not parent.zombie:
        return False
    return is_engine_child(process) or is_bare_child(process)


def _read_into(pipes: dict[int, Pipes], processes: Iterable[Process], read: Callable[[Process], Pipes | None]) -> None:
    for process in processes:
        if process.id.pid not in pipes:
            found = read(process)
            if found is not None:
                pipes[process.id.pid] = found


def _lonely(trackers: Mapping[int, int], pipes: Mapping[int, Pipes]) -> list[int]:
    """Give the trackers, pid → inode, whose pipe nobody else is known to hold."""
    return [
        tracker
        for tracker, inode in trackers.items()
        if not any(inode in found.values() for pid, found in pipes.items() if pid != tracker)
    ]


def _inode(tracker: Process, pipes: Mapping[int, Pipes]) -> int | None:
    number = tracker_fd(tracker.argv)
    return None if number is None else pipes.get(tracker.id.pid, {}).get(number)


def _may_hold(process: Process, tracker: Process) -> bool:
    if process.kernel_thread or process.zombie:
        return False
    same_place = process.placement == tracker.placement and process.placement.home in {Home.SERVICE, Home.CONTAINER}
    return same_place or process.uid == tracker.uid
