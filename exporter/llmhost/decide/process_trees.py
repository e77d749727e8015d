"""Trees of processes that may be ended: each goes as a whole, or not at all. Pure.

These rules hold for `clean` and for the guard's --reap, which differ in the candidates and in what keeps one of them:

- A tree is all processes that take each other down: parents and children, a process group, those that share a pipe.
- A tree stays if anything keeps one of its processes, or if ending it would take down a process that is no candidate.
- A process that others use, or may, stays (`in_use`); and so does what works with one that stays.
- A resource tracker goes after all others, and only with all that hold its pipe and all below it: ended before, it
  leaks what it would have cleaned up.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from llmhost.decide.in_use import Uses, stays_in_use
from llmhost.derive.parentage import ancestors
from llmhost.model.engines import tracker_fd
from llmhost.model.ids import ProcessId
from llmhost.model.process import Process, ProcessTable, Role
from llmhost.model.reading import Ok

Rule: TypeAlias = Callable[[Process], str]  # why a process stays, for people; "" for nothing

_STANDARD = (0, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepReasons:
    """The reasons why processes stay, for people. {} stands for another process."""

    above: str  # another one, which is no candidate
    shares_pipe: str  # with another one, which is no candidate
    tied: str  # another one, which stays, works with it
    tracker_held: str  # another one, which stays, has its pipe
    tracker_above: str  # another one, which stays
    tracker_unknown: str  # the holders of its pipe are not known


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePolicy:
    candidates: Sequence[Process]  # for ending; no trackers
    stays: Rule  # by what a candidate is itself
    uses: Uses  # of the candidates
    stays_after_all: Rule = lambda _: ""  # as `stays`, where nothing else keeps its tree
    reasons: KeepReasons
    own_pid: int


@dataclass(frozen=True, slots=True)
class Tree:
    processes: Sequence[Process]  # topmost first
    kept: Mapping[ProcessId, str]  # those that are kept for themselves, and why; they keep all others

    def why_kept(self, process: Process) -> str:
        keeper = next(member for member in self.processes if member.id in self.kept)
        return self.kept.get(process.id, f"ending it would take down {keeper.name}, which stays")


def judged_trees(policy: TreePolicy, table: ProcessTable) -> list[Tree]:
    """Give the candidates' trees, and what keeps them."""
    outsiders = _outsiders_by_pipe(policy.candidates, table)
    judged = [_judged(tree, outsiders, policy, table) for tree in _trees(policy.candidates, table)]
    changed = True
    while changed:
        going = {process.id for tree in judged if not tree.kept for process in tree.processes}
        before, judged = judged, [tree if tree.kept else _tied(tree, going, policy, table) for tree in judged]
        changed = judged != before
    return judged


def _judged(tree: Sequence[Process], outsiders: Mapping[int, Process], policy: TreePolicy, table: ProcessTable) -> Tree:
    return Tree(
        tree,
        _kept(tree, lambda process: policy.stays(process) or stays_in_use(process, policy.uses))
        or _kept(tree, partial(_takes_down, tree=tree, outsiders=outsiders, policy=policy, table=table))
        or _kept(tree, policy.stays_after_all),
    )


def _kept(tree: Iterable[Process], rule: Rule) -> Mapping[ProcessId, str]:
    return {process.id: why for process in tree if (why := rule(process))}


def _tied(tree: Tree, going: Collection[ProcessId], policy: TreePolicy, table: ProcessTable) -> Tree:
    """Keep a tree that works with a process that stays."""
    return Tree(
        tree.processes,
        _kept(tree.processes, lambda process: _works_with(process, going, policy.reasons, table, policy.uses)),
    )


def _works_with(
    process: Process, going: Collection[ProcessId], reasons: KeepReasons, table: ProcessTable, uses: Uses
) -> str:
    use = uses.get(process.id)
    tied_to = sorted(use.value.tied_to) if isinstance(use, Ok) else ()
    staying = (other for each in tied_to if each not in going and (other := table.of(each)) is not None)
    return next((reasons.tied.format(other.name) for other in staying), "")


