"""Looks at processes that take time: deadlines cut them short, and processes change in their middle."""

import threading
from dataclasses import replace
from pathlib import Path

from tests.fakes.shm import Children, Hand, ShownProcesses, Stopping, by_path, holders, observe, source, these

from llmhost.model.ids import ProcessId
from llmhost.sources.shm.source import ShmSource

NO_HOLDERS: frozenset[ProcessId] = frozenset()


def slow(shm: Path, processes: ShownProcesses, seconds: float = 1.0) -> tuple[Hand, ShmSource, Stopping]:
    """Give a source whose every inspection takes that long on its clock."""
    clock = Hand()
    shm_source = source(shm, processes, clock=clock)
    inspector = shm_source._inspector = Stopping(processes.path, clock)
    inspector.seconds = seconds
    return clock, shm_source, inspector


def test_a_scan_that_the_deadline_cuts_short_goes_on_at_the_next_reads(tmpfs: Path, processes: ShownProcesses) -> None:
    many = sorted((processes.child() for _ in range(13)), key=lambda child: child.pid)
    holder = many[-1]
    for name in ("held", "unheld"):
        (tmpfs / name).touch()
    holder.do(f"kept = open({str(tmpfs / 'held')!r})")
    clock, shm_source, inspector = slow(tmpfs, processes)
    claims = []
    for _ in range(4):
        began = clock.at
        claims.append(dict(holders(shm_source.read(began + 4))))
        assert clock.at <= began + 4  # of which 3.6 s are for looking
    unknown = {"held": None, "unheld": None}
    known = {"held": these(holder), "unheld": NO_HOLDERS}
    assert claims == [unknown, unknown, unknown, known]
    assert inspector.inspected == [(pid, True) for pid in sorted([1, *(child.pid for child in many)])]
    assert shm_source._holders is not None
    assert shm_source._holders.full_scans == 1
    inspector.seconds = 0.0
    shared = by_path(observe(shm_source, clock))
    assert shared["held"].inspected_at == clock.at
    assert shared["unheld"].inspected_at == 1000.0  # when the scan began
    for seconds, full_scans in ((29, 1), (30, 2)):
        clock.at = 1012.0 + seconds  # a grace time after the look at which it ended, not after that at which it began
        observe(shm_source, clock)
        assert shm_source._holders.full_scans == full_scans


def test_a_scan_whose_files_are_gone_is_given_up(tmpfs: Path, processes: ShownProcesses) -> None:
    _ = [processes.child() for _ in range(5)]
    (tmpfs / "old").touch()
    clock, shm_source, inspector = slow(tmpfs, processes)
    shm_source.read(clock.at + 4)
    (tmpfs / "old").unlink()
    inspector.inspected.clear()
    assert observe(shm_source, clock).segments == ()
    assert inspector.inspected == []
    (tmpfs / "new").touch()
    inspector.seconds = 0.0
    assert dict(holders(observe(shm_source, clock))) == {"new": NO_HOLDERS}


def test_a_pid_that_comes_back_while_a_scan_lasts_is_inspected_again(
    tmpfs: Path, processes: ShownProcesses, children: Children
) -> None:
    first, second, *_ = many = [children() for _ in range(9)]
    processes.show(*many[2:])
    (tmpfs / "file").touch()
    second.do(f"kept = open({str(tmpfs / 'file')!r})")
    shown = processes.path / "2"  # after process 1, before all others
    shown.symlink_to(f"/proc/{first.pid}")
    clock, shm_source, inspector = slow(tmpfs, processes)
    shm_source.read(clock.at + 2.5)
    assert inspector.inspected == [(1, True), (2, True), (min(child.pid for child in many[2:]), True)]
    shown.unlink()
    shm_source.read(clock.at + 0.5)
    shown.symlink_to(f"/proc/{second.pid}")
    inspector.seconds = 0.0
    (found,) = holders(observe(shm_source, clock))["file"] or NO_HOLDERS
    assert found == replace(second.id, pid=2)


def test_holders_that_there_was_no_time_for_are_inspected_the_next_time(tmpfs: Path, processes: ShownProcesses) -> None:
    many = [processes.child() for _ in range(4)]
    for number, child in enumerate(many):
        path = tmpfs / str(number)
        path.write_bytes(b"x")
        child.do(f"import mmap; file = open({str(path)!r}, 'r+b'); kept = mmap.mmap(file.fileno(), 0)")
    clock, shm_source, inspector = slow(tmpfs, processes, 0.0)
    all_held = {str(number): these(child) for number, child in enumerate(many)}
    assert dict(holders(observe(shm_source, clock))) == all_held
    inspector.seconds = 1.0
    assert sorted(map(bool, holders(shm_source.read(clock.at + 2)).values())) == [False, False, True, True]
    inspector.seconds = 0.0
    inspector.inspected.clear()
    assert dict(holders(observe(shm_source, clock))) == all_held
    assert sorted(inspector.inspected) == sorted((child.pid, False) for child in many)


def test_a_child_that_takes_over_during_a_full_scan_is_found(tmpfs: Path, processes: ShownProcesses) -> None:
    parent = processes.child()
    (tmpfs / "file").touch()
    parent.do(f"import os, signal; kept = open({str(tmpfs / 'file')!r})")
    clock = Hand()
    shm_source = source(tmpfs, processes, clock=clock)
    heirs: list[int] = []

    def fork_and_let_go(pid: int) -> None:
        if pid == parent.pid and not heirs:
            heirs.append(parent.number("answer = os.fork()\nif not answer: signal.pause()"))
            parent.do("kept.close()")
            processes.show(heirs[0])

    shm_source._inspector = Stopping(processes.path, clock, fork_and_let_go)
    assert dict(holders(observe(shm_source, clock))) == {"file": these(*heirs)}


def test_a_process_that_ends_before_it_is_inspected_is_no_failure(tmpfs: Path, processes: ShownProcesses) -> None:
    ends = processes.child()
    (tmpfs / "file").touch()
    ends.do(f"kept = open({str(tmpfs / 'file')!r})")
    clock = Hand()
    shm_source = source(tmpfs, processes, clock=clock)
    shm_source._inspector = Stopping(processes.path, clock, lambda pid: ends.end() if pid == ends.pid else None)
    shared = observe(shm_source, clock)
    assert (dict(holders(shared)), shared.uninspected) == ({"file": NO_HOLDERS}, 0)


def test_a_hung_scan_names_its_process(tmpfs: Path, processes: ShownProcesses) -> None:
    hung = processes.child()
    (tmpfs / "file").touch()
    shm_source = source(tmpfs, processes)
    reached, go_on = threading.Event(), threading.Event()

    def wait(pid: int) -> None:
        if pid == hung.pid:
            reached.set()
            go_on.wait(30)

    shm_source._inspector = Stopping(processes.path, Hand(), wait)
    reader = threading.Thread(target=observe, args=(shm_source,))
    assert shm_source.doing() == "idle"
    reader.start()
    assert reached.wait(30)
    assert shm_source.doing() == f"looking at what process {hung.pid} holds"
    go_on.set()
    reader.join()
    assert shm_source.doing() == "idle"
    shm_source.close()
