"""Which files of shared memory a clean-up removes: of known kinds, and such as nobody can come for any more. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from llmhost.decide.cleanup.context import Ground
from llmhost.decide.cleanup.steps import Left, Removal
from llmhost.decide.process_trees import named
from llmhost.derive.activation import activation_began, waits_to_restart
from llmhost.derive.segments import SegmentState
from llmhost.model.children import is_bare_child
from llmhost.model.ids import ProcessId
from llmhost.model.process import Process, Role
from llmhost.model.reading import Ok
from llmhost.model.segment import Segment, SegmentKind

REPORTED_ONLY: Mapping[SegmentKind, str] = {
    SegmentKind.CUDA: "files of CUDA and MPS are never removed: a driver may come for them",
    SegmentKind.OTHER: "files of unknown names are never removed: shm.kinds in the config says what they are",
}
_CLOCK_SECONDS = 1.0  # what a process's start and a file's change may be apart by their clocks (ticks, jiffies, NTP)
_UNHELD = "nobody holds them, and nobody is left who may come for them"


@dataclass(slots=True)
class SegmentSteps:
    ready: list[Removal] = field(default_factory=list)
    waiting: list[Removal] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    unknown: int = 0  # of kinds that are cleaned, and nobody can tell whether they are held


def segment_steps(ground: Ground, ending: Mapping[ProcessId, bool]) -> SegmentSteps:
    """Decide on every file that nobody holds. `ending` are the processes of the plan; the value: not waiting."""
    steps = SegmentSteps()
    shared, states = ground.view.snapshot.shm, ground.view.facts.segments
    if not isinstance(shared, Ok) or not isinstance(states, Ok):
        return steps
    rules = _Rules(ground, ending)
    for segment in shared.value.segments:
        if segment.holders is None:
            steps.unknown += segment.kind not in REPORTED_ONLY
        if segment.holders is None or segment.holders or not rules.wants(segment):
            continue
        if segment.kind in REPORTED_ONLY:
            if states.value[segment.id] is SegmentState.STALE:
                steps.left.append(rules.left(segment, REPORTED_ONLY[segment.kind]))
            continue
        ripe, after, why = rules.judged(segment)
        if why:
            steps.left.append(rules.left(segment, why))
            continue
        into = steps.ready if ripe and all(ending[process] for process in after) else steps.waiting
        into.append(
            Removal(
                segment=segment,
                unit=ground.view.history.segment_units.get(segment.id),
                because=_UNHELD,
                after=after,
            )
        )
    return steps


class _Rules:
    def __init__(self, ground: Ground, ending: Mapping[ProcessId, bool]) -> None:
        self._ground = ground
        self._ending = ending
        self._since = ground.view.history.unheld_since
        self._grace_seconds = ground.view.policy.segment_grace_seconds
        self._owners = _Owners(ground, ending)
        self._loading = tuple(_loading(ground))

    def wants(self, segment: Segment) -> bool:
        wish, view = self._ground.wish, self._ground.view
        if wish.kinds and segment.kind not in wish.kinds:
            return False
        if wish.units and view.history.segment_units.get(segment.id) not in wish.units:
            return False
        older = wish.older_than_seconds
        return not older or view.snapshot.at - segment.changed_at >= older

    def left(self, segment: Segment, because: str) -> Left:
        return Left(subject=segment, unit=self._ground.view.history.segment_units.get(segment.id), because=because)

    def judged(self, segment: Segment) -> tuple[bool, frozenset[ProcessId], str]:
        """Say whether it was watched for long enough, what of the plan has to end before, and what keeps it."""
        ripe = segment.inspected_at - self._since.get(segment.id, segment.inspected_at) >= self._grace_seconds
        uid = self._ground.wish.uid
        if uid not in (0, segment.uid):
            return ripe, frozenset(), f"user {segment.uid}'s: for root to remove"
        for name, began_at in self._loading:
            if segment.changed_at >= began_at:
                return ripe, frozenset(), f"{name} is starting, and this is no older: clean once that is up"
        after, why = self._creator(segment)
        if not why and segment.kind is SegmentKind.PYTHON_SHM:
            more, why = self._owners.older_than(segment)
            after |= more
        if not why and not self._ground.was_planned_unchanged(segment):
            why = "in use, or another, at the first look: clean again"
        return ripe, after, why

    def _creator(self, segment: Segment) -> tuple[frozenset[ProcessId], str]:
        """Judge the pid in a name, which is of whichever PID namespace the maker ran in."""
        if segment.creator_pid is None:
            return frozenset(), ""
        strangers = self._ground.around.strangers
        if not isinstance(strangers, Ok):
            return frozenset(), "whether the pid in its name is a container's cannot be told: root can tell"
        if strangers.value:
            who = f"process {min(strangers.value)} of another PID namespace shares the tmpfs"
            return frozenset(), f"{who}, so the pid in its name says nothing: can go after that"
        table = self._ground.table
        creator = table.by_pid.get(segment.creator_pid)
        if creator is not None and creator.id in self._ending:
            return frozenset({creator.id}), ""
        if creator is not None and not creator.zombie:
            return frozenset(), f"{named(creator)} has the pid in its name: can go after that"
        if segment.creator_pid in table.denied:
            return frozenset(), f"process {segment.creator_pid}, the pid in its name, cannot be read"
        return frozenset(), ""


class _Owners:
    """Who may still come for a file that was made by Python's multiprocessing, by name: there is no maker in it."""

    def __init__(self, ground: Ground, ending: Mapping[ProcessId, bool]) -> None:
        self._unreadable = ground.table.unreadable
        self._staying: dict[int, tuple[float, Process]] = {}  # by uid, the oldest that stays
        self._ending: dict[int, list[tuple[float, ProcessId]]] = {}
        for process in ground.table.by_pid.values():
            if process.zombie or process.uid is None or not _is_of_multiprocessing(process):
                continue
            started_at = ground.started_at(process)
            if process.id in ending:
                self._ending.setdefault(process.uid, []).append((started_at, process.id))
            elif process.uid not in self._staying or started_at < self._staying[process.uid][0]:
                self._staying[process.uid] = (started_at, process)
        for of_user in self._ending.values():
            of_user.sort()

    def older_than(self, segment: Segment) -> tuple[frozenset[ProcessId], str]:
        if self._unreadable:
            return frozenset(), "not every process can be read, and one may come for it by name: root can tell"
        until = segment.changed_at + _CLOCK_SECONDS
        started_at, process = self._staying.get(segment.uid, (until + 1, None))
        if process is not None and started_at <= until:
            why = f"{named(process)} is as old and its user's, and may come for it by name: can go after that"
            return frozenset(), why
        older = self._ending.get(segment.uid, [])
        count = bisect_right(older, until, key=lambda one: one[0])
        return frozenset(one for _, one in older[:count]), ""


def _is_of_multiprocessing(process: Process) -> bool:
    return bool(process.engine) or process.role is Role.TRACKER or is_bare_child(process)


def _loading(ground: Ground) -> Iterator[tuple[str, float]]:
    """Give the units that are starting, and since when at the earliest, in seconds since the epoch.

    CLOCK_MONOTONIC stands still while the machine is suspended, which it may have been in between.
    """
    snapshot = ground.view.snapshot
    for unit in ground.units.values():
        if unit.active_state != "activating" or waits_to_restart(unit):
            continue
        began = activation_began(unit)
        ago = float("inf") if began is None else snapshot.at_monotonic - began + ground.host.boottime_ahead_seconds
        yield unit.id.name, snapshot.at - ago - _CLOCK_SECONDS
