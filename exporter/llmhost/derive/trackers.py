"""Python's resource trackers, and whether their creators live."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum

from llmhost.derive.parentage import Bond, ancestors, bond_with_creator
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
    """Tell the state of every tracker; one of which it can't be told is not in the answer.

    A holder of the pipe is healthy unless it, or one above it, is an orphan or a child whose creator is gone, for
    however short a time.
    Where pipes were not read for what that costs, or somebody unknown may hold the tracker's, there is no telling.
    Where they may not be read, a parent in another process group, or that is neither Python nor an engine's process,
    is an adopter. One that is an engine's is the creator. Any other Python may be either.
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
    if tracker.pipes_untold:
        return None
    parent = processes.by_pid.get(tracker.ppid)
    inode = _inode(tracker)
    if parent is not None and not parent.zombie:
        if parent.pipes_untold:
            return None
        if inode is not None and parent.pipes is not None:
            if holders.holds(parent, inode):
                return TrackerState.ATTACHED
        elif parent.pgrp == tracker.pgrp and (parent.engine or is_python(parent)):
            return TrackerState.ATTACHED if parent.engine else None
    if inode is None:
        return TrackerState.ORPHANED
    bonds = holders.bonds_without(tracker, inode)
    if not bonds.isdisjoint({Bond.LOST, Bond.SEEMS_LOST}):
        return TrackerState.ORPHANED
    if Bond.UNKNOWN in bonds or tracker.id.pid in processes.holders_untold:
        return None
    return TrackerState.DETACHED if bonds else TrackerState.ORPHANED


class _Holders:
    """Who holds which tracker's pipe, and whether each and all above it are bonded: looked at once, not by tracker."""

    def __init__(self, processes: ProcessTable, orphans: AbstractSet[ProcessId], inodes: frozenset[int | None]) -> None:
        self._processes = processes
        self._orphans = orphans
        self._bonds: dict[int, frozenset[Bond]] = {}
        self._pids: dict[int, set[int]] = {}
        if inodes:
            for pid, process in processes.by_pid.items():
                for inode in inodes.intersection(process.pipes.values()) if process.pipes else ():
                    if inode is not None:
                        self._pids.setdefault(inode, set()).add(pid)

    def holds(self, process: Process, inode: int) -> bool:
        return process.id.pid in self._pids.get(inode, ())

    def bonds_without(self, tracker: Process, inode: int) -> frozenset[Bond]:
        """Give the bonds of all holders but the tracker; none where there are none."""
        others = self._pids.get(inode, set()) - {tracker.id.pid}
        return frozenset().union(*(self._bonds_of(pid) for pid in others))

    def _bonds_of(self, pid: int) -> frozenset[Bond]:
        if pid not in self._bonds:
            holder = self._processes.by_pid[pid]
            self._bonds[pid] = frozenset(
                Bond.LOST if process.id in self._orphans else bond_with_creator(process, self._processes)
                for process in (holder, *ancestors(holder, self._processes))
            )
        return self._bonds[pid]


def _inode(tracker: Process) -> int | None:
    """Inode of the pipe that it reads."""
    number = tracker_fd(tracker.argv)
    return None if number is None or tracker.pipes is None else tracker.pipes.get(number)
