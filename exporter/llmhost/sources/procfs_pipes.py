"""The pipes that processes have open: they distinguish a creator from a process that has merely adopted its child.

/proc/PID/fd of another takes root's privilege, or to be its owner (proc(5)). To read it costs some 2 µs for each
descriptor, so it is read of few: of trackers, of children of engines and of Python's multiprocessing whose parent is
no living engine's process, and of the parents of both. So a healthy engine costs its tracker's and its server's.

Anybody can name any number of processes like an engine's, and give them descriptors. So a scan has a budget: services
come first, everybody's next process before anybody's one after, and the pipes of those beyond it stay unknown.

The holder of a tracker's pipe may be anybody where its parent is not: a program that went to the background, say, and
gave up root. It is searched for among the engines' processes, and then, no more than once a minute, among all.
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
from llmhost.sources.procfs_files import DIRECTORY_FLAGS, ENDED_ERRNOS, links_in, opened_process, small_file

MOST_DESCRIPTORS = 4096
MOST_SECONDS = 0.5  # that a scan spends on pipes
SEARCH_SECONDS = 60

Pipes = Mapping[int, int]  # fd → inode

_PIPE, _END = "pipe:[", "]"


class NoPipes(Enum):
    """The reason why the pipes of a process are not known."""

    DENIED = auto()  # it takes root, or the owner
    ENDED = auto()  # maybe its pid is of another process by now
    TOO_MUCH = auto()  # more descriptors than are read, no time left, or no means of our own


def read_pipes(root: str, start_ticks: int) -> Pipes | NoPipes:
    """Read the pipes of the process at `root` that started then.

    TOO_MUCH where it has more descriptors than are read: then the lack of a pipe could not be proven.
    """
    try:
        with opened_process(root, start_ticks) as directory:
            return _pipes_of(directory)
    except PermissionError:
        return NoPipes.DENIED
    except OSError as error:
        return NoPipes.ENDED if error.errno in ENDED_ERRNOS else NoPipes.TOO_MUCH
    except (ValueError, IndexError):
        return NoPipes.TOO_MUCH


def _pipes_of(directory: int) -> Pipes | NoPipes:
    try:
        descriptors = os.open("fd", DIRECTORY_FLAGS, dir_fd=directory)
    except FileNotFoundError:
        small_file("stat", directory)  # fails too when the process has ended
        return NoPipes.DENIED
    try:
        return _pipes_in(descriptors)
    finally:
        os.close(descriptors)


def _pipes_in(descriptors: int) -> Pipes | NoPipes:
    with os.scandir(descriptors) as entries:
        names = [entry.name for entry in islice(entries, MOST_DESCRIPTORS + 1)]
    if len(names) > MOST_DESCRIPTORS:
        return NoPipes.TOO_MUCH
    pipes: dict[int, int] = {}
    for name, target in links_in(descriptors, names):
        if target.startswith(_PIPE) and target.endswith(_END):
            pipes[int(name)] = int(target[len(_PIPE) : -len(_END)])
    return pipes


def is_of_interest(process: Process) -> bool:
    """Tell if a process's pipes are read for its own sake, not as those of a parent."""
    return bool(process.engine) or process.role is Role.TRACKER or is_bare_child(process)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeReport:
    """The pipes that one scan has read."""

    pipes: Mapping[int, Pipes]  # by pid
    denied: frozenset[int]
    unknown_holders: frozenset[int]  # trackers whose pipe may be held by a process with unknown pipes


