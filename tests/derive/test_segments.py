"""When a file is stale: sequences of looks made up at random, against the definition."""

import itertools
import random
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
NOBODY: frozenset[ProcessId] = frozenset()


@dataclass(frozen=True)
class Seen:
    """One file at one look."""

    at: float
    holders: frozenset[ProcessId] | None = NOBODY
    changed_at: float = 1.0
    inode: int = 5


READ_IN_ORDER = itertools.count(1)
NO_PROCESSES: Reading[ProcessTable] = Ok(table([]))


def segment(seen: Seen) -> Segment:
    return Segment(
        id=SegmentId(27, seen.inode),
        path=f"psm_{seen.inode:08x}",
        kind=SegmentKind.PYTHON_SHM,
        creator_pid=None,
        size_bytes=0,
        allocated_bytes=0,
        changed_at=seen.changed_at,
        uid=0,
        holders=seen.holders,
        inspected_at=seen.at,
    )


def shared(*seen: Seen, read_at: float | None = None) -> Reading[SharedMemory]:
    """Give a reading, begun after all those before it unless it says otherwise."""
    return Ok(
        SharedMemory(
            read_at=next(READ_IN_ORDER) if read_at is None else read_at,
            size_bytes=0,
            used_bytes=0,
            inodes=0,
            inodes_used=0,
            segments=tuple(segment(one) for one in seen),
            unlisted=0,
            uninspected=0,
        )
    )


def states(looks: Sequence[Reading[SharedMemory]]) -> list[dict[int, SegmentState]]:
    """Give the states by inode after each look."""
    history = History()
    told = []
    for look in looks:
        history = with_observation(history, snapshot(shm=look), Policy())
        found = segment_states(look, history.unheld_since, NO_PROCESSES, POLICY)
        told.append({id_.inode: state for id_, state in found.value.items()} if isinstance(found, Ok) else {})
    return told


def state_after(*looks: Seen) -> SegmentState:
    return states([shared(look) for look in looks])[-1][5]


@pytest.mark.parametrize(
    ("looks", "state"),
    [
        ([Seen(0, HOLDER)], SegmentState.LIVE),
        ([Seen(0, None)], SegmentState.UNKNOWN),
        ([Seen(0)], SegmentState.UNHELD),
        ([Seen(0), Seen(29.999)], SegmentState.UNHELD),
        ([Seen(0), Seen(30)], SegmentState.STALE),
        ([Seen(0), Seen(0), Seen(0)], SegmentState.UNHELD),  # the same scan told thrice
        ([Seen(0), Seen(15), Seen(30), Seen(30)], SegmentState.STALE),
        ([Seen(0), Seen(10, HOLDER), Seen(30)], SegmentState.UNHELD),
        ([Seen(0), Seen(10, None), Seen(30)], SegmentState.UNHELD),
        ([Seen(0), Seen(10, None), Seen(30), Seen(60)], SegmentState.STALE),
        ([Seen(0), Seen(30, changed_at=2.0)], SegmentState.UNHELD),
        ([Seen(0), Seen(30, changed_at=0.5)], SegmentState.UNHELD),  # the wall clock was set back
        ([Seen(0), Seen(10, HOLDER, 2.0), Seen(20, NOBODY, 2.0), Seen(49, NOBODY, 2.0)], SegmentState.UNHELD),
        ([Seen(0), Seen(30), Seen(60, HOLDER)], SegmentState.LIVE),
        ([Seen(0), Seen(30), Seen(60, None)], SegmentState.UNKNOWN),
    ],
)
def test_a_file_is_stale_when_every_look_for_the_grace_time_said_unheld(looks: list[Seen], state: SegmentState) -> None:
    assert state_after(*looks) is state


def test_a_file_that_was_not_there_for_a_look_starts_anew() -> None:
    told = states([shared(Seen(0)), shared(), shared(Seen(40)), shared(Seen(70))])
    assert told == [{5: SegmentState.UNHELD}, {}, {5: SegmentState.UNHELD}, {5: SegmentState.STALE}]


def test_a_look_that_failed_tells_nothing_and_only_one_that_came_too_late_starts_anew() -> None:
    def between(look: Reading[SharedMemory]) -> SegmentState:
        return states([shared(Seen(0)), look, shared(Seen(30))])[-1][5]

    assert between(Failed(Cause.NO_PERMISSION)) is SegmentState.STALE
    assert between(NotApplicable()) is SegmentState.STALE
    assert between(Failed(Cause.TIMEOUT)) is SegmentState.UNHELD


