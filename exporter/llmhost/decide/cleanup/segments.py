"""The segments that a clean-up removes: of known kinds, and such that no process can open any more. Pure."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from llmhost.decide.cleanup.context import PlanContext
from llmhost.decide.cleanup.steps import Removal, Skipped
from llmhost.derive.activation import activation_began, is_up, waits_to_restart
from llmhost.derive.segment_age import CLOCK_SECONDS
from llmhost.derive.segments import SegmentState
from llmhost.model.children import is_bare_child, is_python
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Process, Role
from llmhost.model.reading import Ok
from llmhost.model.segment import Segment, SegmentKind

REPORTED_ONLY: Mapping[SegmentKind, str] = {
    SegmentKind.CUDA: "files of CUDA and MPS are never removed: a driver may come for them",
    SegmentKind.OTHER: "files of unknown names are never removed: shm.kinds in the config says what they are",
}
_NOBODY = (math.inf, None)
_UNHELD = "nobody holds them, and nobody is left who may come for them"


@dataclass(slots=True)
class SegmentSteps:
    ready: list[Removal] = field(default_factory=list)
    waiting: list[Removal] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    unknown: int = 0  # segments of kinds that are cleaned, of unknown state


def segment_steps(context: PlanContext, ending: Mapping[ProcessId, bool]) -> SegmentSteps:
    """Decide on every segment without a holder. `ending`: the processes of the plan, False for those that wait."""
    steps = SegmentSteps()
    shared, states = context.view.snapshot.shm, context.view.facts.segments
    if not isinstance(shared, Ok) or not isinstance(states, Ok):
        return steps
    rules = _Rules(context, ending)
    for segment in shared.value.segments:
        if segment.holders is None:
            steps.unknown += segment.kind not in REPORTED_ONLY
        if segment.holders is None or segment.holders or not rules.selects(segment):
            continue
        if segment.kind in REPORTED_ONLY:
            if states.value[segment.id] is SegmentState.STALE:
                steps.skipped.append(rules.skipped(segment, REPORTED_ONLY[segment.kind]))
            continue
        after, why = rules.judge(segment)
        if why:
            steps.skipped.append(rules.skipped(segment, why))
            continue
        ready = rules.grace_elapsed(segment) and all(ending[process] for process in after)
        into = steps.ready if ready else steps.waiting
        into.append(Removal(segment=segment, unit=rules.unit_of(segment), because=_UNHELD, after=after))
    return steps


class _Rules:
    def __init__(self, context: PlanContext, ending: Mapping[ProcessId, bool]) -> None:
        self._context = context
        self._ending = ending
        self._since = context.view.history.unheld_since
        self._grace_seconds = context.view.policy.segment_grace_seconds
        self._openers = _PossibleOpeners(context, ending)
        self._starting = tuple(_starting_units(context))

    def unit_of(self, segment: Segment) -> UnitId | None:
        return self._context.view.history.segment_units.get(segment.id)

    def selects(self, segment: Segment) -> bool:
        """Tell if a segment is within the request."""
        request = self._context.request
        if request.kinds and segment.kind not in request.kinds:
            return False
        if request.units and self.unit_of(segment) not in request.units:
            return False
        older = request.older_than_seconds
        return not older or self._context.boottime - self._context.latest_change(segment) >= older

    def skipped(self, segment: Segment, because: str) -> Skipped:
        return Skipped(subject=segment, unit=self.unit_of(segment), because=because)

    def grace_elapsed(self, segment: Segment) -> bool:
        return segment.inspected_at - self._since.get(segment.id, segment.inspected_at) >= self._grace_seconds

    def judge(self, segment: Segment) -> tuple[frozenset[ProcessId], str]:
        """Return the processes of the plan that have to end before, and the reason to skip it: "" for none."""
        uid = self._context.request.uid
        if uid not in (0, segment.uid):
            return frozenset(), f"user {segment.uid}'s: for root to remove"
        latest = self._context.latest_change(segment)
        for name, began in self._starting:
            if latest >= began - CLOCK_SECONDS:
                return frozenset(), f"{name} is starting, and this is no older: clean once that is up"
        after, why = self._judge_creator(segment)
        if not why and segment.kind is SegmentKind.PYTHON_SHM:
            more, why = self._openers.as_old_as(segment)
            after |= more
        if not why and not self._context.was_planned_unchanged(segment):
            why = "in use, or another, at the first look: clean again"
        return after, why

    def _judge_creator(self, segment: Segment) -> tuple[frozenset[ProcessId], str]:
        """Judge the pid in a name, which counts in the PID namespace of the creator."""
        if segment.creator_pid is None:
            return frozenset(), ""
        foreign_pids = self._context.process_context.foreign_pids
        if not isinstance(foreign_pids, Ok):
            return frozenset(), "whether the pid in its name is a container's cannot be told: root can tell"
        if foreign_pids.value:
            sharer = f"process {min(foreign_pids.value)} of another PID namespace shares the tmpfs"
            return frozenset(), f"{sharer}, so the pid in the name says nothing; can go once that has ended"
        table = self._context.table
        creator = table.by_pid.get(segment.creator_pid)
        if creator is not None and creator.id in self._ending:
            return frozenset({creator.id}), ""
        if creator is not None and not creator.zombie:
            who, step = _who_and_step(self._context, creator)
            return frozenset(), f"named after the pid of {who}; {step}"
        if segment.creator_pid in table.denied:
            return frozenset(), f"process {segment.creator_pid}, the pid in its name, cannot be read"
        return frozenset(), ""


class _PossibleOpeners:
    """Processes that may still open a segment of Python's multiprocessing by its name, which names no creator.

    Those of its user are what uses multiprocessing. Those of the unit whose processes held it are all Pythons: nothing
    shows that one uses SharedMemory(track=False).
    """

    def __init__(self, context: PlanContext, ending: Mapping[ProcessId, bool]) -> None:
        self._unreadable = context.table.unreadable
        self._context = context
        self._staying: dict[int | UnitId, tuple[float, Process]] = {}  # by user and by unit, the oldest that stays
        self._ending: dict[int, list[tuple[float, ProcessId]]] = {}
        for process in context.table.by_pid.values():
            started = context.started(process)
            user = process.uid if _uses_multiprocessing(process) else None
            if process.zombie:
                continue
            if process.id not in ending:
                for key in (user, context.unit_of(process) if is_python(process) else None):
                    if key is not None and (key not in self._staying or started < self._staying[key][0]):
                        self._staying[key] = (started, process)
            elif user is not None:
                self._ending.setdefault(user, []).append((started, process.id))
        for of_user in self._ending.values():
            of_user.sort()

    def as_old_as(self, segment: Segment) -> tuple[frozenset[ProcessId], str]:
        """Return those of the plan that are as old, or the reason why one that stays keeps the segment."""
        if self._unreadable:
            return frozenset(), "not every process can be read, and one may come for it by name: root can tell"
        until = self._context.latest_change(segment) + CLOCK_SECONDS
        unit = self._context.view.history.segment_units.get(segment.id)
        for started, process in (
            self._staying.get(segment.uid, _NOBODY),
            self._staying.get(unit, _NOBODY) if unit is not None else _NOBODY,
        ):
            if process is not None and started <= until:
                certain = started <= self._context.seems_changed(segment) + CLOCK_SECONDS
                as_old = "" if certain else ", which may be as old, as the clock was set or not watched since"
                who, step = _who_and_step(self._context, process)
                return frozenset(), f"may still be opened by name by {who}{as_old}; {step}"
        ending = self._ending.get(segment.uid, [])
        count = bisect_right(ending, until, key=lambda entry: entry[0])
        return frozenset(process_id for _, process_id in ending[:count]), ""


def _who_and_step(context: PlanContext, process: Process) -> tuple[str, str]:
    """Name a process that stays, by its unit if that is up, and say what has to happen before its files can go."""
    unit = context.units.get(process.placement.unit) if process.placement.unit is not None else None
    if unit is not None and is_up(unit):
        return f"{unit.id.name} (pid {process.id.pid})", "can go once that unit has stopped"
    return process.name, "can go once that process has ended"


def _uses_multiprocessing(process: Process) -> bool:
    return bool(process.engine) or process.role is Role.TRACKER or is_bare_child(process)


def _starting_units(context: PlanContext) -> Iterator[tuple[str, float]]:
    """Yield the units that are starting, with the earliest time at which they began, in seconds on CLOCK_BOOTTIME.

    systemd gives it on CLOCK_MONOTONIC, which stands still while the machine is suspended: they may differ since.
    """
    for unit in context.units.values():
        if unit.active_state != "activating" or waits_to_restart(unit):
            continue
        began = activation_began(unit)
        yield unit.id.name, -math.inf if began is None else began
