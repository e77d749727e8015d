"""The input of a plan: a view of the host, the request, and facts that are read of few processes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from llmhost.decide.cleanup.steps import CleanupRequest, Condition, Ending, Plan, Removal
from llmhost.decide.in_use import Uses
from llmhost.derive.host_view import HostView
from llmhost.derive.orphans import orphan_conditions
from llmhost.derive.segment_age import latest_change
from llmhost.derive.unit_membership import UnitMemberships
from llmhost.model.host import Host
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Process, ProcessTable, Role
from llmhost.model.reading import Failed, NotApplicable, Ok, Reading
from llmhost.model.segment import Segment, SegmentId
from llmhost.model.unit import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """`uses` are of those that `to_ask_for_use` gives, `foreign_pids` of the tmpfs that was read."""

    own_pid: int
    uses: Uses = field(default_factory=dict)
    foreign_pids: Reading[frozenset[int]] = field(default_factory=lambda: NotApplicable("not looked at"))
    """Pids of processes of another PID namespace than ours that have the tmpfs mounted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanContext:
    """The input of a plan; of the view, all that a plan takes was read.

    `first` is the content of an earlier plan; then only that may be a step.
    """

    view: HostView
    table: ProcessTable
    host: Host
    units: Mapping[UnitId, Unit]
    owners: UnitMemberships
    request: CleanupRequest
    process_context: ProcessContext
    first: "Planned | None"

    def unit_of(self, process: Process) -> UnitId | None:
        """Give the unit that it runs in, or was last known to."""
        if process.placement.unit is not None:
            return process.placement.unit
        known = self.view.history.process_runs.get(process.id)
        return known.unit if known is not None else None

    @property
    def boottime(self) -> float:
        """Now, in seconds on CLOCK_BOOTTIME."""
        return self.view.snapshot.at_monotonic + self.host.boottime_ahead_seconds

    def started(self, process: Process) -> float:
        """Return its start, in seconds on CLOCK_BOOTTIME."""
        return process.id.start_ticks / self.host.ticks_per_second

    def latest_change(self, segment: Segment) -> float:
        return latest_change(segment, self.view.history, self.host)

    def seems_changed(self, segment: Segment) -> float:
        """Return the time of its last change by the wall clock as it is set now, in seconds on CLOCK_BOOTTIME."""
        return segment.changed_at - self.view.snapshot.at + self.boottime

    def wants(self, process: Process, condition: Condition) -> bool:
        if self.request.kinds and condition not in self.request.kinds:
            return False
        if self.request.units and self.unit_of(process) not in self.request.units:
            return False
        older = self.request.older_than_seconds
        return not older or self.boottime - self.started(process) >= older

    def was_planned(self, process: Process, condition: Condition) -> bool:
        return self.first is None or (process.id, condition) in self.first.processes

    def was_planned_unchanged(self, segment: Segment) -> bool:
        return self.first is None or (segment.id, segment.changed_at) in self.first.files


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The content of an earlier plan, ready or waiting: processes by condition, segments by their last change."""

    processes: frozenset[tuple[ProcessId, Condition]]
    files: frozenset[tuple[SegmentId, float]]


def planned_in(first: Plan) -> Planned:
    steps = (*first.steps, *first.waiting)
    return Planned(
        processes=frozenset((step.process.id, step.condition) for step in steps if isinstance(step, Ending)),
        files=frozenset((step.segment.id, step.segment.changed_at) for step in steps if isinstance(step, Removal)),
    )


def orphans_in_condition(view: HostView) -> Mapping[ProcessId, bool]:
    """Give the processes in an orphan's condition, however long; the value says whether that is inferred."""
    found = orphan_conditions(view.snapshot, view.history.orphan_since.keys())
    return found.value if isinstance(found, Ok) else {}


def to_ask_for_use(view: HostView) -> Iterator[Process]:
    """Give the processes of which a plan depends on whether they are in use: orphans, and trackers."""
    if not isinstance(view.snapshot.processes, Ok):
        return
    table, orphans = view.snapshot.processes.value, orphans_in_condition(view)
    for process in table.by_pid.values():
        if process.id in orphans or (process.role is Role.TRACKER and not process.zombie):
            yield process


def unread(what: str, reading: Failed | NotApplicable) -> str:
    """Say for people why a reading is missing; `what` is a plural."""
    if isinstance(reading, NotApplicable):
        return f"{what} are not looked at: {reading.why}"
    detail = f" ({reading.detail})" if reading.detail else ""
    return f"{what} cannot be read: {reading.cause.words}{detail}"
