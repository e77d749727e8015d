"""How often all processes are looked at, and what is told between: real files and processes, a clock set by hand."""

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.shm import (
    Children,
    CountingInspector,
    Hand,
    ShownProcesses,
    by_path,
    children,
    holders,
    look,
    processes,
    source,
    these,
    tmpfs,
)

from llmhost.sources.shm.process import Held
from llmhost.sources.shm.source import ShmSource

__all__ = ["children", "processes", "tmpfs"]

NOBODY: frozenset[object] = frozenset()


class Watched:
    """A source with a clock set by hand, and what it looks at."""

    def __init__(self, shm: Path, shown: ShownProcesses) -> None:
        self.clock = Hand()
        self.asked: ShmSource = source(shm, shown, clock=self.clock)
        self.inspector = CountingInspector(shown.path)
        self.asked._inspector = self.inspector

    def at(self, seconds: float) -> dict[str, object]:
        """Look, so many seconds on; gives the holders by path."""
        self.clock.at = 1000.0 + seconds
        self.inspector.looks.clear()
        return dict(holders(look(self.asked, self.clock)))

    def looked_at(self, path: str) -> float:
        return by_path(look(self.asked, self.clock))[path].looked_at - 1000.0

    @property
    def looks(self) -> list[tuple[int, bool]]:
        return self.inspector.looks

    @property
    def full_scans(self) -> int:
        assert self.asked._holders is not None
        return self.asked._holders.full_scans


@pytest.fixture
def watched(tmpfs: Path, processes: ShownProcesses) -> Watched:
    return Watched(tmpfs, processes)


def test_without_files_no_process_is_looked_at(watched: Watched) -> None:
    assert watched.at(0) == watched.at(100) == {}
    assert (watched.looks, watched.full_scans) == ([], 0)


def test_while_all_files_have_their_known_holders_only_those_are_looked_at_and_quickly(
    watched: Watched, tmpfs: Path, processes: ShownProcesses, children: Children
) -> None:
    holder, bystander = children(), children()
    processes.show(holder, bystander)
    path = tmpfs / "file"
    path.write_bytes(b"x")
    holder.do(f"import mmap; file = open({str(path)!r}, 'r+b'); kept = mmap.mmap(file.fileno(), 0)")
    assert watched.at(0) == {"file": these(holder)}
    assert {pid for pid, _ in watched.looks} == {1, holder.pid, bystander.pid}
    for seconds in (1, 31, 1000):
        assert watched.at(seconds) == {"file": these(holder)}
        assert watched.looks == [(holder.pid, False)]
        assert watched.looked_at("file") == seconds
    assert watched.full_scans == 1


def test_what_an_engine_makes_and_who_joins_it_is_found_without_a_full_scan(
    watched: Watched, tmpfs: Path, processes: ShownProcesses, children: Children
) -> None:
    engine, old = children(), children()
    processes.show(engine, old)
    (tmpfs / "first").touch()
    engine.do(f"first = open({str(tmpfs / 'first')!r})")
    assert watched.at(0) == {"first": these(engine)}
    engine.do(f"second = open({str(tmpfs / 'second')!r}, 'w')")
    assert watched.at(1) == {"first": these(engine), "second": these(engine)}  # of a process that holds another
    worker = children()
    processes.show(worker)
    worker.do(f"third = open({str(tmpfs / 'third')!r}, 'w')")
    assert watched.at(2)["third"] == these(worker)  # of a process that is new
    assert old.pid not in {pid for pid, _ in watched.looks}
    later = children()
    processes.show(later)
    watched.at(3)
    assert (later.pid, False) in watched.looks
    watched.at(122)
    assert (later.pid, False) in watched.looks  # it may be an engine that still loads
    watched.at(123.5)
    assert later.pid not in {pid for pid, _ in watched.looks}
    assert watched.full_scans == 1


def test_full_scans_are_a_grace_time_apart_while_a_file_has_no_holder(watched: Watched, tmpfs: Path) -> None:
    (tmpfs / "file").touch()
    told = []
    for seconds in range(0, 91, 15):
        assert watched.at(seconds) == {"file": NOBODY}
        told.append((seconds, watched.looked_at("file"), watched.full_scans))
    assert told == [(0, 0, 1), (15, 0, 1), (30, 30, 2), (45, 30, 2), (60, 60, 3), (75, 60, 3), (90, 90, 4)]


