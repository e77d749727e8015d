"""What the guard may do away with: what ended activations of its own unit have left. Pure.

Whose it is has to be proven (derive.belonging), and that is enough: unlike a clean-up's, these processes need not be
orphans, nor be watched for a while, as the activation that they are of has ended.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from llmhost.config.schema import Policy
from llmhost.decide.cleanup.context import Listening, serves_others, stays_as_it_listens, unread
from llmhost.decide.cleanup.processes import descendants, named, others_by_pipe, own_pipes, pipe_holders, trees
from llmhost.decide.cleanup.segments import REPORTED_ONLY
from llmhost.decide.cleanup.steps import Condition, Ending, Removal, Skipped
from llmhost.derive.activation import activation_began, is_up
from llmhost.derive.parentage import ancestors
from llmhost.derive.segments import SegmentState, segment_states
from llmhost.derive.unit_membership import Owners
from llmhost.model.history.history import History
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Home, Process, ProcessTable, Role
from llmhost.model.reading import Ok
from llmhost.model.segment import SharedMemory
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit

_CLOCK_SECONDS = 1.0  # what a file's change and an activation's begin may be apart by their clocks
_OF_ENDED_RUN = "of an ended run"


class UnprovenError(Exception):
    """Nothing can be proven to be of an ended run. str() says why, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """The unit whose start is under way, and what tells of each process and file whether it is of it."""

    unit: Unit
    owners: Owners
    history: History
    at: float  # seconds since the epoch
    at_monotonic: float
    own_pid: int

    @property
    def table(self) -> ProcessTable:
        return self.owners.processes


@dataclass(slots=True)
class Reaping:
    endings: list[Ending] = field(default_factory=list)  # topmost first, trackers last
    left: list[Skipped] = field(default_factory=list)


def own_of(snapshot: Snapshot, history: History, unit: UnitId, own_pid: int) -> Own:
    """Find the unit of the guard at `own_pid`. Raises UnprovenError.

    Its start must be under way: only then is it known of what is older that it is of an ended run, however long ago
    systemd and /proc were read.
    """
    host, processes, units = snapshot.host, snapshot.processes, snapshot.units
    if not isinstance(processes, Ok):
        raise UnprovenError(unread("processes", processes))
    if not isinstance(host, Ok):
        raise UnprovenError(unread("the host's clocks", host))
    if not isinstance(units, Ok):
        raise UnprovenError(unread("systemd's units", units))
    by_id = {one.id: one for one in units.value.units}
    found = by_id.get(unit)
    if found is None or not is_up(found) or found.active_state == "deactivating":
        raise UnprovenError("systemd does not say that a start is under way")
    return Own(
        unit=found,
        owners=Owners(units=by_id, processes=processes.value, host=host.value, belongings=history.belongings),
        history=history,
        at=snapshot.at,
        at_monotonic=snapshot.at_monotonic,
        own_pid=own_pid,
    )


def to_ask_for_listeners(own: Own) -> tuple[Process, ...]:
    """Give the processes of which has to be known whether they listen."""
    return tuple(process for process in _ended(own, []) if process.role is not Role.TRACKER and serves_others(process))


def reaping(own: Own, listening: Listening, before: Collection[ProcessId]) -> Reaping:
    """Decide on every process of an ended run. `before` were ended, or tried to: never twice the same.

    They go as whole trees, or not at all: to end the workers of a server that still serves would break it.
    """
    steps = Reaping()
    found = _ended(own, steps.left)
    others = [process for process in found if process.role is not Role.TRACKER and process.id not in before]
    within = {process.id for process in found} - set(before)
    by_pipe = others_by_pipe(others, own.table)
    for tree in trees(others, own.table):
        kept = {
            process.id: why
            for process in tree
            if (why := stays_as_it_listens(process, listening) or _goes_with_it(process, within, by_pipe, own.table))
        }
        if kept:
            keeper = next(process for process in tree if process.id in kept)
            mates = f"ending it would take down {named(keeper)}, which stays"
            steps.left += [_left(process, kept.get(process.id, mates), own) for process in tree]
        else:
            steps.endings += [_ending(process, Condition.LEFTOVER, own) for process in tree]
    going = {ending.process.id for ending in steps.endings}
    for tracker in found:
        if tracker.role is not Role.TRACKER or tracker.id in before:
            continue
        why = _tracker_stays(tracker, going, own.table)
        if why:
            steps.left.append(_left(tracker, why, own))
        else:
            steps.endings.append(_ending(tracker, Condition.TRACKER, own))
    return steps


