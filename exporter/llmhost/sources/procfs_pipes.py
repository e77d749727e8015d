"""Which pipes processes hold: what tells a living creator from who has merely adopted its child.

/proc/PID/fd of another takes root's privilege, or to be its owner (proc(5)). To read it costs some 2 µs for each
descriptor, so it is read of few: of trackers, of children of engines and of Python's multiprocessing whose parent is
no living engine's process, and of the parents of both. So a healthy engine costs its tracker's and its server's.

Anybody can name any number of processes like an engine's, and give them descriptors. So a look has a budget: services
come first, everybody's next process before anybody's one after, and what is over it stays untold.

Who holds a tracker's pipe though its parent does not may be anybody: a program that went to the background, say, and
let go of root. He is looked for among the engines' processes, and then, no more than once a minute, among all.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice

from llmhost.model.children import is_bare_child, is_engine_child
from llmhost.model.engines import tracker_fd
from llmhost.model.ids import ProcessId
from llmhost.model.process import Home, Process, Role
from llmhost.sources.procfs_files import GONE, parse_stat, small_file

MOST_DESCRIPTORS = 4096
MOST_SECONDS = 0.5  # that a look spends on pipes
SEARCH_SECONDS = 60

Pipes = Mapping[int, int]  # fd → inode

_PIPE, _END = "pipe:[", "]"


class Untold(Enum):
    DENIED = auto()  # it takes root, or the owner
    GONE = auto()  # the process, or it is another
    TOO_MUCH = auto()  # more descriptors than are looked at, no time left, or no means of our own


def read_pipes(root: str, start_ticks: int) -> Pipes | Untold:
    """Read the pipes of the process at `root` that started then.

    TOO_MUCH where it has more descriptors than are looked at: of some of its pipes it could not be told that it lacks
    one.
    """
    try:
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if parse_stat(small_file("stat", directory)).start_ticks != start_ticks:
                return Untold.GONE
            return _pipes_of(directory)
        finally:
            os.close(directory)
    except PermissionError:
        return Untold.DENIED
    except OSError as error:
        return Untold.GONE if error.errno in GONE else Untold.TOO_MUCH
    except (ValueError, IndexError):
        return Untold.TOO_MUCH


def _pipes_of(directory: int) -> Pipes | Untold:
    try:
        descriptors = os.open("fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        small_file("stat", directory)  # fails too when the process is gone
        return Untold.DENIED
    try:
        return _pipes_in(descriptors)
    finally:
        os.close(descriptors)


def _pipes_in(descriptors: int) -> Pipes | Untold:
    with os.scandir(descriptors) as entries:
        names = [entry.name for entry in islice(entries, MOST_DESCRIPTORS + 1)]
    if len(names) > MOST_DESCRIPTORS:
        return Untold.TOO_MUCH
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    pipes: Mapping[int, Pipes]  # by pid
    denied: frozenset[int]
    unknown_holders: frozenset[int]  # trackers whose pipe somebody may hold of whom it could not be told


class PipeLook:
    """Looks at pipes, one look after the other; remembers who was found to hold a tracker's."""

    def __init__(self) -> None:
        self._holders: frozenset[ProcessId] = frozenset()
        self._searched: dict[ProcessId, tuple[float, bool]] = {}  # tracker → when, on the clock of `now`; if of all

    def look(
        self,
        by_pid: Mapping[int, Process],
        interesting: Iterable[int],
        read: Callable[[Process], Pipes | Untold],
        now: float,
        *,
        has_time: Callable[[], bool],
        all_seen: bool,
    ) -> Told:
        """Read the pipes of those among the interesting for whom they matter, while `has_time`.

        `all_seen` is whether `by_pid` has all processes: others may hold pipes as well.
        """
        one_look = _OneLook(read, has_time)
        living = _in_turn(by_pid[pid] for pid in interesting if not by_pid[pid].zombie)
        for process in living:
            parent = by_pid.get(process.ppid)
            if _needs_proof(process, parent):
                one_look.take(process)
                if parent is not None and not parent.zombie:
                    one_look.take(parent)
        held_before = [
            found
            for holder in self._holders
            if (found := by_pid.get(holder.pid)) is not None and found.id == holder and not found.zombie
        ]
        for process in held_before:
            one_look.take(process)
        pipes, untold = one_look.pipes, one_look.untold
        trackers = {
            one.id.pid: inode
            for one in living
            if one.role is Role.TRACKER and (inode := _inode(one, pipes)) is not None
        }
        if _lonely(trackers, pipes):
            for process in living:
                one_look.take(process)
        self._search(trackers, by_pid, one_look, now, all_seen=all_seen)
        missed = frozenset(one.id.pid for one in held_before if untold.get(one.id.pid, Untold.GONE) is not Untold.GONE)
        inodes = frozenset(trackers.values())
        holders = {pid for pid, held in pipes.items() if not inodes.isdisjoint(held.values())}
        self._holders = frozenset(by_pid[pid].id for pid in holders | missed)
        return Told(
            pipes=pipes,
            denied=frozenset(pid for pid, why in untold.items() if why is Untold.DENIED),
            unknown_holders=frozenset(
                trackers
                if missed
                else (pid for pid in _lonely(trackers, pipes) if not self._searched[by_pid[pid].id][1])
            ),
        )

    def _search(
        self,
        trackers: Mapping[int, int],
        by_pid: Mapping[int, Process],
        one_look: "_OneLook",
        now: float,
        *,
        all_seen: bool,
    ) -> None:
        """Find anybody who holds the pipe of a tracker that nobody is known to hold, and add his to the look's."""
        identities = {by_pid[pid].id for pid in trackers}
        self._searched = {one: last for one, last in self._searched.items() if one in identities}
        lonely = [
            by_pid[pid]
            for pid in _lonely(trackers, one_look.pipes)
            if not 0 <= now - self._searched.get(by_pid[pid].id, (-math.inf, False))[0] < SEARCH_SECONDS
        ]
        if not lonely:
            return
        sought = frozenset(trackers[one.id.pid] for one in lonely)
        others = [one for one in by_pid.values() if not one.kernel_thread and not one.zombie]
        others.sort(key=lambda one: not any(_is_near(one, tracker) for tracker in lonely))
        of_all = all_seen
        for process in others:
            found = one_look.read(process)
            if isinstance(found, Untold):
                of_all = of_all and found is Untold.GONE
            elif not sought.isdisjoint(found.values()):
                one_look.pipes[process.id.pid] = found
        self._searched.update((one.id, (now, of_all)) for one in lonely)