def test_a_file_that_appears_after_the_scan_is_not_known_until_the_next(watched: Watched, tmpfs: Path) -> None:
    (tmpfs / "old").touch()
    watched.at(0)
    (tmpfs / "new").touch()
    assert watched.at(1) == {"old": NOBODY, "new": None}
    assert watched.at(29) == {"old": NOBODY, "new": None}
    assert watched.at(30) == {"old": NOBODY, "new": NOBODY}


def test_a_file_that_loses_its_holder_is_not_known_until_the_next_scan(
    watched: Watched, tmpfs: Path, processes: ShownProcesses, children: Children
) -> None:
    holder = children()
    processes.show(holder)
    (tmpfs / "file").touch()
    holder.do(f"kept = open({str(tmpfs / 'file')!r})")
    assert watched.at(0) == {"file": these(holder)}
    holder.do("kept.close()")
    assert watched.at(1) == {"file": None}
    assert watched.at(30) == {"file": NOBODY}
    holder.do(f"kept = open({str(tmpfs / 'file')!r})")
    assert watched.at(31) == {"file": NOBODY}
    assert watched.looked_at("file") == 30  # which is true: it was held by nobody then
    assert watched.at(60) == {"file": these(holder)}
    holder.do("kept.close()")
    assert watched.at(61) == {"file": None}  # and what was found at 30 does not come back


@pytest.mark.parametrize("change", ["write", "rename", "chmod", "another file"])
def test_a_file_that_was_in_somebodys_hands_since_the_scan_is_not_known(
    change: str, watched: Watched, tmpfs: Path
) -> None:
    path = tmpfs / "file"
    path.touch()
    assert watched.at(0) == {"file": NOBODY}
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
    assert watched.at(30) == {"file": NOBODY}


def test_a_recycled_inode_number_is_another_file(watched: Watched, tmpfs: Path) -> None:
    path = tmpfs / "file"
    path.touch()
    assert watched.at(0) == {"file": NOBODY}
    assert watched.asked._holders is not None
    unheld = watched.asked._holders._unheld[path.stat().st_ino]
    path.unlink()
    path.touch()
    # a tmpfs counts on, and wraps after 2³² files at the earliest: stand the old one's number in for it
    watched.asked._holders._unheld = {path.stat().st_ino: unheld}
    while unheld.changed_ns == path.stat().st_ctime_ns:
        path.unlink()
        path.touch()
        watched.asked._holders._unheld = {path.stat().st_ino: unheld}
    assert watched.at(1) == {"file": None}


def test_a_holder_that_has_no_mapping_costs_a_thorough_look_at_itself_alone(
    watched: Watched, tmpfs: Path, processes: ShownProcesses, children: Children
) -> None:
    maps, opens = sorted((children(), children()), key=lambda one: one.pid)
    processes.show(maps, opens)
    (tmpfs / "mapped").write_bytes(b"x")
    (tmpfs / "opened").touch()
    maps.do(f"import mmap; file = open({str(tmpfs / 'mapped')!r}, 'r+b'); kept = mmap.mmap(file.fileno(), 0)")
    opens.do(f"kept = open({str(tmpfs / 'opened')!r})")
    watched.at(0)
    assert watched.at(1) == {"mapped": these(maps), "opened": these(opens)}
    assert watched.looks == [(maps.pid, False), (opens.pid, False), (opens.pid, True)]
    (tmpfs / "unheld").touch()
    assert watched.at(31)["unheld"] == NOBODY
    thorough = [pid for pid, how in watched.looks if how]
    assert sorted(thorough) == sorted({1, maps.pid, opens.pid})  # once each, though it was a full scan


class Stopping(CountingInspector):
    """Lets time pass at every look, and does something before one of them."""

    def __init__(self, procfs: Path, clock: Hand, before: Callable[[int], None] = lambda _pid: None) -> None:
        super().__init__(procfs)
        self.clock = clock
        self.seconds = 0.0
        self.before = before

    def look(self, pid: int, device: int, *, thorough: bool) -> Held | None:
        self.clock.at += self.seconds
        self.before(pid)
        return super().look(pid, device, thorough=thorough)


