"""What is provably dead and can be cleaned up, what is left and why, and what cannot be told. Pure.

What cannot be told is never acted on. A plan that acts is made from two looks, the grace time apart: `plan` with the
first look's plan as `first` takes a step only if that had it too, of the same process or the same unchanged file.
"""

from collections.abc import Iterator

from llmhost.config.schema import Policy
from llmhost.decide.cleanup.context import Around as Around  # noqa: PLC0414 - what a plan is asked with
from llmhost.decide.cleanup.context import Ground, planned_in, unread
from llmhost.decide.cleanup.context import to_ask_for_listeners as to_ask_for_listeners  # noqa: PLC0414
from llmhost.decide.cleanup.processes import ProcessSteps, process_steps
from llmhost.decide.cleanup.segments import REPORTED_ONLY, SegmentSteps, segment_steps
from llmhost.decide.cleanup.steps import Condition, Ending, Plan, Wish
from llmhost.derive.host_view import HostView
from llmhost.model.process import Role
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.segment import SegmentKind, SharedMemory

# Those of an ended activation that are no orphans are the guard's, which knows that its unit is not up.
CLEANED: tuple[SegmentKind | Condition, ...] = (
    Condition.ORPHAN,
    Condition.TRACKER,
    *(kind for kind in SegmentKind if kind not in REPORTED_ONLY),
)


def plan(view: HostView, wish: Wish, around: Around, first: Plan | None = None) -> Plan:
    """Plan what to do on the host as it was seen. See the module for `first`."""
    processes, host, units = view.snapshot.processes, view.snapshot.host, view.snapshot.units
    if not isinstance(processes, Ok):
        return Plan(refused=_refusal("processes", processes))
    if not isinstance(host, Ok):
        return Plan(refused=_refusal("the host's clocks", host))
    if not isinstance(units, Ok):
        return Plan(refused=_refusal("systemd's units, any of which may be starting,", units))
    ground = Ground(
        view=view,
        table=processes.value,
        host=host.value,
        units={unit.id: unit for unit in units.value.units},
        wish=wish,
        around=around,
        first=planned_in(first) if first is not None else None,
    )
    of_processes = process_steps(ground)
    ready = {step.process.id: True for step in of_processes.ready}
    of_segments = segment_steps(ground, ready | {step.process.id: False for step in of_processes.waiting})
    return Plan(
        endings=_trackers_last(of_processes),
        removals=tuple(of_segments.ready),
        waiting=(*of_processes.waiting, *of_segments.waiting),
        left=(*of_processes.left, *of_segments.left),
        unknowns=tuple(_unknowns(view, wish, of_segments)),
    )


def seconds_to_wait(wanted: Plan, policy: Policy) -> float:
    """For how long a plan has to be watched until a second look can confirm it."""
    steps = (*wanted.steps, *wanted.waiting)
    return max(
        (policy.orphan_grace_seconds if isinstance(step, Ending) else policy.segment_grace_seconds for step in steps),
        default=0.0,
    )


def _refusal(what: str, reading: Failed | NotApplicable) -> str:
    if isinstance(reading, Failed) and reading.cause is Cause.PID_NAMESPACE:
        return reading.detail
    return unread(what, reading)


def _trackers_last(steps: ProcessSteps) -> tuple[Ending, ...]:
    return tuple(sorted(steps.ready, key=lambda step: step.condition is Condition.TRACKER))


def _unknowns(view: HostView, wish: Wish, segments: SegmentSteps) -> Iterator[str]:
    """Say what was asked for and could not be looked at."""
    if not wish.kinds or not wish.kinds.isdisjoint(SegmentKind):
        yield from _untold_of_files(view.snapshot.shm, segments)
    if wish.kinds and wish.kinds.isdisjoint(Condition):
        return
    table, trackers = view.snapshot.processes, view.facts.trackers
    if isinstance(table, Ok) and table.value.denied:
        yield f"processes that cannot be read: {len(table.value.denied)}; root can"
    if isinstance(table, Ok) and isinstance(trackers, Ok):
        found = [
            process
            for process in table.value.by_pid.values()
            if process.role is Role.TRACKER and process.id not in trackers.value
        ]
        if found:
            yield f"whether trackers are left over, of which the pipes could not be read: {len(found)}"


def _untold_of_files(shared: Reading[SharedMemory], segments: SegmentSteps) -> Iterator[str]:
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