class PipeScanner:
    """Reads pipes, scan after scan; remembers the processes that were found to hold a tracker's."""

    def __init__(self) -> None:
        self._holders: frozenset[ProcessId] = frozenset()
        self._searched: dict[ProcessId, tuple[float, bool]] = {}  # tracker → when, on the clock of `now`; if of all

    def scan(
        self,
        by_pid: Mapping[int, Process],
        interesting: Iterable[int],
        read: Callable[[Process], Pipes | NoPipes],
        now: float,
        *,
        has_time: Callable[[], bool],
        all_listed: bool,
    ) -> PipeReport:
        """Read the pipes of those among the interesting for whom they matter, while `has_time`.

        `all_listed` means that `by_pid` has all processes: others may hold pipes as well.
        """
        reads = _PipeReads(read, has_time)
        living = _in_turn(by_pid[pid] for pid in interesting if not by_pid[pid].zombie)
        for process in living:
            parent = by_pid.get(process.ppid)
            if _parent_needs_proof(process, parent):
                reads.keep(process)
                if parent is not None and not parent.zombie:
                    reads.keep(parent)
        held_before = [
            found
            for holder in self._holders
            if (found := by_pid.get(holder.pid)) is not None and found.id == holder and not found.zombie
        ]
        for process in held_before:
            reads.keep(process)
        pipes, missing = reads.pipes, reads.missing
        trackers = {
            process.id.pid: inode
            for process in living
            if process.role is Role.TRACKER and (inode := _inode(process, pipes)) is not None
        }
        if _without_other_holder(trackers, pipes):
            for process in living:
                reads.keep(process)
        self._search(trackers, by_pid, reads, now, all_listed=all_listed)
        unread = frozenset(
            holder.id.pid for holder in held_before if missing.get(holder.id.pid, NoPipes.ENDED) is not NoPipes.ENDED
        )
        inodes = frozenset(trackers.values())
        holders = {pid for pid, held in pipes.items() if not inodes.isdisjoint(held.values())}
        self._holders = frozenset(by_pid[pid].id for pid in holders | unread)
        return PipeReport(
            pipes=pipes,
            denied=frozenset(pid for pid, why in missing.items() if why is NoPipes.DENIED),
            unknown_holders=frozenset(
                trackers
                if unread
                else (pid for pid in _without_other_holder(trackers, pipes) if not self._searched[by_pid[pid].id][1])
            ),
        )

    def _search(
        self,
        trackers: Mapping[int, int],
        by_pid: Mapping[int, Process],
        reads: "_PipeReads",
        now: float,
        *,
        all_listed: bool,
    ) -> None:
        """Find a process with the pipe of a tracker that has no known holder, and keep its pipes."""
        identities = {by_pid[pid].id for pid in trackers}
        self._searched = {tracker: last for tracker, last in self._searched.items() if tracker in identities}
        lost = [
            by_pid[pid]
            for pid in _without_other_holder(trackers, reads.pipes)
            if not 0 <= now - self._searched.get(by_pid[pid].id, (-math.inf, False))[0] < SEARCH_SECONDS
        ]
        if not lost:
            return
        sought = frozenset(trackers[tracker.id.pid] for tracker in lost)
        candidates = [process for process in by_pid.values() if not process.kernel_thread and not process.zombie]
        candidates.sort(key=lambda process: not any(_is_related(process, tracker) for tracker in lost))
        complete = all_listed
        for process in candidates:
            found = reads.read(process)
            if isinstance(found, NoPipes):
                complete = complete and found is NoPipes.ENDED
            elif not sought.isdisjoint(found.values()):
                reads.pipes[process.id.pid] = found
        self._searched.update((tracker.id, (now, complete)) for tracker in lost)


class _PipeReads:
    """The pipes read by one scan: of no process twice, and of none once its time is up."""

    def __init__(self, read: Callable[[Process], Pipes | NoPipes], has_time: Callable[[], bool]) -> None:
        self._read = read
        self._has_time = has_time
        self.pipes: dict[int, Pipes] = {}
        self.missing: dict[int, NoPipes] = {}

    def read(self, process: Process) -> Pipes | NoPipes:
        pid = process.id.pid
        known = self.pipes.get(pid, self.missing.get(pid))
        if known is not None:
            return known
        return self._read(process) if self._has_time() else NoPipes.TOO_MUCH

    def keep(self, process: Process) -> None:
        """Read its pipes, and keep them or the reason why there are none."""
        found = self.read(process)
        if isinstance(found, NoPipes):
            self.missing[process.id.pid] = found
        else:
            self.pipes[process.id.pid] = found


def _in_turn(processes: Iterable[Process]) -> list[Process]:
    """Order for the budget: services first; among equals, each user's first before anybody's second."""
    turns: dict[tuple[int, int | None], int] = {}
    order: list[tuple[int, int, Process]] = []
    for process in processes:
        rank = _rank(process)
        turn = turns[rank, process.uid] = turns.get((rank, process.uid), 0) + 1
        order.append((rank, turn, process))
    return [process for _, _, process in sorted(order, key=lambda entry: entry[:2])]


def _rank(process: Process) -> int:
    """Rank first what only an administrator can start; any user has a service manager of its own."""
    placement = process.placement
    if placement.unit is not None and placement.unit.manager == "system":
        return 0
    return 1 if placement.home in {Home.SERVICE, Home.CONTAINER} else 2


def _parent_needs_proof(process: Process, parent: Process | None) -> bool:
    """Tell if only pipes can prove that its parent created it. A server's parent is whatever started the service."""
    if process.role is Role.TRACKER:
        return True
    if parent is not None and parent.engine and not parent.zombie:
        return False
    return is_engine_child(process) or is_bare_child(process)


def _without_other_holder(trackers: Mapping[int, int], pipes: Mapping[int, Pipes]) -> list[int]:
    """Return the trackers, of pid → inode, whose pipe no other process is known to hold."""
    holders: dict[int, set[int]] = {inode: set() for inode in trackers.values()}
    for pid, held in pipes.items():
        for inode in held.values():
            if inode in holders:
                holders[inode].add(pid)
    return [tracker for tracker, inode in trackers.items() if not holders[inode] - {tracker}]


def _inode(tracker: Process, pipes: Mapping[int, Pipes]) -> int | None:
    number = tracker_fd(tracker.argv)
    return None if number is None else pipes.get(tracker.id.pid, {}).get(number)


def _is_related(process: Process, tracker: Process) -> bool:
    same_place = process.placement == tracker.placement and process.placement.home in {Home.SERVICE, Home.CONTAINER}
    return same_place or process.uid == tracker.uid