def test_a_scan_that_the_deadline_cuts_short_goes_on_at_the_next_looks(
    tmpfs: Path, processes: ShownProcesses, children: Children
) -> None:
    many = sorted((children() for _ in range(13)), key=lambda one: one.pid)
    holder = many[-1]
    processes.show(*many)
    for name in ("held", "unheld"):
        (tmpfs / name).touch()
    holder.do(f"kept = open({str(tmpfs / 'held')!r})")
    clock = Hand()
    asked = source(tmpfs, processes, clock=clock)
    inspector = Stopping(processes.path, clock)
    inspector.seconds = 1.0
    asked._inspector = inspector
    told = []
    for _ in range(4):
        began = clock.at
        told.append(dict(holders(asked.read(began + 4))))
        assert clock.at <= began + 4  # of which 3.6 s are for looking
    unknown = {"held": None, "unheld": None}
    known = {"held": these(holder), "unheld": NOBODY}
    assert told == [unknown, unknown, unknown, known]
    assert inspector.looks == [(pid, True) for pid in sorted([1, *(one.pid for one in many)])]
    assert asked._holders is not None
    assert asked._holders.full_scans == 1
    inspector.seconds = 0.0
    seen = by_path(look(asked, clock))
    assert seen["held"].looked_at == clock.at
    assert seen["unheld"].looked_at == 1000.0  # when the scan began
    for seconds, full_scans in ((29, 1), (30, 2)):
        clock.at = 1012.0 + seconds  # a grace time after the look at which it ended, not after that at which it began
        look(asked, clock)
        assert asked._holders.full_scans == full_scans


def test_a_file_found_held_in_the_first_part_of_a_scan_and_let_go_in_the_second_is_not_told_to_be_unheld(
    tmpfs: Path, processes: ShownProcesses, children: Children
) -> None:
    first, *others = sorted((children() for _ in range(6)), key=lambda one: one.pid)
    processes.show(first, *others)
    (tmpfs / "file").touch()
    first.do(f"kept = open({str(tmpfs / 'file')!r})")
    (tmpfs / "unheld").touch()
    clock = Hand()
    asked = source(tmpfs, processes, clock=clock)
    inspector = Stopping(processes.path, clock)
    inspector.seconds = 1.0
    asked._inspector = inspector
    assert asked.read(clock.at + 4).segments[0].holders == these(first)
    first.do("kept.close()")
    inspector.seconds = 0.0
    assert dict(holders(look(asked, clock))) == {"file": None, "unheld": NOBODY}


def test_a_file_that_appears_in_the_middle_of_a_scan_is_not_told_to_be_unheld(
    tmpfs: Path, processes: ShownProcesses, children: Children
) -> None:
    processes.show(*(children() for _ in range(5)))
    (tmpfs / "old").touch()
    clock = Hand()
    asked = source(tmpfs, processes, clock=clock)
    inspector = Stopping(processes.path, clock)
    inspector.seconds = 1.0
    asked._inspector = inspector
    asked.read(clock.at + 4)
    (tmpfs / "new").touch()
    inspector.seconds = 0.0
    assert dict(holders(look(asked, clock))) == {"new": None, "old": NOBODY}


def test_a_scan_whose_files_are_gone_is_given_up(tmpfs: Path, processes: ShownProcesses, children: Children) -> None:
    processes.show(*(children() for _ in range(5)))
    (tmpfs / "old").touch()
    clock = Hand()
    asked = source(tmpfs, processes, clock=clock)
    inspector = Stopping(processes.path, clock)
    inspector.seconds = 1.0
    asked._inspector = inspector
    asked.read(clock.at + 4)
    (tmpfs / "old").unlink()
    inspector.looks.clear()
    assert look(asked, clock).segments == ()
    assert inspector.looks == []
    (tmpfs / "new").touch()
    inspector.seconds = 0.0
    assert dict(holders(look(asked, clock))) == {"new": NOBODY}


def test_a_pid_that_comes_back_while_a_scan_lasts_is_looked_at_again(
    tmpfs: Path, processes: ShownProcesses, children: Children
) -> None:
    first, second, *_ = many = [children() for _ in range(9)]
    processes.show(*many[2:])
    (tmpfs / "file").touch()
    second.do(f"kept = open({str(tmpfs / 'file')!r})")
    shown = processes.path / "2"  # after process 1, before all others
    shown.symlink_to(f"/proc/{first.pid}")
    clock = Hand()
    asked = source(tmpfs, processes, clock=clock)
    inspector = Stopping(processes.path, clock)
    inspector.seconds = 1.0
    asked._inspector = inspector
    asked.read(clock.at + 2.5)
    assert inspector.looks == [(1, True), (2, True), (min(one.pid for one in many[2:]), True)]
    shown.unlink()
    asked.read(clock.at + 0.5)
    shown.symlink_to(f"/proc/{second.pid}")
    inspector.seconds = 0.0
    (found,) = holders(look(asked, clock))["file"] or NOBODY
    assert found == replace(second.id, pid=2)


