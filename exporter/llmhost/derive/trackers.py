"""States of Python's resource trackers, by the holders of their pipes (see parentage)."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum

from llmhost.derive.parentage import ParentLink, ancestors, parent_link
from llmhost.model.children import is_python
from llmhost.model.engines import tracker_fd
from llmhost.model.ids import ProcessId
from llmhost.model.process import Process, ProcessTable, Role


class TrackerState(StrEnum):
    """States of a resource tracker (docs/concepts.md: Tracker states)."""

    ATTACHED = "attached"  # its present parent holds its pipe
    ORPHANED = "orphaned"  # the creator is gone, a descendant keeps the pipe open
    DETACHED = "detached"  # orphaned, but every other holder of the pipe is healthy: a daemonised program
    ZOMBIE = "zombie"


def tracker_states(processes: ProcessTable, orphans: AbstractSet[ProcessId]) -> Mapping[ProcessId, TrackerState]:
    """Give the state of each tracker, but not of those whose state is unknown.

    A holder of the pipe is healthy unless it, or a process above it, is an orphan or has lost its creator, for however
    short a time. The state is unknown where pipes were not read, as that costs too much, or where an unknown process
    may hold the tracker's. Where pipes may not be read, a parent in another process group, or that is neither Python
    nor an engine's process, is an adopter; an engine's process is the creator; any other Python may be either.
    """
    trackers = [process for process in processes.by_pid.values() if process.role is Role.TRACKER]
    holders = _Holders(processes, orphans, frozenset(_inode(tracker) for tracker in trackers))
    states: dict[ProcessId, TrackerState] = {}
    for tracker in trackers:
        state = _state(tracker, processes, holders)
        if state is not None:
            states[tracker.id] = state
    return states


def _state(tracker: Process, processes: ProcessTable, holders: "_Holders") -> TrackerState | None:
    if tracker.zombie:
        return TrackerState.ZOMBIE
    if tracker.pipes_unread:
        return None
    parent = processes.by_pid.get(tracker.ppid)
    inode = _inode(tracker)
    if parent is not None and not parent.zombie:
        if parent.pipes_unread:
            return None
        if inode is not None and parent.pipes is not None:
            if holders.holds(parent, inode):
                return TrackerState.ATTACHED
        elif parent.pgrp == tracker.pgrp and (parent.engine or is_python(parent)):
            return TrackerState.ATTACHED if parent.engine else None
    if inode is None:
        return TrackerState.ORPHANED
    links = holders.links_without(tracker, inode)
    if not links.isdisjoint({ParentLink.LOST, ParentLink.SEEMS_LOST}):
        return TrackerState.ORPHANED
    if ParentLink.UNKNOWN in links or tracker.id.pid in processes.unknown_holders:
        return None
    return TrackerState.DETACHED if links else TrackerState.ORPHANED


class _Holders:
    """The holders of the trackers' pipes, and the parent links of each and of those above it, found once for all."""

    def __init__(self, processes: ProcessTable, orphans: AbstractSet[ProcessId], inodes: frozenset[int | None]) -> None:
        self._processes = processes
        self._orphans = orphans
        self._links: dict[int, frozenset[ParentLink]] = {}
        self._pids: dict[int, set[int]] = {}
        if inodes:
            for pid, process in processes.by_pid.items():
                for inode in inodes.intersection(process.pipes.values()) if process.pipes else ():
                    if inode is not None:
                        self._pids.setdefault(inode, set()).add(pid)

    def holds(self, process: Process, inode: int) -> bool:
        return process.id.pid in self._pids.get(inode, ())

    def links_without(self, tracker: Process, inode: int) -> frozenset[ParentLink]:
        """Give the links of all holders but the tracker; none where there are none."""
        other_pids = self._pids.get(inode, set()) - {tracker.id.pid}
        return frozenset().union(*(self._links_of(pid) for pid in other_pids))

    def _links_of(self, pid: int) -> frozenset[ParentLink]:
        if pid not in self._links:
            holder = self._processes.by_pid[pid]
            self._links[pid] = frozenset(
                ParentLink.LOST if process.id in self._orphans else parent_link(process, self._processes)
                for process in (holder, *ancestors(holder, self._processes))
            )
        return self._links[pid]


def _inode(tracker: Process) -> int | None:
    """Give the inode of the pipe that it reads."""
    number = tracker_fd(tracker.argv)
    return None if number is None or tracker.pipes is None else tracker.pipes.get(number)
