"""The processes that a clean-up ends: trees of orphans, and their trackers. Pure."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from llmhost.decide.cleanup.context import Ground, orphans_in_condition
from llmhost.decide.cleanup.steps import Condition, Ending, Skipped
from llmhost.decide.process_trees import (
    Tree,
    TreePolicy,
    Words,
    judged_trees,
    pipe_holders,
    stays_as_it_listens,
    tracker_stays,
)
from llmhost.derive.activation import is_up
from llmhost.derive.trackers import TrackerState
from llmhost.model.ids import ProcessId
from llmhost.model.process import Home, Process, Role
from llmhost.model.reading import Failed, Ok

_ORPHAN = "orphans: whoever they worked for is gone"
_TRACKER = "trackers that nobody is left to hold; waited for first, as they clean up by themselves"
_WORDS = Words(
    above="below it is {}, which is no orphan",
    shares_pipe="shares a pipe with {}, which is no orphan, and may work with it",
    tracker_held="{} stays and holds its pipe: ends by itself after that",
    tracker_above="below it is {}, which stays",
    tracker_unknown="who else holds its pipe cannot be told: root can tell",
)
_ID = 12  # of a container's 64 digits, as its tools show it


@dataclass(slots=True)
class ProcessSteps:
    ready: list[Ending] = field(default_factory=list)
    waiting: list[Ending] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def process_steps(ground: Ground) -> ProcessSteps:
    """Decide on every orphan and orphaned tracker. Endings come topmost first, trackers last."""
    steps = ProcessSteps()
    inferred = orphans_in_condition(ground.view)
    orphans = [process for orphan in inferred if (process := ground.table.of(orphan)) is not None]
    known = ground.view.facts.orphans
    ripe = {orphan.process.id for orphan in known.value} if isinstance(known, Ok) else set()

    def is_new(process: Process) -> str:
        planned = ground.was_planned(process, Condition.ORPHAN)
        return "" if planned else "not like an orphan at the first look: clean again"

    policy = TreePolicy(
        candidates=orphans,
        stays=lambda process: _kept_by(process, inferred[process.id], ground),
        stays_after_all=is_new,
        words=_WORDS,
        own_pid=ground.around.own_pid,
    )
    for tree in judged_trees(policy, ground.table):
        _take_tree(tree, ripe, ground, steps)
    _take_trackers(ground, steps)
    planned = {step.process.id for step in (*steps.ready, *steps.waiting)} | {orphan.id for orphan in orphans}
    steps.skipped += _leftovers(ground, planned)
    return steps


def _take_tree(tree: Tree, ripe: Collection[ProcessId], ground: Ground, steps: ProcessSteps) -> None:
    asked = [process for process in tree.processes if ground.wants(process, Condition.ORPHAN)]
    if tree.kept:
        steps.skipped += [_skip(process, tree.why_kept(process), ground) for process in asked]
    elif asked and len(asked) < len(tree.processes):
        why = "not all of its tree is asked for, and that goes as a whole"
        steps.skipped += [_skip(process, why, ground) for process in asked]
    elif asked:
        into = steps.ready if all(process.id in ripe for process in asked) else steps.waiting
        into += [_ending(process, Condition.ORPHAN, _ORPHAN, ground) for process in asked]


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


def _take_trackers(ground: Ground, steps: ProcessSteps) -> None:
    """End a tracker only after all others that hold its pipe: it then cleans up and ends by itself, or hangs."""
    states = ground.view.facts.trackers
    ready, waiting = ({step.process.id for step in these} for these in (steps.ready, steps.waiting))
    for tracker_id, state in sorted(states.value.items()) if isinstance(states, Ok) else ():
        tracker = ground.table.of(tracker_id)
        if tracker is None or not ground.wants(tracker, Condition.TRACKER):
            continue
        holders = pipe_holders(tracker, ground.table)
        creator_goes = (
            state is TrackerState.ATTACHED and holders and all(holder.id in ready | waiting for holder in holders)
        )
        if state is not TrackerState.ORPHANED and not creator_goes:
            continue
        why = (
            _not_ours(tracker, ground)
            or _still_at_home(tracker, ground)
            or tracker_stays(tracker, ready | waiting, _WORDS, ground.table)
        )
        if not why and not ground.was_planned(tracker, Condition.TRACKER):
            why = "not orphaned at the first look: clean again"
        if why:
            steps.skipped.append(_skip(tracker, why, ground))
            continue
        into = steps.waiting if tracker_stays(tracker, ready, _WORDS, ground.table) else steps.ready
        into.append(_ending(tracker, Condition.TRACKER, _TRACKER, ground))


def _leftovers(ground: Ground, known: Collection[ProcessId]) -> Iterator[Skipped]:
    for process in ground.table.by_pid.values():
        if process.id in known or process.zombie or process.role is Role.TRACKER:
            continue
        owner = ground.owner_of(process)
        if owner is None or owner.present is not False or not ground.wants(process, Condition.LEFTOVER):
            continue
        why = f"of an ended run of {owner.unit.name}, but no orphan: for that unit's guard to end, with --reap"
        yield _skip(process, why, ground)


def _skip(process: Process, because: str, ground: Ground) -> Skipped:
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
