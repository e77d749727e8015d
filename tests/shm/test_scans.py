"""The times of full scans, and the claims between them: real files and processes, a clock set by hand."""

import os
from pathlib import Path

import pytest
from tests.fakes.shm import CountingInspector, Hand, ShownProcesses, by_path, holders, observe, source, these

from llmhost.sources.shm.source import ShmSource

NO_HOLDERS: frozenset[object] = frozenset()


class Watched:
    """A source with a clock set by hand, and its inspections."""

    def __init__(self, shm: Path, shown: ShownProcesses) -> None:
        self.clock = Hand()
        self.asked: ShmSource = source(shm, shown, clock=self.clock)
        self.inspector = CountingInspector(shown.path)
        self.asked._inspector = self.inspector

    def at(self, seconds: float) -> dict[str, object]:
        """Look, so many seconds on; gives the holders by path."""
        self.clock.at = 1000.0 + seconds
        self.inspector.inspected.clear()
        return dict(holders(observe(self.asked, self.clock)))

    def inspected_at(self, path: str) -> float:
        return by_path(observe(self.asked, self.clock))[path].inspected_at - 1000.0

    @property
    def inspected(self) -> list[tuple[int, bool]]:
        return self.inspector.inspected

    @property
    def full_scans(self) -> int:
        assert self.asked._holders is not None
        return self.asked._holders.full_scans


@pytest.fixture
def watched(tmpfs: Path, processes: ShownProcesses) -> Watched:
    return Watched(tmpfs, processes)


def test_without_files_no_process_is_inspected(watched: Watched) -> None:
    assert watched.at(0) == watched.at(100) == {}
    assert (watched.inspected, watched.full_scans) == ([], 0)


def test_while_all_files_have_their_known_holders_only_those_are_inspected_and_quickly(
    watched: Watched, tmpfs: Path, processes: ShownProcesses
) -> None:
    holder, bystander = processes.child(), processes.child()
    path = tmpfs / "file"
    path.write_bytes(b"x")
    holder.do(f"import mmap; file = open({str(path)!r}, 'r+b'); kept = mmap.mmap(file.fileno(), 0)")
    assert watched.at(0) == {"file": these(holder)}
    assert {pid for pid, _ in watched.inspected} == {1, holder.pid, bystander.pid}
    for seconds in (1, 31, 1000):
        assert watched.at(seconds) == {"file": these(holder)}
        assert watched.inspected == [(holder.pid, False)]
        assert watched.inspected_at("file") == seconds
    assert watched.full_scans == 1


def test_what_an_engine_makes_and_its_later_holders_are_found_without_a_full_scan(
    watched: Watched, tmpfs: Path, processes: ShownProcesses
) -> None:
    engine, old = processes.child(), processes.child()
    (tmpfs / "first").touch()
    engine.do(f"first = open({str(tmpfs / 'first')!r})")
    assert watched.at(0) == {"first": these(engine)}
    engine.do(f"second = open({str(tmpfs / 'second')!r}, 'w')")
    assert watched.at(1) == {"first": these(engine), "second": these(engine)}  # of a process that holds another
    worker = processes.child()
    worker.do(f"third = open({str(tmpfs / 'third')!r}, 'w')")
    assert watched.at(2)["third"] == these(worker)  # of a process that is new
    assert old.pid not in {pid for pid, _ in watched.inspected}
    later = processes.child()
    watched.at(3)
    assert (later.pid, False) in watched.inspected
    watched.at(122)
    assert (later.pid, False) in watched.inspected  # it may be an engine that still loads
    watched.at(123.5)
    assert later.pid not in {pid for pid, _ in watched.inspected}
    assert watched.full_scans == 1


def test_full_scans_are_a_grace_time_apart_while_a_file_has_no_holder(watched: Watched, tmpfs: Path) -> None:
    (tmpfs / "file").touch()
    claims = []
    for seconds in range(0, 91, 15):
        assert watched.at(seconds) == {"file": NO_HOLDERS}
        claims.append((seconds, watched.inspected_at("file"), watched.full_scans))
    assert claims == [(0, 0, 1), (15, 0, 1), (30, 30, 2), (45, 30, 2), (60, 60, 3), (75, 60, 3), (90, 90, 4)]


def test_a_file_that_loses_its_holder_is_not_known_until_the_next_scan(
    watched: Watched, tmpfs: Path, processes: ShownProcesses
) -> None:
    holder = processes.child()
    (tmpfs / "file").touch()
    holder.do(f"kept = open({str(tmpfs / 'file')!r})")
    assert watched.at(0) == {"file": these(holder)}
    holder.do("kept.close()")
    assert watched.at(1) == {"file": None}
    assert watched.at(30) == {"file": NO_HOLDERS}
    holder.do(f"kept = open({str(tmpfs / 'file')!r})")
    assert watched.at(31) == {"file": NO_HOLDERS}
    assert watched.inspected_at("file") == 30  # which is true: it was held by nobody then
    assert watched.at(60) == {"file": these(holder)}
    holder.do("kept.close()")
    assert watched.at(61) == {"file": None}  # and what was found at 30 does not come back


@pytest.mark.parametrize("change", ["write", "rename", "chmod", "another file"])
def test_a_file_that_was_in_somebodys_hands_since_the_scan_is_not_known(
    change: str, watched: Watched, tmpfs: Path
) -> None:
    path = tmpfs / "file"
    path.touch()
    assert watched.at(0) == {"file": NO_HOLDERS}
    changed = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == changed:  # the kernel's clock for it ticks every 4 ms or so
        if change == "write":
            path.write_bytes(b"x")
        elif change == "rename":
            path.rename(tmpfs / "other").rename(path)
        elif change == "chmod":
            path.chmod(0o600)
        else:
            path.unlink()
            path.touch()
    assert watched.at(1) == {"file": None}
    assert watched.at(30) == {"file": NO_HOLDERS}


def test_a_holder_that_has_no_mapping_costs_a_thorough_inspection_of_itself_alone(
    watched: Watched, tmpfs: Path, processes: ShownProcesses
) -> None:
    maps, opens = sorted((processes.child(), processes.child()), key=lambda child: child.pid)
    (tmpfs / "mapped").write_bytes(b"x")
    (tmpfs / "opened").touch()
    maps.do(f"import mmap; file = open({str(tmpfs / 'mapped')!r}, 'r+b'); kept = mmap.mmap(file.fileno(), 0)")
    opens.do(f"kept = open({str(tmpfs / 'opened')!r})")
    watched.at(0)
    assert watched.at(1) == {"mapped": these(maps), "opened": these(opens)}
    assert watched.inspected == [(maps.pid, False), (opens.pid, False), (opens.pid, True)]
    (tmpfs / "unheld").touch()
    assert watched.at(31)["unheld"] == NO_HOLDERS
    thorough = [pid for pid, how in watched.inspected if how]
    assert sorted(thorough) == sorted({1, maps.pid, opens.pid})  # once each, though it was a full scan


def test_nothing_stays_open_between_reads(tmpfs: Path, processes: ShownProcesses) -> None:
    (tmpfs / "below").mkdir()
    (tmpfs / "below" / "file").touch()
    ended = processes.child()
    shm_source = source(tmpfs, processes)
    observe(shm_source)
    ended.end()
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    shm_source.configure(names=(), grace_seconds=0.0)
    observe(shm_source)
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
