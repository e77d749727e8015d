"""The clean-up plan: what is provably dead, what is skipped and why, and what is unknown. Pure.

What is unknown is never acted on. A plan that acts is made from two observations, the grace time apart: `plan` with the
first observation's plan as `first` takes a step only if that had it too, of the same process or unchanged file.
"""

from collections.abc import Iterator

from llmhost.config.schema import Policy
from llmhost.decide.cleanup.context import PlanContext, planned_in, unread
from llmhost.decide.cleanup.context import ProcessContext as ProcessContext  # noqa: PLC0414 - an argument of plan()
from llmhost.decide.cleanup.context import to_ask_for_use as to_ask_for_use  # noqa: PLC0414
from llmhost.decide.cleanup.processes import ProcessSteps, process_steps
from llmhost.decide.cleanup.segments import REPORTED_ONLY, SegmentSteps, segment_steps
from llmhost.decide.cleanup.steps import CleanupRequest, Condition, Ending, Plan, Step
from llmhost.derive.host_view import HostView
from llmhost.derive.unit_membership import UnitMemberships
from llmhost.model.process import Role
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.segment import SegmentKind, SharedMemory

# Leftovers that are no orphans are the guard's: it knows that its unit is not up.
CLEANED: tuple[SegmentKind | Condition, ...] = (
    Condition.ORPHAN,
    Condition.TRACKER,
    *(kind for kind in SegmentKind if kind not in REPORTED_ONLY),
)
_NARROWED = frozenset({Cause.PID_NAMESPACE, Cause.CGROUP_NAMESPACE})  # whose details say what to do


def plan(view: HostView, request: CleanupRequest, process_context: ProcessContext, first: Plan | None = None) -> Plan:
    """Plan the clean-up of a host. See the module for `first`."""
    processes, host, units = view.snapshot.processes, view.snapshot.host, view.snapshot.units
    if not isinstance(processes, Ok):
        return Plan(refused=_refusal("processes", processes))
    if not isinstance(host, Ok):
        return Plan(refused=_refusal("the host's clocks", host))
    if not isinstance(units, Ok):
        return Plan(refused=_refusal("systemd's units, any of which may be starting,", units))
    watched = {unit.id: unit for unit in units.value.units}
    context = PlanContext(
        view=view,
        table=processes.value,
        host=host.value,
        units=watched,
        owners=UnitMemberships(
            units=watched, processes=processes.value, host=host.value, process_runs=view.history.process_runs
        ),
        request=request,
        process_context=process_context,
        first=planned_in(first) if first is not None else None,
    )
    of_processes = process_steps(context)
    ready = {step.process.id: True for step in of_processes.ready}
    of_segments = segment_steps(context, ready | {step.process.id: False for step in of_processes.waiting})
    return Plan(
        endings=_trackers_last(of_processes),
        removals=tuple(of_segments.ready),
        waiting=(*of_processes.waiting, *of_segments.waiting),
        skipped=(*of_processes.skipped, *of_segments.skipped),
        unknowns=tuple(_unknowns(view, request, of_segments)),
        gone=tuple(_gone(first, context)) if first is not None else (),
    )


def seconds_to_wait(first: Plan, policy: Policy) -> float:
    """Return the time after which a second observation can confirm a plan."""
    steps = (*first.steps, *first.waiting)
    return max(
        (policy.orphan_grace_seconds if isinstance(step, Ending) else policy.segment_grace_seconds for step in steps),
        default=0.0,
    )


def _gone(first: Plan, context: PlanContext) -> Iterator[Step]:
    """Yield what the first plan had and nobody has ended or removed on our behalf: it went by itself."""
    shared = context.view.snapshot.shm
    files = {segment.id for segment in shared.value.segments} if isinstance(shared, Ok) else None
    for step in (*first.steps, *first.waiting):
        if isinstance(step, Ending):
            found = context.table.by_pid.get(step.process.id.pid)
            if found is None or found.id != step.process.id or found.zombie:
                yield step
        elif files is not None and step.segment.id not in files:
            yield step


def _refusal(what: str, reading: Failed | NotApplicable) -> str:
    if isinstance(reading, Failed) and reading.cause in _NARROWED:
        return reading.detail
    return unread(what, reading)


def _trackers_last(steps: ProcessSteps) -> tuple[Ending, ...]:
    return tuple(sorted(steps.ready, key=lambda step: step.condition is Condition.TRACKER))


def _unknowns(view: HostView, request: CleanupRequest, segments: SegmentSteps) -> Iterator[str]:
    """Yield what was requested and could not be inspected."""
    if view.config_fault:
        yield f"what the config says: {view.config_fault}"
    if not request.kinds or not request.kinds.isdisjoint(SegmentKind):
        yield from _unknown_segments(view.snapshot.shm, segments)
    if request.kinds and request.kinds.isdisjoint(Condition):
        return
    table, trackers = view.snapshot.processes, view.facts.trackers
    if isinstance(table, Ok) and table.value.denied:
        yield f"processes that cannot be read: {len(table.value.denied)}; root can"
    if isinstance(table, Ok) and isinstance(trackers, Ok):
        unknown = [
            process
            for process in table.value.by_pid.values()
            if process.role is Role.TRACKER and process.id not in trackers.value
        ]
        if unknown:
            yield f"whether trackers are left over, of which the pipes could not be read: {len(unknown)}"


def _unknown_segments(shared: Reading[SharedMemory], segments: SegmentSteps) -> Iterator[str]:
    if isinstance(shared, NotApplicable):
        return  # switched off, and so not missed
    if isinstance(shared, Failed):
        yield _refusal("the files of shared memory", shared)
        return
    if segments.unknown:
        hidden = shared.value.uninspected
        why = (
            f"processes that could not be inspected: {hidden}; root can" if hidden else "not all was looked at in time"
        )
        yield f"whether files of known kinds are held, of {segments.unknown} ({why})"
    if shared.value.unlisted:
        yield f"files that are more than are looked at, or cannot be listed: {shared.value.unlisted}"