def removals(own: Own, shared: SharedMemory, policy: Policy) -> tuple[tuple[Removal, ...], str]:
    """Decide on every file that the unit's processes were seen to hold; and say why none goes, where there are such.

    It is stale and of a known kind, and its last change is older than this activation. While a process of an ended run
    lives, or may, none goes: it might come for a file by its name.
    """
    states = segment_states(Ok(shared), own.history.unheld_since, Ok(own.table), policy)
    began = activation_began(own.unit)
    if not isinstance(states, Ok) or began is None:
        return (), ""
    ago = own.at_monotonic - began + own.owners.host.boottime_ahead_seconds
    found = tuple(
        Removal(segment=segment, unit=own.unit.id, because="stale, and of an ended run")
        for segment in shared.segments
        if own.history.segment_units.get(segment.id) == own.unit.id
        and states.value[segment.id] is SegmentState.STALE
        and segment.kind not in REPORTED_ONLY
        and segment.changed_at < own.at - ago - _CLOCK_SECONDS
    )
    if not found:
        return (), ""
    uncertain: list[Skipped] = []
    living = [*_ended(own, uncertain), *(left.subject for left in uncertain if isinstance(left.subject, Process))]
    if living:
        return (), f"stale files stay, {len(found)} of them: {named(living[0])} lives, and may come for them"
    return found, ""


def _ended(own: Own, left: list[Skipped]) -> list[Process]:
    """Give the living processes of ended runs; into `left` those that may be, or that live elsewhere by now."""
    me = own.table.by_pid.get(own.own_pid)
    above = {own.own_pid, *(ancestor.id.pid for ancestor in (ancestors(me, own.table) if me is not None else ()))}
    found: list[Process] = []
    for process in own.table.by_pid.values():
        owner = None if process.zombie or process.kernel_thread else own.owners.of(process)
        if owner is None or owner.unit != own.unit.id or owner.present or process.id.pid in above:
            continue
        place = process.placement
        if owner.present is None:
            left.append(_left(process, "whether it is of an ended run cannot be told by the clocks", own))
        elif place.unit not in {None, own.unit.id} or place.home is Home.CONTAINER:
            where = place.unit.name if place.unit is not None else "a container"
            left.append(_left(process, f"lives in {where} by now", own))
        else:
            found.append(process)
    return sorted(found, key=lambda one: one.id.pid)


def _goes_with_it(
    process: Process, within: Collection[ProcessId], by_pipe: Mapping[int, Process], table: ProcessTable
) -> str:
    """Say whom it would take down that is of no ended run."""
    for below in descendants(process, table):
        if below.id not in within and below.id != process.id and not below.zombie and below.role is not Role.TRACKER:
            return f"below it is {named(below)}, which stays"
    for inode in sorted(own_pipes(process)):
        if inode in by_pipe and by_pipe[inode].id not in within:
            return f"shares a pipe with {named(by_pipe[inode])}, which stays"
    return ""


def _tracker_stays(tracker: Process, going: Collection[ProcessId], table: ProcessTable) -> str:
    """Say what keeps a tracker. Ended before its pipe's last holder it leaks what it would have cleaned up."""
    holders = pipe_holders(tracker, table)
    if holders is None:
        return "who else holds its pipe cannot be told"
    below = [
        descendant
        for descendant in descendants(tracker, table)
        if descendant.id != tracker.id and not descendant.zombie
    ]
    staying = [holder for holder in (*holders, *below) if holder.id not in going]
    return f"{named(staying[0])} stays, and it ends by itself after that" if staying else ""


def unheard_of(recorded: History, *, reap: bool, clean_shm: bool) -> str:
    """Say what cannot be proven for want of the exporter's history; "" where there is one."""
    parts = []
    if reap and recorded.processes_at is None:
        parts.append("only processes in its own cgroup can be told to be its")
    if clean_shm and not recorded.shm_at:
        parts.append("no file of shared memory can be told to be stale")
    return f"the exporter has left no history of this boot: {', and '.join(parts)}" if parts else ""


def _left(process: Process, because: str, own: Own) -> Skipped:
    return Skipped(subject=process, unit=own.unit.id, because=because)


def _ending(process: Process, condition: Condition, own: Own) -> Ending:
    return Ending(process=process, condition=condition, unit=own.unit.id, gpu_bytes=None, because=_OF_ENDED_RUN)
