"""Stale segments: sequences of observations, and what they make of a segment."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from tests.fakes.values import process, snapshot, table

from llmhost.config.schema import Policy
from llmhost.derive.history.observations import with_observation
from llmhost.derive.segments import SegmentState, segment_states
from llmhost.model.history.history import History
from llmhost.model.ids import ProcessId
from llmhost.model.process import ProcessTable
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.segment import Segment, SegmentId, SegmentKind, SharedMemory

GRACE_SECONDS = 30.0
POLICY = Policy(segment_grace_seconds=GRACE_SECONDS)
HOLDER = frozenset({ProcessId(4711, 1000)})
NO_HOLDERS: frozenset[ProcessId] = frozenset()


@dataclass(frozen=True)
class Inspected:
    """One segment at one observation."""

    at: float
    holders: frozenset[ProcessId] | None = NO_HOLDERS
    changed_at: float = 1.0
    inode: int = 5


READ_IN_ORDER = itertools.count(1)
NO_PROCESSES: Reading[ProcessTable] = Ok(table([]))


def segment(inspected: Inspected) -> Segment:
    return Segment(
        id=SegmentId(27, inspected.inode),
        path=f"psm_{inspected.inode:08x}",
        kind=SegmentKind.PYTHON_SHM,
        creator_pid=None,
        size_bytes=0,
        allocated_bytes=0,
        changed_at=inspected.changed_at,
        uid=0,
        holders=inspected.holders,
        inspected_at=inspected.at,
    )


def shared(*inspected: Inspected, read_at: float | None = None) -> Reading[SharedMemory]:
    """Give a reading, begun after all those before it unless it says otherwise."""
    return Ok(
        SharedMemory(
            read_at=next(READ_IN_ORDER) if read_at is None else read_at,
            size_bytes=0,
            used_bytes=0,
            inodes=0,
            inodes_used=0,
            segments=tuple(segment(each) for each in inspected),
            unlisted=0,
            uninspected=0,
        )
    )


def states(observations: Sequence[Reading[SharedMemory]]) -> list[dict[int, SegmentState]]:
    """Give the states by inode after each reading."""
    history = History()
    found_states = []
    for reading in observations:
        history = with_observation(history, snapshot(shm=reading), Policy())
        found = segment_states(reading, history.unheld_since, NO_PROCESSES, POLICY)
        found_states.append({id_.inode: state for id_, state in found.value.items()} if isinstance(found, Ok) else {})
    return found_states


def state_after(*observations: Inspected) -> SegmentState:
    return states([shared(reading) for reading in observations])[-1][5]


@pytest.mark.parametrize(
    ("observations", "state"),
    [
        ([Inspected(0, HOLDER)], SegmentState.LIVE),
        ([Inspected(0, None)], SegmentState.UNKNOWN),
        ([Inspected(0)], SegmentState.UNHELD),
        ([Inspected(0), Inspected(29.999)], SegmentState.UNHELD),
        ([Inspected(0), Inspected(30)], SegmentState.STALE),
        ([Inspected(0), Inspected(0), Inspected(0)], SegmentState.UNHELD),  # the same scan found_states thrice
        ([Inspected(0), Inspected(15), Inspected(30), Inspected(30)], SegmentState.STALE),
        ([Inspected(0), Inspected(10, HOLDER), Inspected(30)], SegmentState.UNHELD),
        ([Inspected(0), Inspected(10, None), Inspected(30)], SegmentState.UNHELD),
        ([Inspected(0), Inspected(10, None), Inspected(30), Inspected(60)], SegmentState.STALE),
        ([Inspected(0), Inspected(30, changed_at=2.0)], SegmentState.UNHELD),
        ([Inspected(0), Inspected(30, changed_at=0.5)], SegmentState.UNHELD),  # the wall clock was set back
        (
            [Inspected(0), Inspected(10, HOLDER, 2.0), Inspected(20, NO_HOLDERS, 2.0), Inspected(49, NO_HOLDERS, 2.0)],
            SegmentState.UNHELD,
        ),
        ([Inspected(0), Inspected(30), Inspected(60, HOLDER)], SegmentState.LIVE),
        ([Inspected(0), Inspected(30), Inspected(60, None)], SegmentState.UNKNOWN),
    ],
)
def test_a_segment_is_stale_when_it_is_unheld_for_the_grace_time(
    observations: list[Inspected], state: SegmentState
) -> None:
    assert state_after(*observations) is state


def test_a_segment_that_is_gone_for_an_observation_starts_anew() -> None:
    found_states = states([shared(Inspected(0)), shared(), shared(Inspected(40)), shared(Inspected(70))])
    assert found_states == [{5: SegmentState.UNHELD}, {}, {5: SegmentState.UNHELD}, {5: SegmentState.STALE}]


def test_a_reading_that_failed_changes_nothing_and_only_one_that_came_too_late_starts_anew() -> None:
    def between(reading: Reading[SharedMemory]) -> SegmentState:
        return states([shared(Inspected(0)), reading, shared(Inspected(30))])[-1][5]

    assert between(Failed(Cause.NO_PERMISSION)) is SegmentState.STALE
    assert between(NotApplicable()) is SegmentState.STALE
    assert between(Failed(Cause.TIMEOUT)) is SegmentState.UNHELD


def test_without_a_reading_there_are_no_states() -> None:
    failed = Failed(Cause.NO_SHM, "x")
    assert segment_states(failed, {}, NO_PROCESSES, POLICY) == failed


def test_without_a_history_nothing_is_stale() -> None:
    found = segment_states(shared(Inspected(1e6), Inspected(1e6, HOLDER, inode=6)), {}, NO_PROCESSES, POLICY)
    assert isinstance(found, Ok)
    assert list(found.value.values()) == [SegmentState.UNHELD, SegmentState.LIVE]


@pytest.mark.parametrize(
    ("processes", "state"),
    [
        (Ok(table([])), SegmentState.STALE),
        (Ok(table([process(4711)])), SegmentState.UNHELD),  # it may hand the file on by its name
        (Ok(table([process(4711, state="Z")])), SegmentState.STALE),
        (Ok(replace(table([]), denied=frozenset({4711}))), SegmentState.UNHELD),
        (Failed(Cause.NO_PROCFS), SegmentState.UNHELD),
    ],
)
def test_a_segment_that_names_its_creator_is_not_stale_while_that_may_live(
    processes: Reading[ProcessTable], state: SegmentState
) -> None:
    named = replace(segment(Inspected(60.0)), kind=SegmentKind.LOKY, creator_pid=4711)
    inspected = shared(Inspected(60.0))
    assert isinstance(inspected, Ok)
    found = segment_states(Ok(replace(inspected.value, segments=(named,))), {named.id: 0.0}, processes, POLICY)
    assert found == Ok({named.id: state})


def test_a_reading_that_is_older_than_one_that_is_in_changes_nothing() -> None:
    # two observed at once: held at 4 s, but that reading came later than one of 5 s
    found_states = states(
        [
            shared(Inspected(0), read_at=1e9),
            shared(Inspected(5), read_at=1e9 + 5),
            shared(Inspected(4, HOLDER), read_at=1e9 + 4),
            shared(Inspected(30), read_at=1e9 + 30),
        ]
    )
    assert found_states[-1][5] is SegmentState.STALE
    # and the other way round: unheld at 4 s does not come before held at 5 s
    found_states = states(
        [
            shared(Inspected(5, HOLDER), read_at=1e9 + 5),
            shared(Inspected(4), read_at=1e9 + 4),
            shared(Inspected(6), read_at=1e9 + 6),
            shared(Inspected(35), read_at=1e9 + 35),
        ]
    )
    assert found_states[-1][5] is SegmentState.UNHELD