def tracker_stays(
    tracker: Process, ending: Collection[ProcessId], reasons: KeepReasons, table: ProcessTable, uses: Uses
) -> str:
    """Say why a tracker stays when these end; "" where it can end after them."""
    if why := stays_in_use(tracker, uses) or _works_with(tracker, ending, reasons, table, uses):
        return why
    holders = pipe_holders(tracker, table)
    if holders is None:
        return reasons.tracker_unknown
    below = (process for process in _descendants(tracker, table) if process.id != tracker.id and not process.zombie)
    for related, why in ((holders, reasons.tracker_held), (below, reasons.tracker_above)):
        for other in related:
            if other.id not in ending:
                return why.format(other.name)
    return ""


def pipe_holders(tracker: Process, table: ProcessTable) -> list[Process] | None:
    """Find the holders of the pipe that a tracker reads; None where they are not known."""
    number = tracker_fd(tracker.argv)
    inode = None if number is None or tracker.pipes is None else tracker.pipes.get(number)
    if inode is None or tracker.id.pid in table.unknown_holders:
        return None
    return [
        process
        for process in table.by_pid.values()
        if process.id != tracker.id
        and not process.zombie
        and process.pipes is not None
        and inode in process.pipes.values()
    ]


def _trees(candidates: Sequence[Process], table: ProcessTable) -> list[list[Process]]:
    by_id = {candidate.id: candidate for candidate in candidates}
    leader = {candidate.id: candidate.id for candidate in candidates}

    def find(process: ProcessId) -> ProcessId:
        while leader[process] != process:
            leader[process] = process = leader[leader[process]]
        return process

    first: dict[tuple[str, int], ProcessId] = {}
    for candidate in candidates:
        # Also above one that looks like a zombie as its first thread has ended.
        for above in ancestors(candidate, table):
            if above.id in by_id:
                leader[find(candidate.id)] = find(above.id)
                break
        for key in (("group", candidate.pgrp), *(("pipe", inode) for inode in _own_pipes(candidate))):
            other = first.setdefault(key, candidate.id)
            leader[find(candidate.id)] = find(other)
    found: dict[ProcessId, list[Process]] = {}
    for candidate in candidates:
        found.setdefault(find(candidate.id), []).append(candidate)

    def depth(process: Process) -> tuple[int, int]:
        return sum(above.id in by_id for above in ancestors(process, table)), process.id.pid

    return [sorted(tree, key=depth) for _, tree in sorted(found.items())]


def _takes_down(
    process: Process, tree: Sequence[Process], outsiders: Mapping[int, Process], policy: TreePolicy, table: ProcessTable
) -> str:
    """Name a process that is no candidate, and that an ending would take down."""
    within = {member.id for member in tree}
    for below in _descendants(process, table):
        if below.id.pid == policy.own_pid:
            return "runs this very command"
        if below.id not in within and not below.zombie and below.role is not Role.TRACKER:
            return policy.reasons.above.format(below.name)
    for inode in sorted(_own_pipes(process)):
        if inode in outsiders:
            return policy.reasons.shares_pipe.format(outsiders[inode].name)
    return ""


def _own_pipes(process: Process) -> frozenset[int]:
    """Give the pipes that it shares with its own kind: all but standard input and output, by which anybody hears it."""
    pipes = process.pipes or {}
    return frozenset(pipes.values()) - {pipes[fd] for fd in _STANDARD if fd in pipes}


def _outsiders_by_pipe(candidates: Collection[Process], table: ProcessTable) -> Mapping[int, Process]:
    """Find one for each pipe that a process holds which is no candidate; trackers are decided on after all others."""
    among = {candidate.id for candidate in candidates}
    found: dict[int, Process] = {}
    for other in table.by_pid.values():
        if other.pipes and other.id not in among and not other.zombie and other.role is not Role.TRACKER:
            for inode in _own_pipes(other):
                found.setdefault(inode, other)
    return found


def _descendants(process: Process, table: ProcessTable) -> Iterator[Process]:
    """Give the process and all below it."""
    waiting, visited = [process], {process.id.pid}
    while waiting:
        process = waiting.pop()
        yield process
        for pid in table.children.get(process.id.pid, ()):
            if pid not in visited and pid in table.by_pid:
                visited.add(pid)
                waiting.append(table.by_pid[pid])
