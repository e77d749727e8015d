"""What a clean-up has to know beside a look, of few processes; and what its parts go by."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from llmhost.decide.cleanup.steps import CleanupRequest, Condition, Ending, Plan, Removal
from llmhost.derive.host_view import HostView
from llmhost.derive.orphans import orphan_conditions
from llmhost.derive.unit_membership import Owner, Owners
from llmhost.model.host import Host
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Process, ProcessTable, Role
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.segment import Segment, SegmentId
from llmhost.model.unit import Unit

# An engine's parts listen for each other (each vLLM worker on some eight ports of loopback), and serve nobody else.
_PARTS = frozenset({Role.CORE, Role.COORDINATOR, Role.WORKER})


Listening = Mapping[ProcessId, Reading[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """`listening` is of those that `to_ask_for_listeners` gives, `strangers` of the tmpfs that was looked at."""

    own_pid: int
    listening: Listening = field(default_factory=dict)
    strangers: Reading[frozenset[int]] = field(default_factory=lambda: NotApplicable("not looked at"))
    """Pids of processes of another PID namespace than ours that have the tmpfs mounted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a plan is made from: the look, of which all that it takes was read, what was asked for, and what is around.

    `first` is what the plan of an earlier look had; then only that may be a step.
    """

    view: HostView
    table: ProcessTable
    host: Host
    units: Mapping[UnitId, Unit]
    request: CleanupRequest
    around: Around
    first: "Planned | None"

    def owner_of(self, process: Process) -> Owner | None:
        belongings = self.view.history.belongings
        owners = Owners(units=self.units, processes=self.table, host=self.host, belongings=belongings)
        return owners.of(process)

    def unit_of(self, process: Process) -> UnitId | None:
        """Give the unit in which it runs, or was seen to."""
        if process.placement.unit is not None:
            return process.placement.unit
        known = self.view.history.belongings.get(process.id)
        return known.unit if known is not None else None

    def started_at(self, process: Process) -> float:
        """When it started, in seconds since the epoch, by the clock as it is set now."""
        snapshot = self.view.snapshot
        booted_at = snapshot.at - snapshot.at_monotonic - self.host.boottime_ahead_seconds
        return booted_at + process.id.start_ticks / self.host.ticks_per_second

    def wants(self, process: Process, condition: Condition) -> bool:
        if self.request.kinds and condition not in self.request.kinds:
            return False
        if self.request.units and self.unit_of(process) not in self.request.units:
            return False
        older = self.request.older_than_seconds
        return not older or self.view.snapshot.at - self.started_at(process) >= older

    def was_planned(self, process: Process, condition: Condition) -> bool:
        return self.first is None or (process.id, condition) in self.first.processes

    def was_planned_unchanged(self, segment: Segment) -> bool:
        return self.first is None or (segment.id, segment.changed_at) in self.first.files


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What an earlier plan had, ready or waiting: processes by condition, files by their last change."""

    processes: frozenset[tuple[ProcessId, Condition]]
    files: frozenset[tuple[SegmentId, float]]


def planned_in(first: Plan) -> Planned:
    steps = (*first.steps, *first.waiting)
    return Planned(
        processes=frozenset((step.process.id, step.condition) for step in steps if isinstance(step, Ending)),
        files=frozenset((step.segment.id, step.segment.changed_at) for step in steps if isinstance(step, Removal)),
    )


def orphans_in_condition(view: HostView) -> Mapping[ProcessId, bool]:
    """Give whoever is in an orphan's condition, however long; the value says whether that is inferred."""
    found = orphan_conditions(view.snapshot, view.history.orphan_since.keys())
    return found.value if isinstance(found, Ok) else {}


def serves_others(process: Process) -> bool:
    """Whether a port on which it listens is for others than its own tree."""
    return process.role not in _PARTS


def stays_as_it_listens(process: Process, listening: Listening) -> str:
    """Say why a server that nobody owns any more stays: somebody may use it. "" where nobody can."""
    if not serves_others(process):
        return ""
    listens = listening.get(process.id, Failed(Cause.UNKNOWN))
    if listens == Ok(True):
        return "still listens, and may serve somebody: for a person to end, if nobody uses it"
    if isinstance(listens, Failed) and listens.cause is Cause.NETWORK_NAMESPACE:
        return "may listen in its own network namespace, which is not looked into: for a person to end"
    return "" if isinstance(listens, Ok) else "whether it listens cannot be told: root can tell"


def to_ask_for_listeners(view: HostView) -> Iterator[Process]:
    """Give the processes of which has to be known whether they listen."""
    if not isinstance(view.snapshot.processes, Ok):
        return
    for one in orphans_in_condition(view):
        process = view.snapshot.processes.value.of(one)
        if process is not None and serves_others(process):
            yield process


def unread(what: str, reading: Failed | NotApplicable) -> str:
    """Say for people why there is nothing to go by; `what` is a plural."""
    if isinstance(reading, NotApplicable):
        return f"{what} are not looked at: {reading.why}"
    detail = f" ({reading.detail})" if reading.detail else ""
    return f"{what} cannot be read: {reading.cause.words}{detail}"