class _OneLook:
    """What one look has read: nobody twice, and nobody once its time is up."""

    def __init__(self, read: Callable[[Process], Pipes | Untold], has_time: Callable[[], bool]) -> None:
        self._read = read
        self._has_time = has_time
        self.pipes: dict[int, Pipes] = {}
        self.untold: dict[int, Untold] = {}

    def read(self, process: Process) -> Pipes | Untold:
        pid = process.id.pid
        known = self.pipes.get(pid, self.untold.get(pid))
        if known is not None:
            return known
        return self._read(process) if self._has_time() else Untold.TOO_MUCH

    def take(self, process: Process) -> None:
        """Read it, and keep what comes of that."""
        found = self.read(process)
        if isinstance(found, Untold):
            self.untold[process.id.pid] = found
        else:
            self.pipes[process.id.pid] = found


def _in_turn(processes: Iterable[Process]) -> list[Process]:
    """Order by who may spend the budget: services first; among equals, each user's first before anybody's second."""
    turns: dict[tuple[int, int | None], int] = {}
    order: list[tuple[int, int, Process]] = []
    for process in processes:
        rank = _rank(process)
        turn = turns[rank, process.uid] = turns.get((rank, process.uid), 0) + 1
        order.append((rank, turn, process))
    return [process for _, _, process in sorted(order, key=lambda one: one[:2])]


def _rank(process: Process) -> int:
    """Rank what only an administrator can start first; anybody has a service manager of his own."""
    placement = process.placement
    if placement.unit is not None and placement.unit.manager == "system":
        return 0
    return 1 if placement.home in {Home.SERVICE, Home.CONTAINER} else 2


def _needs_proof(process: Process, parent: Process | None) -> bool:
    """Whether pipes have to tell who its parent is. A server's is whoever started the service."""
    if process.role is Role.TRACKER:
        return True
    if parent is not None and parent.engine and not parent.zombie:
        return False
    return is_engine_child(process) or is_bare_child(process)


def _lonely(trackers: Mapping[int, int], pipes: Mapping[int, Pipes]) -> list[int]:
    """Give the trackers, pid → inode, whose pipe nobody else is known to hold."""
    holders: dict[int, set[int]] = {inode: set() for inode in trackers.values()}
    for pid, held in pipes.items():
        for inode in held.values():
            if inode in holders:
                holders[inode].add(pid)
    return [tracker for tracker, inode in trackers.items() if not holders[inode] - {tracker}]


def _inode(tracker: Process, pipes: Mapping[int, Pipes]) -> int | None:
    number = tracker_fd(tracker.argv)
    return None if number is None else pipes.get(tracker.id.pid, {}).get(number)


def _is_near(process: Process, tracker: Process) -> bool:
    same_place = process.placement == tracker.placement and process.placement.home in {Home.SERVICE, Home.CONTAINER}
    return same_place or process.uid == tracker.uid
