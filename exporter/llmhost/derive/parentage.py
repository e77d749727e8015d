"""Parent links: whether a process's parent has created it, or has adopted it after its creator's end.

The parent alone does not show it. When a creator ends, its children are adopted by pid 1, a subreaper, a shell,
`systemd --user`, conmon or tmux. But Python's multiprocessing (spawn, fork, fork server) makes pipes between a creator
and its child, by which each notices the other's end, and both keep them for as long as they live (CPython:
multiprocessing/popen_*.py). An adopter shares no pipe with the child, but for those of standard input and output. So:

- A child that shares such a pipe with its parent still has its creator; one that does not has lost it.
- An engine's process that has lost its creator for the grace time is an orphan (`orphans`).
- Python's resource tracker reads a pipe whose other end its creator holds, and its creator's children with it; it ends
  when the last of them has closed it. So a tracker whose parent does not hold its pipe has lost its creator, and
  whether it is left over depends on the others that hold the pipe (`trackers`).

Pipes are read of the few processes for which they matter (sources/procfs_pipes); where that is not permitted, process
groups and programs have to do.
"""

from collections.abc import Iterator
from enum import Enum, auto

from llmhost.model.children import has_creators_pipes, is_bare_child, is_engine_child, is_python, is_ray_actor
from llmhost.model.process import Process, ProcessTable

_STANDARD = (0, 1, 2)  # shells and supervisors share pipes there with their children
_RAYLET = "raylet"


class ParentLink(Enum):
    KEPT = auto()
    LOST = auto()
    SEEMS_LOST = auto()  # inferred from the parent, without pipes
    UNKNOWN = auto()  # the pipes were not read, as that costs too much


def parent_link(child: Process, processes: ProcessTable) -> ParentLink:
    """Find the link of an engine's child, or of a bare child of multiprocessing, to its parent. Others keep theirs.

    Where pipes may not be read, a parent in another process group, or that is no Python, is an adopter.
    """
    if not (is_engine_child(child) or is_bare_child(child)):
        return ParentLink.KEPT
    parent = processes.by_pid.get(child.ppid)
    if parent is not None and not parent.zombie and parent.engine:
        return ParentLink.KEPT
    if is_ray_actor(child):
        return ParentLink.KEPT if _has_raylet(child, processes) else ParentLink.LOST
    if parent is None or parent.zombie:
        return ParentLink.LOST
    if not has_creators_pipes(child):
        return ParentLink.LOST if _is_adopted(child, parent, processes) else ParentLink.KEPT
    if child.pipes is not None and parent.pipes is not None:
        shared = frozenset(child.pipes.values()) & frozenset(parent.pipes.values())
        return ParentLink.KEPT if shared - _standard(child) - _standard(parent) else ParentLink.LOST
    if child.pipes_unread or parent.pipes_unread:
        return ParentLink.UNKNOWN
    return ParentLink.KEPT if parent.pgrp == child.pgrp and is_python(parent) else ParentLink.SEEMS_LOST


def _is_adopted(child: Process, parent: Process, processes: ProcessTable) -> bool:
    """Say whether an engine's child without a creator's pipes has certainly been adopted.

    Users start such programs by hand as well, and so does torchrun. It is certain where its parent is process 1, which
    did not start it as a service (systemd makes each a session of its own), or where its process group's leader is gone
    and its parent is of another group.
    """
    if parent.id.pid == 1:
        return child.session != child.id.pid
    return child.pgrp != parent.pgrp and child.pgrp not in processes.by_pid and child.pgrp not in processes.denied


def ancestors(process: Process, processes: ProcessTable) -> Iterator[Process]:
    """Give the processes above it, from the parent upwards."""
    passed = {process.id.pid}
    above = processes.by_pid.get(process.ppid)
    while above is not None and above.id.pid not in passed:  # parents are not all read at the same instant
        yield above
        passed.add(above.id.pid)
        above = processes.by_pid.get(above.ppid)


def _standard(process: Process) -> frozenset[int]:
    pipes = process.pipes or {}
    return frozenset(pipes[fd] for fd in _STANDARD if fd in pipes)


def _has_raylet(actor: Process, processes: ProcessTable) -> bool:
    """Say whether a raylet lives above it, or as the same user: an actor in a container has another parent."""
    if any(ancestor.comm == _RAYLET and not ancestor.zombie for ancestor in ancestors(actor, processes)):
        return True
    return any(
        process.comm == _RAYLET and not process.zombie and process.uid == actor.uid
        for process in processes.by_pid.values()
    )
