"""Which processes a clean-up ends: trees of orphans, each as a whole or not at all, and their trackers. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from llmhost.decide.cleanup.context import Ground, orphans_in_condition, stays_as_it_listens
from llmhost.decide.cleanup.steps import Condition, Ending, Skipped
from llmhost.derive.activation import is_up
from llmhost.derive.parentage import ancestors
from llmhost.derive.trackers import TrackerState
from llmhost.model.engines import tracker_fd
from llmhost.model.ids import ProcessId
from llmhost.model.process import Home, Process, ProcessTable, Role
from llmhost.model.reading import Failed, Ok

_STANDARD = (0, 1, 2)
_ORPHAN = "orphans: whoever they worked for is gone"
_TRACKER = "trackers that nobody is left to hold; waited for first, as they clean up by themselves"
_ID = 12  # of a container's 64 digits, as its tools show it


@dataclass(slots=True)
class ProcessSteps:
    ready: list[Ending] = field(default_factory=list)
    waiting: list[Ending] = field(default_factory=list)
    left: list[Skipped] = field(default_factory=list)


def process_steps(ground: Ground) -> ProcessSteps:
    """Decide on every orphan and orphaned tracker. Endings come topmost first, trackers last."""
    steps = ProcessSteps()
    found = orphans_in_condition(ground.view)
    orphans = [process for one in found if (process := ground.table.of(one)) is not None]
    told = ground.view.facts.orphans
    ripe = {one.process.id for one in told.value} if isinstance(told, Ok) else set()
    others = others_by_pipe(orphans, ground.table)
    for tree in trees(orphans, ground.table):
        kept = _kept(tree, found, others, ground)
        _take_tree(tree, kept, ripe, ground, steps)
    _take_trackers(ground, steps)
    planned = {step.process.id for step in (*steps.ready, *steps.waiting)} | {orphan.id for orphan in orphans}
    steps.left += _leftovers(ground, planned)
    return steps


def trees(orphans: Sequence[Process], table: ProcessTable) -> list[list[Process]]:
    """Put together who would take whom down: parents and children, a process group, and who shares a pipe."""
    by_id = {orphan.id: orphan for orphan in orphans}
    leader = {orphan.id: orphan.id for orphan in orphans}

    def find(process: ProcessId) -> ProcessId:
        while leader[process] != process:
            leader[process] = process = leader[leader[process]]
        return process

    first: dict[tuple[str, int], ProcessId] = {}
    for orphan in orphans:
        for above in ancestors(
            orphan, table
        ):  # also over one whose first thread has ended, and that looks like a zombie
            if above.id in by_id:
                leader[find(orphan.id)] = find(above.id)
                break
        for key in (("group", orphan.pgrp), *(("pipe", inode) for inode in own_pipes(orphan))):
            other = first.setdefault(key, orphan.id)
            leader[find(orphan.id)] = find(other)
    found: dict[ProcessId, list[Process]] = {}
    for orphan in orphans:
        found.setdefault(find(orphan.id), []).append(orphan)

    def depth(process: Process) -> tuple[int, int]:
        return sum(above.id in by_id for above in ancestors(process, table)), process.id.pid

    return [sorted(tree, key=depth) for _, tree in sorted(found.items())]


def own_pipes(process: Process) -> frozenset[int]:
    """Give the pipes that it shares with its own kind: all but standard input and output, by which anybody hears it."""
    pipes = process.pipes or {}
    return frozenset(pipes.values()) - {pipes[fd] for fd in _STANDARD if fd in pipes}


def others_by_pipe(orphans: Collection[Process], table: ProcessTable) -> Mapping[int, Process]:
    """Find one for each pipe that a process holds which is no orphan; trackers are decided on after all others."""
    among = {orphan.id for orphan in orphans}
    found: dict[int, Process] = {}
    for other in table.by_pid.values():
        if other.pipes and other.id not in among and not other.zombie and other.role is not Role.TRACKER:
            for inode in own_pipes(other):
                found.setdefault(inode, other)
    return found


def _kept(
    tree: Sequence[Process], inferred: Mapping[ProcessId, bool], others: Mapping[int, Process], ground: Ground
) -> Mapping[ProcessId, str]:
    """Say what keeps which of a tree's processes; where it is anything, that keeps them all."""
    kept = {process.id: why for process in tree if (why := _kept_by(process, inferred[process.id], ground))}
    if not kept:
        kept = {process.id: why for process in tree if (why := _kept_by_others(process, tree, others, ground))}
    if not kept:
        new = [process.id for process in tree if not ground.was_planned(process, Condition.ORPHAN)]
        kept = dict.fromkeys(new, "not like an orphan at the first look: clean again")
    return kept


