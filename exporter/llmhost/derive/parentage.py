"""Whether the process that made another still is its parent, or somebody who has adopted it."""

from collections.abc import Iterator
from enum import Enum, auto

from llmhost.model.children import has_creators_pipes, is_bare_child, is_engine_child, is_python, is_ray_actor
from llmhost.model.process import Process, ProcessTable

_STANDARD = (0, 1, 2)  # a pipe there is how anybody hears anybody, as a shell or a supervisor does
_RAYLET = "raylet"


class ParentLink(Enum):
    KEPT = auto()
    LOST = auto()
    SEEMS_LOST = auto()  # told without the pipes, by who the parent is
    UNKNOWN = auto()  # the pipes would tell, but were not read for what that costs


def parent_link(child: Process, processes: ProcessTable) -> ParentLink:
    """Judge the parent of an engine's child or of a bare child of multiprocessing. Of others: never lost.

    By ppid alone it cannot be told: adopters are pid 1, subreapers, shells, `systemd --user`, conmon, tmux. A creator
    by Python's multiprocessing shares pipes with the child; any adopter shares at most those of standard input and
    output. Where they may not be read, an adopter is one who leads or is in another process group, or is no Python.
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
        return ParentLink.LOST if _is_left_over(child, parent, processes) else ParentLink.KEPT
    if child.pipes is not None and parent.pipes is not None:
        shared = frozenset(child.pipes.values()) & frozenset(parent.pipes.values())
        return ParentLink.KEPT if shared - _standard(child) - _standard(parent) else ParentLink.LOST
    if child.pipes_unread or parent.pipes_unread:
        return ParentLink.UNKNOWN
    return ParentLink.KEPT if parent.pgrp == child.pgrp and is_python(parent) else ParentLink.SEEMS_LOST


def _is_left_over(child: Process, parent: Process, processes: ProcessTable) -> bool:
    """Whether an engine's child without a creator's pipes has certainly been adopted.

    People start such programs by hand as well, and torchrun does. So nothing but this tells: process 1 has it and did
    not start it as a service (systemd makes each a session of its own), or what led its process group is gone and its
    parent is of another.
    """
    if parent.id.pid == 1:
        return child.session != child.id.pid
    return child.pgrp != parent.pgrp and child.pgrp not in processes.by_pid and child.pgrp not in processes.denied


def ancestors(process: Process, processes: ProcessTable) -> Iterator[Process]:
    """From the parent upwards."""
    seen = {process.id.pid}
    above = processes.by_pid.get(process.ppid)
    while above is not None and above.id.pid not in seen:  # parents are not all read at the same instant
        yield above
        seen.add(above.id.pid)
        above = processes.by_pid.get(above.ppid)


def _standard(process: Process) -> frozenset[int]:
    pipes = process.pipes or {}
    return frozenset(pipes[fd] for fd in _STANDARD if fd in pipes)


def _has_raylet(actor: Process, processes: ProcessTable) -> bool:
    """Whether a raylet lives above it, or one of its user's lives: an actor in a container has another parent."""
    if any(ancestor.comm == _RAYLET and not ancestor.zombie for ancestor in ancestors(actor, processes)):
        return True
    return any(
        process.comm == _RAYLET and not process.zombie and process.uid == actor.uid
        for process in processes.by_pid.values()
    )
