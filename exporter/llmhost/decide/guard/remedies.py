"""The guard's remedies: which processes and segments of ended runs of its own unit may go. Pure.

It has to be proven that they are of such a run (derive/unit_membership), and that is enough: unlike those of a
clean-up, these processes need not be orphans, nor be watched for a while, as their run has ended.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from llmhost.config.schema import Policy
from llmhost.decide.cleanup.context import unread
from llmhost.decide.cleanup.segments import REPORTED_ONLY
from llmhost.decide.cleanup.steps import Condition, Ending, Removal, Skipped
from llmhost.decide.guard.trouble import lasts
from llmhost.decide.in_use import Uses, lives_elsewhere
from llmhost.decide.process_trees import KeepReasons, TreePolicy, judged_trees, tracker_stays
from llmhost.derive.activation import activation_began, is_up
from llmhost.derive.parentage import ancestors
from llmhost.derive.segment_age import CLOCK_SECONDS, latest_change
from llmhost.derive.segments import SegmentState, segment_states
from llmhost.derive.unit_membership import UnitMemberships
from llmhost.model.history.history import History
from llmhost.model.ids import ProcessId, RunId, UnitId
from llmhost.model.process import Process, ProcessTable, Role
from llmhost.model.reading import Ok
from llmhost.model.segment import SharedMemory
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit

_OF_ENDED_RUN = "of an ended run"
_REASONS = KeepReasons(
    above="below it is {}, which stays",
    shares_pipe="shares a pipe with {}, which stays",
    tied="works with {}, which stays",
    tracker_held="{} stays, and it ends by itself after that",
    tracker_above="{} stays, and it ends by itself after that",
    tracker_unknown="who else holds its pipe cannot be told",
)


class UnprovenError(Exception):
    """Nothing can be proven to be of an ended run. str() is the reason, for people."""

    def __init__(self, why: str, *, lasts: bool) -> None:
        """`lasts`: the next look will prove nothing either, by the cause of this."""
        super().__init__(why)
        self.lasts = lasts


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingUnit:
    """The unit whose start is under way, with all by which its processes and segments are known."""

    unit: Unit
    owners: UnitMemberships
    history: History
    own_pid: int

    @property
    def table(self) -> ProcessTable:
        return self.owners.processes


@dataclass(slots=True)
class Reaping:
    endings: list[Ending] = field(default_factory=list)  # topmost first, trackers last
    skipped: list[Skipped] = field(default_factory=list)


def starting_unit(
    snapshot: Snapshot, history: History, unit: UnitId, own_pid: int, ended_sessions: frozenset[int] = frozenset()
) -> StartingUnit:
    """Find the unit of the guard at `own_pid`; `ended_sessions` as of the pass before. Raises UnprovenError.

    Its start must be under way: only then all that is older is of an ended run, however long ago systemd and /proc
    were read.
    """
    host, processes, units = snapshot.host, snapshot.processes, snapshot.units
    if not isinstance(processes, Ok):
        raise UnprovenError(unread("processes", processes), lasts=lasts(processes))
    if not isinstance(host, Ok):
        raise UnprovenError(unread("the host's clocks", host), lasts=lasts(host))
    if not isinstance(units, Ok):
        raise UnprovenError(unread("systemd's units", units), lasts=lasts(units))
    by_id = {each.id: each for each in units.value.units}
    found = by_id.get(unit)
    if found is None or not is_up(found) or found.active_state == "deactivating":
        raise UnprovenError("systemd does not say that a start is under way", lasts=True)
    return StartingUnit(
        unit=found,
        owners=UnitMemberships(
            units=by_id,
            processes=processes.value,
            host=host.value,
            process_runs=history.process_runs,
            ended_sessions=ended_sessions,
        ),
        history=history,
        own_pid=own_pid,
    )


def to_ask_for_use(own: StartingUnit) -> tuple[Process, ...]:
    """Give the processes of which a decision depends on whether they are in use."""
    return tuple(_ended(own, []))


def sessions_of_ended(own: StartingUnit) -> frozenset[int]:
    """Give the sessions to remember: what one that is ended now has just made, and nobody is left to prove it."""
    return frozenset(process.session for process in _ended(own, []) if process.placement.unit == own.unit.id)


def runs_of_ended(own: StartingUnit) -> Mapping[ProcessId, RunId]:
    """Give the runs to remember, for when a parent that proves them is gone; which of the ended ones is not known."""
    return {process.id: RunId(unit=own.unit.id, invocation_id="") for process in _ended(own, [])}


def reaping(own: StartingUnit, uses: Uses, before: Collection[ProcessId]) -> Reaping:
    """Decide on every process of an ended run. `before` were ended, or tried to: never twice the same."""
    steps = Reaping()
    found = [process for process in _ended(own, steps.skipped) if process.id not in before]
    policy = TreePolicy(
        candidates=[process for process in found if process.role is not Role.TRACKER],
        stays=lambda _: "",
        uses=uses,
        reasons=_REASONS,
        own_pid=own.own_pid,
    )
    for tree in judged_trees(policy, own.table):
        if tree.kept:
            steps.skipped += [_skip(process, tree.why_kept(process), own) for process in tree.processes]
        else:
            steps.endings += [_ending(process, Condition.LEFTOVER, own) for process in tree.processes]
    going = {ending.process.id for ending in steps.endings}
    for tracker in found:
        if tracker.role is Role.TRACKER:
            why = tracker_stays(tracker, going, _REASONS, own.table, uses)
            if why:
                steps.skipped.append(_skip(tracker, why, own))
            else:
                steps.endings.append(_ending(tracker, Condition.TRACKER, own))
    return steps


def removals(own: StartingUnit, shared: SharedMemory, policy: Policy) -> tuple[tuple[Removal, ...], str]:
    """Decide on every segment that the unit's processes were seen to hold; if all have to stay, say why.

    It goes if it is stale, of a known kind, and unchanged since this run began. While a process of an ended run
    lives, or may live, none goes: that might open a segment by its name.
    """
    states = segment_states(Ok(shared), own.history.unheld_since, Ok(own.table), policy)
    began = activation_began(own.unit)
    if not isinstance(states, Ok) or began is None:
        return (), ""
    found = tuple(
        Removal(segment=segment, unit=own.unit.id, because="stale, and of an ended run")
        for segment in shared.segments
        if own.history.segment_units.get(segment.id) == own.unit.id
        and states.value[segment.id] is SegmentState.STALE
        and segment.kind not in REPORTED_ONLY
        and latest_change(segment, own.history, own.owners.host) < began - CLOCK_SECONDS
    )
    if not found:
        return (), ""
    uncertain: list[Skipped] = []
    living = [*_ended(own, uncertain), *(entry.subject for entry in uncertain if isinstance(entry.subject, Process))]
    if living:
        return (), f"stale files stay, {len(found)} of them: {living[0].name} lives, and may come for them"
    return found, ""


def _ended(own: StartingUnit, skipped: list[Skipped]) -> list[Process]:
    """Give the living processes of ended runs. Those that may be such, or have moved elsewhere, go into `skipped`."""
    me = own.table.by_pid.get(own.own_pid)
    above = {own.own_pid, *(ancestor.id.pid for ancestor in (ancestors(me, own.table) if me is not None else ()))}
    found: list[Process] = []
    for process in own.table.by_pid.values():
        owner = None if process.zombie or process.kernel_thread else own.owners.of(process)
        if owner is None or owner.unit != own.unit.id or owner.present or process.id.pid in above:
            continue
        if owner.present is None:
            skipped.append(_skip(process, "whether it is of an ended run cannot be told by the clocks", own))
        elif elsewhere := lives_elsewhere(process.placement, own.unit.id):
            skipped.append(_skip(process, f"lives in {elsewhere} by now", own))
        else:
            found.append(process)
    return sorted(found, key=lambda process: process.id.pid)


def missing_history(recorded: History, *, reap: bool, clean_shm: bool) -> str:
    """Say what cannot be proven without the exporter's history; "" where there is one."""
    parts = []
    if reap and recorded.processes_at is None:
        parts.append("only processes in its own cgroup can be told to be its")
    if clean_shm and not recorded.shm_at:
        parts.append("no file of shared memory can be told to be stale")
    return f"the exporter has left no history of this boot: {', and '.join(parts)}" if parts else ""


def _skip(process: Process, because: str, own: StartingUnit) -> Skipped:
    return Skipped(subject=process, unit=own.unit.id, because=because)


def _ending(process: Process, condition: Condition, own: StartingUnit) -> Ending:
    return Ending(process=process, condition=condition, unit=own.unit.id, gpu_bytes=None, because=_OF_ENDED_RUN)