def _take_tree(
    tree: Sequence[Process],
    kept: Mapping[ProcessId, str],
    ripe: Collection[ProcessId],
    ground: Ground,
    steps: ProcessSteps,
) -> None:
    asked = [process for process in tree if ground.wants(process, Condition.ORPHAN)]
    if kept:
        keeper = next(process for process in tree if process.id in kept)
        others = f"ending it would take down {named(keeper)}, which stays"
        steps.left += [_left(process, kept.get(process.id, others), ground) for process in asked]
    elif asked and len(asked) < len(tree):
        steps.left += [
            _left(process, "not all of its tree is asked for, and that goes as a whole", ground) for process in asked
        ]
    elif asked:
        into = steps.ready if all(process.id in ripe for process in tree) else steps.waiting
        into += [_ending(process, Condition.ORPHAN, _ORPHAN, ground) for process in tree]


def _kept_by(process: Process, inferred: bool, ground: Ground) -> str:
    """Say what of the process itself keeps it, and what would let it go; "" for nothing."""
    if why := _not_ours(process, ground) or _still_at_home(process, ground):
        return why
    if inferred:
        return "only seems orphaned, as its pipes may not be read: root can tell"
    return stays_as_it_listens(process, ground.around.listening)


def _not_ours(process: Process, ground: Ground) -> str:
    if process.uid is None:
        return "nobody knows whose"
    if process.uid == ground.request.uid or (ground.request.uid == 0 and ground.request.all_users):
        return ""
    who = "--all-users" if ground.request.uid == 0 else "root, with --all-users,"
    return f"user {process.uid}'s: {who} ends it"


def _still_at_home(process: Process, ground: Ground) -> str:
    """Say whether a container or a unit that is up answers for it."""
    place = process.placement
    if place.home is Home.CONTAINER:
        return f"in container {place.container_id[:_ID]}: for its own tools to end"
    if place.unit is not None:
        unit = ground.units.get(place.unit)
        if unit is None:
            return f"in {place.unit.name}, which is not watched: add that to units.patterns in the config"
        if is_up(unit):
            return f"in {unit.id.name}, which is up: goes when that is stopped"
    owner = ground.owner_of(process)
    if owner is not None and owner.present is not False and is_up(ground.units[owner.unit]):
        return f"of {owner.unit.name}, which is up: goes when that is stopped"
    return ""


def _kept_by_others(process: Process, tree: Sequence[Process], others: Mapping[int, Process], ground: Ground) -> str:
    """Say whom it would take down that is no orphan, or not known to be one."""
    within = {one.id for one in tree}
    for below in descendants(process, ground.table):
        if below.id.pid == ground.around.own_pid:
            return "runs this very command"
        if below.id not in within and not below.zombie and below.role is not Role.TRACKER:
            return f"below it is {named(below)}, which is no orphan"
    for inode in sorted(own_pipes(process)):
        if inode in others:
            return f"shares a pipe with {named(others[inode])}, which is no orphan, and may work with it"
    return ""


def descendants(process: Process, table: ProcessTable) -> Iterator[Process]:
    waiting, seen = [process], {process.id.pid}
    while waiting:
        one = waiting.pop()
        yield one
        for pid in table.children.get(one.id.pid, ()):
            if pid not in seen and pid in table.by_pid:
                seen.add(pid)
                waiting.append(table.by_pid[pid])


