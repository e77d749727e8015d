"""Clean-up plans for made-up hosts, which were watched for an hour unless a test says otherwise."""

from collections.abc import Iterable, Mapping
from typing import Any

from tests.fakes.orphan_trees import INIT
from tests.fakes.values import LISTENS, UNUSED, shared_memory, snapshot

from llmhost.config.schema import Config
from llmhost.decide.cleanup.plan import ProcessContext, plan, to_ask_for_use
from llmhost.decide.cleanup.steps import CleanupRequest, Plan, Removal
from llmhost.derive.host_view import HostView, host_view
from llmhost.derive.orphans import orphan_conditions
from llmhost.model.clock_offset import ClockOffset
from llmhost.model.history.history import History
from llmhost.model.ids import ProcessId, RunId, UnitId
from llmhost.model.process import Process
from llmhost.model.process_use import ProcessUse
from llmhost.model.reading import NotApplicable, Ok, Reading
from llmhost.model.segment import Segment, SegmentId
from llmhost.model.snapshot import Snapshot

NOW = 5000.0  # CLOCK_MONOTONIC, and nobody was suspended: processes of 1000 ticks started at 10.0
AT = 1_767_225_600.0  # the same, since the epoch
ROOT = CleanupRequest(uid=0, all_users=True)
OWN_PID = 99_999


def epoch(monotonic: float) -> float:
    return AT - NOW + monotonic


def host(
    processes: Iterable[Process] = (),
    segments: Iterable[Segment] = (),
    units: Iterable[Any] = (),
    **given: Any,  # noqa: ANN401
) -> Snapshot:
    shared = shared_memory(*segments, read_at=NOW)
    return snapshot(
        **{
            "processes": [INIT, *processes],
            "units": units,
            "shm": Ok(shared),
            "at": AT,
            "at_monotonic": NOW,
            **given,
        }
    )


def never_set(taken: Snapshot) -> tuple[ClockOffset, ...]:
    """Give the offsets of a clock that was not set since the boot."""
    boottime = NOW + (taken.host.value.boottime_ahead_seconds if isinstance(taken.host, Ok) else 0.0)
    return tuple(ClockOffset(at, AT - boottime) for at in (0.0, boottime))


def view_of(
    taken: Snapshot,
    *,
    watched: float = 3600.0,
    orphans_watched: float | None = None,
    segment_units: Mapping[SegmentId, UnitId] | None = None,
    process_runs: Mapping[ProcessId, RunId] | None = None,
    clock_offsets: tuple[ClockOffset, ...] | None = None,
    unheld_changed_at: Mapping[SegmentId, float] | None = None,
) -> HostView:
    """Make the view of a host that has not changed for `watched` seconds, its orphans for `orphans_watched`.

    Unless `clock_offsets` says otherwise, its clock was never set since the boot.
    """
    conditions = orphan_conditions(taken)
    shm = taken.shm.value.segments if isinstance(taken.shm, Ok) else ()
    history = History(
        clock_offsets=never_set(taken) if clock_offsets is None else clock_offsets,
        processes_since=NOW - watched,
        orphan_since=dict.fromkeys(conditions.value, NOW - (watched if orphans_watched is None else orphans_watched))
        if isinstance(conditions, Ok)
        else {},
        unheld_since={segment.id: NOW - watched for segment in shm if segment.holders == frozenset()},
        unheld_changed_at=unheld_changed_at or {},
        segment_units=segment_units or {},
        process_runs=process_runs or {},
    )
    return host_view(taken, history, Config())


def process_context(
    view: HostView,
    *,
    listening: Iterable[int] = (),
    unknown: Iterable[int] = (),
    foreign_pids: Iterable[int] | None = (),
) -> ProcessContext:
    """Make the context in which these pids listen, and it is unknown of `unknown`."""
    uses: dict[ProcessId, Reading[ProcessUse]] = {}
    for process in to_ask_for_use(view):
        pid = process.id.pid
        uses[process.id] = NotApplicable() if pid in set(unknown) else LISTENS if pid in set(listening) else UNUSED
    return ProcessContext(
        own_pid=OWN_PID,
        uses=uses,
        foreign_pids=NotApplicable() if foreign_pids is None else Ok(frozenset(foreign_pids)),
    )


def planned(
    taken: Snapshot,
    request: CleanupRequest = ROOT,
    first: Plan | None = None,
    *,
    listening: Iterable[int] = (),
    unknown: Iterable[int] = (),
    foreign_pids: Iterable[int] | None = (),
    **history: Any,  # noqa: ANN401
) -> Plan:
    view = view_of(taken, **history)
    context = process_context(view, listening=listening, unknown=unknown, foreign_pids=foreign_pids)
    return plan(view, request, context, first)


def pids(of: Plan) -> list[int]:
    return [ending.process.id.pid for ending in of.endings]


def inodes(of: Plan) -> list[int]:
    return [removal.segment.id.inode for removal in of.removals]


def waiting(of: Plan) -> list[int]:
    """Pids and inodes."""
    return [step.segment.id.inode if isinstance(step, Removal) else step.process.id.pid for step in of.waiting]


def kept(of: Plan) -> dict[int, str]:
    """Return the reason of each skipped process or segment, by pid or inode."""
    return {
        entry.subject.id.pid if isinstance(entry.subject, Process) else entry.subject.id.inode: entry.because
        for entry in of.skipped
    }