def test_without_a_reading_there_are_no_states() -> None:
    failed = Failed(Cause.NO_SHM, "x")
    assert segment_states(failed, {}, NO_PROCESSES, POLICY) == failed


def test_without_a_history_nothing_is_stale() -> None:
    found = segment_states(shared(Seen(1e6), Seen(1e6, HOLDER, inode=6)), {}, NO_PROCESSES, POLICY)
    assert isinstance(found, Ok)
    assert list(found.value.values()) == [SegmentState.UNHELD, SegmentState.LIVE]


def expected(history: list[Seen | None]) -> SegmentState:
    """Define it anew: stale is what an unbroken row of looks at the same, unchanged file, long enough, says."""
    last = history[-1]
    assert last is not None
    if last.holders is None:
        return SegmentState.UNKNOWN
    if last.holders:
        return SegmentState.LIVE
    row: list[float] = []
    for seen in reversed(history):
        if seen is None or seen.holders is None or seen.holders or seen.changed_at != last.changed_at:
            break
        row.append(seen.at)
    return SegmentState.STALE if max(row) - min(row) >= GRACE_SECONDS else SegmentState.UNHELD


@pytest.mark.parametrize("seed", range(40))
def test_states_follow_their_definition_whatever_was_seen(seed: int) -> None:
    chance = random.Random(seed)
    at = scan = 1000.0
    histories: dict[int, list[Seen | None]] = {inode: [] for inode in range(4)}
    looks: list[Reading[SharedMemory]] = []
    wanted: list[dict[int, SegmentState]] = []
    changed = dict.fromkeys(histories, 1.0)
    for _ in range(80):
        at += chance.choice([0.1, 5.0, 15.0, 30.0])
        if chance.random() < 0.05:
            looks.append(Failed(chance.choice([Cause.TIMEOUT, Cause.UNKNOWN])))
            if looks[-1] == Failed(Cause.TIMEOUT):
                for history in histories.values():
                    history.append(None)
            wanted.append({})
            continue
        scan = at if chance.random() < 0.6 else scan
        seen = []
        for inode, history in histories.items():
            kind = chance.random()
            changed[inode] += kind < 0.05
            if kind < 0.8:
                history.append(Seen(scan, NOBODY, changed[inode], inode))
            elif kind < 0.95:
                history.append(Seen(at, chance.choice([HOLDER, None]), changed[inode], inode))
            else:
                history.append(None)
            if history[-1] is not None:
                seen.append(history[-1])
        looks.append(shared(*seen))
        wanted.append({inode: expected(history) for inode, history in histories.items() if history[-1] is not None})
    assert states(looks) == wanted
    assert SegmentState.STALE in {state for one in wanted for state in one.values()}


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
def test_a_file_that_names_its_creator_is_not_stale_while_that_may_live(
    processes: Reading[ProcessTable], state: SegmentState
) -> None:
    named = replace(segment(Seen(60.0)), kind=SegmentKind.LOKY, creator_pid=4711)
    seen = shared(Seen(60.0))
    assert isinstance(seen, Ok)
    found = segment_states(Ok(replace(seen.value, segments=(named,))), {named.id: 0.0}, processes, POLICY)
    assert found == Ok({named.id: state})


def test_a_reading_that_is_older_than_one_that_is_in_changes_nothing() -> None:
    # two looked at once: held at 4 s, but the look that has this came later than one of 5 s
    told = states(
        [
            shared(Seen(0), read_at=1e9),
            shared(Seen(5), read_at=1e9 + 5),
            shared(Seen(4, HOLDER), read_at=1e9 + 4),
            shared(Seen(30), read_at=1e9 + 30),
        ]
    )
    assert told[-1][5] is SegmentState.STALE
    # and the other way round: unheld at 4 s does not come before held at 5 s
    told = states(
        [
            shared(Seen(5, HOLDER), read_at=1e9 + 5),
            shared(Seen(4), read_at=1e9 + 4),
            shared(Seen(6), read_at=1e9 + 6),
            shared(Seen(35), read_at=1e9 + 35),
        ]
    )
    assert told[-1][5] is SegmentState.UNHELD