def _take_trackers(ground: Ground, steps: ProcessSteps) -> None:
    """End a tracker only after all others that hold its pipe: it then cleans up and ends by itself, or hangs."""
    states = ground.view.facts.trackers
    ready, waiting = ({step.process.id for step in these} for these in (steps.ready, steps.waiting))
    for one, state in sorted(states.value.items()) if isinstance(states, Ok) else ():
        tracker = ground.table.of(one)
        if tracker is None or not ground.wants(tracker, Condition.TRACKER):
            continue
        holders = pipe_holders(tracker, ground.table)
        creator_goes = (
            state is TrackerState.ATTACHED and holders and all(holder.id in ready | waiting for holder in holders)
        )
        if state is not TrackerState.ORPHANED and not creator_goes:
            continue
        why = _not_ours(tracker, ground) or _still_at_home(tracker, ground)
        if not why and holders is None:
            why = "who else holds its pipe cannot be told: root can tell"
        if not why:
            kept = [process for process in holders or () if process.id not in ready | waiting]
            why = f"{named(kept[0])} stays and holds its pipe: ends by itself after that" if kept else ""
        below = [
            descendant
            for descendant in descendants(tracker, ground.table)
            if descendant.id != tracker.id and not descendant.zombie
        ]
        if not why:
            kept = [process for process in below if process.id not in ready | waiting]
            why = f"below it is {named(kept[0])}, which stays" if kept else ""
        if not why and not ground.was_planned(tracker, Condition.TRACKER):
            why = "not orphaned at the first look: clean again"
        if why:
            steps.left.append(_left(tracker, why, ground))
            continue
        into = steps.ready if all(one.id in ready for one in (*(holders or ()), *below)) else steps.waiting
        into.append(_ending(tracker, Condition.TRACKER, _TRACKER, ground))


def pipe_holders(tracker: Process, table: ProcessTable) -> list[Process] | None:
    """Find who holds the pipe that it reads; None where that cannot be told."""
    number = tracker_fd(tracker.argv)
    inode = None if number is None or tracker.pipes is None else tracker.pipes.get(number)
    if inode is None or tracker.id.pid in table.holders_untold:
        return None
    return [
        process
        for process in table.by_pid.values()
        if process.id != tracker.id
        and not process.zombie
        and process.pipes is not None
        and inode in process.pipes.values()
    ]


def _leftovers(ground: Ground, known: Collection[ProcessId]) -> Iterator[Skipped]:
    for process in ground.table.by_pid.values():
        if process.id in known or process.zombie or process.role is Role.TRACKER:
            continue
        owner = ground.owner_of(process)
        if owner is None or owner.present is not False or not ground.wants(process, Condition.LEFTOVER):
            continue
        why = f"of an ended run of {owner.unit.name}, but no orphan: for that unit's guard to end, with --reap"
        yield _left(process, why, ground)


def named(process: Process) -> str:
    """Name a process for people: by its title, as the kernel cuts that in comm."""
    title = process.argv[0] if process.engine and process.argv and "::" in process.argv[0] else process.comm
    return f"{process.id.pid} {title}"


def _left(process: Process, because: str, ground: Ground) -> Skipped:
    return Skipped(subject=process, unit=ground.unit_of(process), because=because)


def _ending(process: Process, condition: Condition, because: str, ground: Ground) -> Ending:
    return Ending(
        process=process,
        condition=condition,
        unit=ground.unit_of(process),
        gpu_bytes=_gpu_bytes(process, ground),
        because=because,
    )


def _gpu_bytes(process: Process, ground: Ground) -> int | None:
    attribution = ground.view.facts.attribution
    if not isinstance(attribution, Ok):
        return None
    total = 0
    for gpu in attribution.value.values():
        for holder in gpu.value.holders if isinstance(gpu, Ok) else ():
            if holder.process == process.id:
                if holder.used_bytes is None:
                    return None
                total += holder.used_bytes
        if isinstance(gpu, Failed):
            return None
    return total