def test_holders_that_there_was_no_time_for_are_looked_at_the_next_time(
    tmpfs: Path, processes: ShownProcesses, children: Children
) -> None:
    many = [children() for _ in range(4)]
    processes.show(*many)
    for number, one in enumerate(many):
        path = tmpfs / str(number)
        path.write_bytes(b"x")
        one.do(f"import mmap; file = open({str(path)!r}, 'r+b'); kept = mmap.mmap(file.fileno(), 0)")
    clock = Hand()
    asked = source(tmpfs, processes, clock=clock)
    inspector = Stopping(processes.path, clock)
    asked._inspector = inspector
    all_held = {str(number): these(one) for number, one in enumerate(many)}
    assert dict(holders(look(asked, clock))) == all_held
    inspector.seconds = 1.0
    assert sorted(map(bool, holders(asked.read(clock.at + 2)).values())) == [False, False, True, True]
    inspector.seconds = 0.0
    inspector.looks.clear()
    assert dict(holders(look(asked, clock))) == all_held
    assert sorted(inspector.looks) == sorted((one.pid, False) for one in many)


def test_a_child_that_takes_over_while_all_processes_are_looked_at_is_found(
    tmpfs: Path, processes: ShownProcesses, children: Children
) -> None:
    parent = children()
    processes.show(parent)
    (tmpfs / "file").touch()
    parent.do(f"import os, signal; kept = open({str(tmpfs / 'file')!r})")
    clock = Hand()
    asked = source(tmpfs, processes, clock=clock)
    heirs: list[int] = []

    def fork_and_let_go(pid: int) -> None:
        if pid == parent.pid and not heirs:
            heirs.append(parent.number("told = os.fork()\nif not told: signal.pause()"))
            parent.do("kept.close()")
            processes.show(heirs[0])

    asked._inspector = Stopping(processes.path, clock, fork_and_let_go)
    assert dict(holders(look(asked, clock))) == {"file": these(*heirs)}


def test_a_process_that_ends_before_it_is_looked_at_is_no_failure(
    tmpfs: Path, processes: ShownProcesses, children: Children
) -> None:
    ends = children()
    processes.show(ends)
    (tmpfs / "file").touch()
    ends.do(f"kept = open({str(tmpfs / 'file')!r})")
    clock = Hand()
    asked = source(tmpfs, processes, clock=clock)
    asked._inspector = Stopping(processes.path, clock, lambda pid: ends.end() if pid == ends.pid else None)
    seen = look(asked, clock)
    assert (dict(holders(seen)), seen.uninspected) == ({"file": NOBODY}, 0)


def test_what_could_not_be_told_at_a_later_scan_is_not_told_of_an_earlier_one(
    watched: Watched, tmpfs: Path, processes: ShownProcesses
) -> None:
    (tmpfs / "file").touch()
    assert watched.at(0) == {"file": NOBODY}
    (processes.path / "77").mkdir()
    (processes.path / "77" / "stat").write_text("no such thing", encoding="utf-8")
    assert watched.at(29) == {"file": NOBODY}
    assert watched.at(30) == {"file": None}
    assert look(watched.asked, watched.clock).uninspected == 1
    (processes.path / "77" / "stat").unlink()
    (processes.path / "77").rmdir()
    assert watched.at(60) == {"file": NOBODY}


def test_a_hung_look_names_its_process(tmpfs: Path, processes: ShownProcesses, children: Children) -> None:
    hung = children()
    processes.show(hung)
    (tmpfs / "file").touch()
    asked = source(tmpfs, processes)
    reached, go_on = threading.Event(), threading.Event()

    def wait(pid: int) -> None:
        if pid == hung.pid:
            reached.set()
            go_on.wait(30)

    asked._inspector = Stopping(processes.path, Hand(), wait)
    reader = threading.Thread(target=look, args=(asked,))
    assert asked.doing() == "idle"
    reader.start()
    assert reached.wait(30)
    assert asked.doing() == f"looking at what process {hung.pid} holds"
    go_on.set()
    reader.join()
    assert asked.doing() == "idle"
    asked.close()


def test_nothing_stays_open_between_reads(tmpfs: Path, processes: ShownProcesses, children: Children) -> None:
    (tmpfs / "below").mkdir()
    (tmpfs / "below" / "file").touch()
    ended = children()
    processes.show(ended)
    asked = source(tmpfs, processes)
    look(asked)
    ended.end()
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    asked.configure(names=(), grace_seconds=0.0)
    look(asked)
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
