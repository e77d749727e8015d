"""The processes that a clean-up ends: trees of orphans, and their trackers. Pure."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from llmhost.decide.cleanup.context import PlanContext, orphans_in_condition
from llmhost.decide.cleanup.steps import Condition, Ending, Skipped
from llmhost.decide.in_use import lives_elsewhere
from llmhost.decide.process_trees import (
    KeepReasons,
    Tree,
    TreePolicy,
    judged_trees,
    pipe_holders,
    tracker_stays,
)
from llmhost.derive.activation import is_up
from llmhost.derive.trackers import TrackerState
from llmhost.model.ids import ProcessId
from llmhost.model.process import Home, Process, Role
from llmhost.model.reading import Failed, Ok

_ORPHAN = "orphans: whoever they worked for is gone"
_TRACKER = "trackers that nobody is left to hold; waited for first, as they clean up by themselves"
_REASONS = KeepReasons(
    above="below it is {}, which is no orphan",
    shares_pipe="shares a pipe with {}, which is no orphan, and may work with it",
    tied="works with {}, which stays",
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


def process_steps(context: PlanContext) -> ProcessSteps:
    """Decide on every orphan and orphaned tracker. Endings come topmost first, trackers last."""
    steps = ProcessSteps()
    inferred = orphans_in_condition(context.view)
    orphans = [process for orphan in inferred if (process := context.table.of(orphan)) is not None]
    known = context.view.facts.orphans
    grace_elapsed = {orphan.process.id for orphan in known.value} if isinstance(known, Ok) else set()

    def is_new(process: Process) -> str:
        planned = context.was_planned(process, Condition.ORPHAN)
        return "" if planned else "not like an orphan at the first look: clean again"

    policy = TreePolicy(
        candidates=orphans,
        stays=lambda process: _kept_by(process, inferred[process.id], context),
        uses=context.process_context.uses,
        stays_after_all=is_new,
        reasons=_REASONS,
        own_pid=context.process_context.own_pid,
    )
    for tree in judged_trees(policy, context.table):
        _take_tree(tree, grace_elapsed, context, steps)
    _take_trackers(context, steps)
    planned = {step.process.id for step in (*steps.ready, *steps.waiting)} | {orphan.id for orphan in orphans}
    steps.skipped += _leftovers(context, planned)
    return steps


def _take_tree(tree: Tree, grace_elapsed: Collection[ProcessId], context: PlanContext, steps: ProcessSteps) -> None:
    requested = [process for process in tree.processes if context.wants(process, Condition.ORPHAN)]
    if tree.kept:
        steps.skipped += [_skip(process, tree.why_kept(process), context) for process in requested]
    elif requested and len(requested) < len(tree.processes):
        why = "not all of its tree is asked for, and that goes as a whole"
        steps.skipped += [_skip(process, why, context) for process in requested]
    elif requested:
        into = steps.ready if all(process.id in grace_elapsed for process in requested) else steps.waiting
        into += [_ending(process, Condition.ORPHAN, _ORPHAN, context) for process in requested]


def _kept_by(process: Process, inferred: bool, context: PlanContext) -> str:
    """Say what of the process itself keeps it, and what would let it go; "" for nothing."""
    if why := _not_ours(process, context) or _still_at_home(process, context):
        return why
    return "only seems orphaned, as its pipes may not be read: root can tell" if inferred else ""


def _not_ours(process: Process, context: PlanContext) -> str:
    if process.uid is None:
        return "nobody knows whose"
    if process.uid == context.request.uid or (context.request.uid == 0 and context.request.all_users):
        return ""
    who = "--all-users" if context.request.uid == 0 else "root, with --all-users,"
    return f"user {process.uid}'s: {who} ends it"


def _still_at_home(process: Process, context: PlanContext) -> str:
    """Say whether a container, a scope that it has moved to, or a unit that is up answers for it."""
    place = process.placement
    if place.home is Home.CONTAINER:
        return f"in container {place.container_id[:_ID]}: for its own tools to end"
    if place.unit is not None:
        unit = context.units.get(place.unit)
        if unit is None:
            return f"in {place.unit.name}, which is not watched: add that to units.patterns in the config"
        if is_up(unit):
            return f"in {unit.id.name}, which is up: goes when that is stopped"
    owner = context.owners.of(process)
    if owner is not None and (elsewhere := lives_elsewhere(place, owner.unit)):
        return f"of {owner.unit.name}, and lives in {elsewhere} by now: for whoever started that to end"
    if owner is not None and owner.present is not False and is_up(context.units[owner.unit]):
        return f"of {owner.unit.name}, which is up: goes when that is stopped"
    return ""


def _take_trackers(context: PlanContext, steps: ProcessSteps) -> None:
    """End a tracker only after all others that hold its pipe: it then cleans up and ends by itself, or hangs."""
    states, uses = context.view.facts.trackers, context.process_context.uses
    ready, waiting = ({step.process.id for step in these} for these in (steps.ready, steps.waiting))
    for tracker_id, state in sorted(states.value.items()) if isinstance(states, Ok) else ():
        tracker = context.table.of(tracker_id)
        if tracker is None or not context.wants(tracker, Condition.TRACKER):
            continue
        holders = pipe_holders(tracker, context.table)
        creator_goes = (
            state is TrackerState.ATTACHED and holders and all(holder.id in ready | waiting for holder in holders)
        )
        if state is not TrackerState.ORPHANED and not creator_goes:
            continue
        why = (
            _not_ours(tracker, context)
            or _still_at_home(tracker, context)
            or tracker_stays(tracker, ready | waiting, _REASONS, context.table, uses)
        )
        if not why and not context.was_planned(tracker, Condition.TRACKER):
            why = "not orphaned at the first look: clean again"
        if why:
            steps.skipped.append(_skip(tracker, why, context))
            continue
        into = steps.waiting if tracker_stays(tracker, ready, _REASONS, context.table, uses) else steps.ready
        into.append(_ending(tracker, Condition.TRACKER, _TRACKER, context))


def _leftovers(context: PlanContext, known: Collection[ProcessId]) -> Iterator[Skipped]:
    for process in context.table.by_pid.values():
        if process.id in known or process.zombie or process.role is Role.TRACKER:
            continue
        owner = context.owners.of(process)
        if owner is None or owner.present is not False or not context.wants(process, Condition.LEFTOVER):
            continue
        why = f"of an ended run of {owner.unit.name}, but no orphan: for that unit's guard to end, with --reap"
        yield _skip(process, why, context)


def _skip(process: Process, because: str, context: PlanContext) -> Skipped:
    return Skipped(subject=process, unit=context.unit_of(process), because=because)


def _ending(process: Process, condition: Condition, because: str, context: PlanContext) -> Ending:
    return Ending(
        process=process,
        condition=condition,
        unit=context.unit_of(process),
        gpu_bytes=_gpu_bytes(process, context),
        because=because,
    )


def _gpu_bytes(process: Process, context: PlanContext) -> int | None:
    attribution = context.view.facts.attribution
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
