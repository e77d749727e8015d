"""The states of a killed engine's segments at 2, 20 and 60 seconds, by a clock set by hand."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.shm import Child, Hand, ShownProcesses, observe, source
from tests.fakes.values import snapshot, table

from llmhost.config.schema import Policy
from llmhost.derive.history.observations import with_observation
from llmhost.derive.segments import SegmentState, segment_states
from llmhost.model.history.history import History
from llmhost.model.reading import Ok, Reading
from llmhost.model.segment import SegmentId, SharedMemory

LIVE, STALE, UNHELD, UNKNOWN = SegmentState.LIVE, SegmentState.STALE, SegmentState.UNHELD, SegmentState.UNKNOWN


class Observations:
    """An exporter's observations of shared memory, and the states that its history gives them."""

    def __init__(self, shm: Path, shown: ShownProcesses) -> None:
        self.clock = Hand()
        self.policy = Policy(segment_grace_seconds=30.0)
        self.shm_source = source(shm, shown, clock=self.clock)
        self.history = History()

    def at(self, seconds: float) -> Mapping[str, SegmentState]:
        self.clock.at = 1000.0 + seconds
        shared = observe(self.shm_source, self.clock)
        states = self.take(Ok(shared))
        return {segment.path: states[segment.id] for segment in shared.segments}

    def take(self, shared: Reading[SharedMemory]) -> Mapping[SegmentId, SegmentState]:
        taken = replace(snapshot(at_monotonic=self.clock.at), shm=shared)
        self.history = with_observation(self.history, taken, Policy())
        states = segment_states(shared, self.history.unheld_since, Ok(table([])), self.policy)
        return states.value if isinstance(states, Ok) else {}


@pytest.fixture
def observed(tmpfs: Path, processes: ShownProcesses) -> Observations:
    return Observations(tmpfs, processes)


def engine(tmpfs: Path, processes: ShownProcesses) -> Child:
    """Have a process hold a segment the way of multiprocessing.shared_memory: mapped, and open twice."""
    made = processes.child()
    path = tmpfs / "psm_e1a2b3c4"
    path.write_bytes(b"x" * 4096)
    made.do(f"import mmap, os; kept = os.open({str(path)!r}, os.O_RDWR); mapped = mmap.mmap(kept, 0)")
    return made


def test_a_killed_engines_segment_is_unheld_and_after_the_grace_time_stale(
    observed: Observations, tmpfs: Path, processes: ShownProcesses
) -> None:
    killed = engine(tmpfs, processes)
    states = [observed.at(seconds)["psm_e1a2b3c4"] for seconds in (-60, -45, -30, -15)]
    killed.end()
    states += [observed.at(seconds)["psm_e1a2b3c4"] for seconds in (2, 20, 31.9, 32, 60)]
    assert states == [LIVE, LIVE, LIVE, LIVE, UNHELD, UNHELD, UNHELD, STALE, STALE]


def test_after_a_full_scan_just_before_it_is_unknown_for_a_grace_time(
    observed: Observations, tmpfs: Path, processes: ShownProcesses
) -> None:
    killed = engine(tmpfs, processes)
    (tmpfs / "PostgreSQL.3158292").touch()  # for which there is a full scan every 30 s
    states = [observed.at(seconds) for seconds in (-60, -30, -1)]
    killed.end()
    states += [observed.at(seconds) for seconds in (2, 20, 29, 32, 60)]
    assert [found["psm_e1a2b3c4"] for found in states] == [LIVE, LIVE, LIVE, UNHELD, UNHELD, UNHELD, STALE, STALE]
    other = [found["PostgreSQL.3158292"] for found in states]
    assert other == [UNHELD, STALE, STALE, STALE, STALE, STALE, STALE, STALE]


def test_a_segment_that_is_taken_again_in_time_never_was_stale(
    observed: Observations, tmpfs: Path, processes: ShownProcesses
) -> None:
    first = engine(tmpfs, processes)
    assert observed.at(0) == {"psm_e1a2b3c4": LIVE}
    first.end()
    assert observed.at(31) == {"psm_e1a2b3c4": UNHELD}
    heir = processes.child()
    heir.do(f"kept = open({str(tmpfs / 'psm_e1a2b3c4')!r}, 'r+b')")
    assert observed.at(62) == {"psm_e1a2b3c4": LIVE}
    heir.end()
    assert [observed.at(seconds)["psm_e1a2b3c4"] for seconds in (63, 91, 92, 121, 122)] == [
        UNKNOWN,
        UNKNOWN,
        UNHELD,
        UNHELD,
        STALE,
    ]
