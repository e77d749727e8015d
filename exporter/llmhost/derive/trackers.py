"""Python's resource trackers, and whether their creators live."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum

from llmhost.derive.creators import Bond, ancestors, bond_with_creator
from llmhost.model.children import is_python
from llmhost.model.engines import tracker_fd
from llmhost.model.ids import ProcessId
from llmhost.model.process import Process, ProcessTable, Role


class TrackerState(StrEnum):
    """States of a resource tracker (docs/design.md: Tracker)."""

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
    piped = [process for process in processes.by_pid.values() if process.pipes] if trackers else []
    states: dict[ProcessId, TrackerState] = {}
    for tracker in trackers:
        state = _state(tracker, processes, piped, orphans)
        if state is not None:
            states[tracker.id] = state
    return states


def _state(
    tracker: Process, processes: ProcessTable, piped: list[Process], orphans: AbstractSet[ProcessId]
) -> TrackerState | None:
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
            if inode in parent.pipes.values():
                return TrackerState.ATTACHED
        elif parent.pgrp == tracker.pgrp and (parent.engine or is_python(parent)):
            return TrackerState.ATTACHED if parent.engine else None
    if inode is None:
        return TrackerState.ORPHANED
    holders = [one for one in piped if one.id != tracker.id and one.pipes and inode in one.pipes.values()]
    bonds = {bond for one in holders for bond in _bonds(one, processes, orphans)}
    if not bonds.isdisjoint({Bond.LOST, Bond.SEEMS_LOST}):
        return TrackerState.ORPHANED
    if Bond.UNKNOWN in bonds or tracker.id.pid in processes.holders_untold:
        return None
    return TrackerState.DETACHED if holders else TrackerState.ORPHANED


def _bonds(holder: Process, processes: ProcessTable, orphans: AbstractSet[ProcessId]) -> Iterator[Bond]:
    for one in (holder, *ancestors(holder, processes)):
        yield Bond.LOST if one.id in orphans else bond_with_creator(one, processes)


def _inode(tracker: Process) -> int | None:
    """Inode of the pipe that it reads."""
    number = tracker_fd(tracker.argv)
    return None if number is None or tracker.pipes is None else tracker.pipes.get(number)
