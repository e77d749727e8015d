"""Segments that a clean-up removes, reasons to skip others, and hosts where it does nothing at all."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.clean_plans import AT, NOW, ROOT, epoch, host, inodes, kept, pids, planned, waiting
from tests.fakes.orphan_trees import SPAWN, TRACKER, run
from tests.fakes.values import in_service, segment, unit

from llmhost.decide.cleanup.steps import CleanupRequest, Condition
from llmhost.model.clock_offset import ClockOffset
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok
from llmhost.model.segment import Segment, SegmentId, SegmentKind

NAMES = {
    SegmentKind.PYTHON_SHM: "psm_0a1b2c3d",
    SegmentKind.SEMAPHORE: "sem.mp-abcdefgh",
    SegmentKind.NCCL: "nccl-AbCdEf",
    SegmentKind.TORCH: "torch_77_1_2",
    SegmentKind.VLLM: "vllm_offload_1.mmap",
    SegmentKind.SGLANG: "sgl_shm_mm_77_a1",
    SegmentKind.CUDA: "cuda.shm.0.1",
    SegmentKind.OPENMP: "__KMP_REGISTERED_LIB_77_0",
    SegmentKind.LOKY: "sem.loky-77-abcdefgh",
    SegmentKind.OTHER: "PostgreSQL.1",
}


def file(inode: int = 5, kind: SegmentKind = SegmentKind.NCCL, **given: Any) -> Segment:  # noqa: ANN401
    """Give a segment without a holder, last changed 1000 s after boot."""
    values = {"path": NAMES[kind], "kind": kind, "changed_at": epoch(1000.0), "inspected_at": 5000.0}
    return segment(inode, **(values | given))


def core(pid: int = 40, started: float = 10.0, **given: Any) -> Any:  # noqa: ANN401
    """Give an orphaned core, started that many seconds after boot."""
    return run(pid, "VLLM::EngineCore", start=int(started * 100), **({"pipes": {24: pid}} | given))


@pytest.mark.parametrize("kind", list(SegmentKind))
def test_stale_files_of_each_known_kind_are_removed_but_cudas_never_nor_unknown_ones(kind: SegmentKind) -> None:
    found = planned(host(segments=[file(kind=kind)]))
    if kind in {SegmentKind.CUDA, SegmentKind.OTHER}:
        assert (found.steps, list(kept(found))) == ((), [5])
    else:
        assert (inodes(found), found.skipped) == ([5], ())


def test_a_file_that_is_held_is_no_matter() -> None:
    held = replace(file(), holders=frozenset({ProcessId(30, 1000)}))
    found = planned(host(segments=[held]))
    assert (found.steps, found.waiting, found.skipped) == ((), (), ())


def test_a_file_of_unknown_holders_is_counted_and_kept() -> None:
    found = planned(host(segments=[replace(file(), holders=None), replace(file(6, SegmentKind.OTHER), holders=None)]))
    assert (found.steps, found.waiting, found.skipped) == ((), (), ())
    assert found.unknowns == ("whether files of known kinds are held, of 1 (not all was looked at in time)",)


def test_a_file_that_was_not_watched_for_long_enough_waits() -> None:
    snapshot = host(segments=[file()])
    assert waiting(planned(snapshot, watched=29.9)) == [5]
    assert inodes(planned(snapshot, watched=30.0)) == [5]


def test_a_second_plan_takes_only_the_same_unchanged_file() -> None:
    first = planned(host(segments=[file()]), watched=0.0)
    assert waiting(first) == [5]
    assert inodes(planned(host(segments=[file()]), ROOT, first)) == [5]
    for other in (file(6), file(changed_at=epoch(1000.5))):
        found = planned(host(segments=[other]), ROOT, first)
        assert found.steps == ()
        assert list(kept(found).values()) == ["in use, or another, at the first look: clean again"]


def test_a_shared_memory_of_pythons_stays_while_a_process_as_old_of_its_user_lives() -> None:
    psm = file(kind=SegmentKind.PYTHON_SHM)
    server = run(30, "/usr/bin/vllm serve m", start=99_000)  # 990 s after boot
    assert kept(planned(host([server], [psm]))) == {
        5: "may still be opened by name by 30 vllm; can go once that process has ended"
    }
    of_unit = replace(server, placement=in_service("vllm-small.service"))
    for active, told in (
        ("active", "vllm-small.service (pid 30); can go once that unit has stopped"),
        ("failed", "30 vllm; can go once that process has ended"),  # a stop would not end it
    ):
        found = planned(host([of_unit], [psm], [unit("vllm-small.service", active=active)]))
        assert kept(found)[5] == f"may still be opened by name by {told}"
    at_the_same_time = replace(server, id=ProcessId(30, 100_050))  # by clocks that differ by less than a second
    assert inodes(planned(host([at_the_same_time], [psm]))) == []
    younger = replace(server, id=ProcessId(30, 100_150))
    assert inodes(planned(host([younger], [psm]))) == [5]
    assert inodes(planned(host([replace(server, uid=1000)], [psm]))) == [5]
    assert inodes(planned(host([replace(server, state="Z")], [psm]))) == [5]
    assert inodes(planned(host([server], [file()]))) == [5]  # other kinds are not handed over by name for so long


@pytest.mark.parametrize("command", [SPAWN, TRACKER])
def test_any_multiprocessing_of_its_user_may_come_for_it(command: tuple[str, ...]) -> None:
    parent = run(29, "python3 train.py", pipes={4: 900})
    child = run(30, command, 29, start=99_000, pipes={31: 900, 24: 900})
    assert list(kept(planned(host([parent, child], [file(kind=SegmentKind.PYTHON_SHM)])))) == [5]


def test_any_python_of_the_unit_that_held_it_may_come_for_it_though_nobody_tracks_it() -> None:
    """SharedMemory(track=False) has no tracker, and its user need be no child of multiprocessing."""
    psm = file(kind=SegmentKind.PYTHON_SHM)
    of_unit = {psm.id: UnitId("train.service")}
    trainer = run(30, "python3 train.py", start=99_000, placement=in_service("train.service"), uid=1000)
    assert kept(planned(host([trainer], [psm]), segment_units=of_unit)) == {
        5: "may still be opened by name by 30 python3; can go once that process has ended"
    }
    others = (
        replace(trainer, id=ProcessId(30, 100_150)),
        replace(trainer, placement=in_service("other.service")),
        run(30, "/bin/sleep 1000", start=99_000, placement=in_service("train.service")),
    )
    for other in others:
        assert inodes(planned(host([other], [psm]), segment_units=of_unit)) == [5]
    assert inodes(planned(host([trainer], [psm]))) == [5]  # nobody saw who held it


def test_it_goes_after_an_older_process_that_the_same_plan_ends() -> None:
    psm = file(kind=SegmentKind.PYTHON_SHM)
    found = planned(host([core()], [psm]))
    assert (pids(found), inodes(found)) == ([40], [5])
    assert found.removals[0].after == {ProcessId(40, 1000)}
    assert planned(host([core(started=2000.0)], [psm])).removals[0].after == frozenset()
    found = planned(host([core()], [psm]), CleanupRequest(uid=0, kinds=frozenset({SegmentKind.PYTHON_SHM})))
    assert (found.steps, list(kept(found))) == ((), [5])  # it is not asked for, and so stays
    found = planned(host([core(uid=1000)], [replace(psm, uid=1000)]), CleanupRequest(uid=0))
    assert (found.steps, sorted(kept(found))) == ((), [5, 40])
    two = [core(), core(41, pgrp=300)]
    first = planned(host(two, [psm]), watched=20.0)  # processes need 15 s, files 30
    assert (pids(first), waiting(first)) == ([40, 41], [5])


def test_it_waits_where_what_has_to_end_before_it_waits() -> None:
    snapshot = host([core()], [file(kind=SegmentKind.PYTHON_SHM)])
    found = planned(snapshot, watched=10.0)
    assert (found.steps, waiting(found)) == ((), [40, 5])
    found = planned(snapshot, watched=60.0, orphans_watched=10.0)  # the file itself was unheld for long enough
    assert (found.steps, waiting(found)) == ((), [40, 5])


def test_where_not_every_process_can_be_read_python_s_stay() -> None:
    snapshot = host(segments=[file(kind=SegmentKind.PYTHON_SHM), file(6)])
    assert isinstance(snapshot.processes, Ok)
    snapshot = replace(snapshot, processes=Ok(replace(snapshot.processes.value, unreadable=1)))
    found = planned(snapshot)
    assert (inodes(found), list(kept(found))) == ([6], [5])


def test_a_pid_in_a_name_counts_only_where_all_sharers_of_the_tmpfs_are_of_our_namespace() -> None:
    snapshot = host(segments=[file(kind=SegmentKind.SGLANG, creator_pid=77)])
    assert inodes(planned(snapshot)) == [5]
    assert "process 12 of another PID namespace" in kept(planned(snapshot, foreign_pids=[90, 12]))[5]
    assert "root can tell" in kept(planned(snapshot, foreign_pids=None))[5]
    assert inodes(planned(host(segments=[file()]), foreign_pids=[90])) == [5]


def test_a_file_with_the_pid_of_a_process_that_lives_stays_or_goes_after_it() -> None:
    named_after = file(kind=SegmentKind.LOKY, creator_pid=77)
    alive = run(77, "python3 train.py")
    told = "named after the pid of 77 python3; can go once that process has ended"
    assert kept(planned(host([alive], [named_after]))) == {5: told}
    assert inodes(planned(host([replace(alive, state="Z")], [named_after]))) == [5]
    found = planned(host([core(77)], [named_after]))
    assert (pids(found), inodes(found)) == ([77], [5])
    assert found.removals[0].after == {ProcessId(77, 1000)}


def test_nothing_newer_than_the_start_of_a_unit_that_is_starting_is_removed() -> None:
    def at(began: float, active: str = "activating", sub: str = "start-pre") -> dict[int, str]:
        starting = unit("vllm.service", active, sub, condition_monotonic=began, inactive_exit_monotonic=began)
        found = planned(host(segments=[file()], units=[starting]))  # it changed at 1000
        assert inodes(found) == ([] if kept(found) else [5])
        return kept(found)

    assert "vllm.service is starting" in at(990.0)[5]
    assert at(1002.0) == {}
    assert at(990.0, "activating", "auto-restart") == {}
    assert at(990.0, "active", "running") == {}
    unknown = unit("vllm.service", "activating", "start", condition_monotonic=None)
    assert list(kept(planned(host(segments=[file()], units=[unknown])))) == [5]


def test_what_was_suspended_since_leaves_a_start_in_doubt() -> None:
    """CLOCK_MONOTONIC stood still for a while: 1100 on it may be as long ago as the file."""
    starting = unit("vllm.service", "activating", "start", condition_monotonic=1100.0, inactive_exit_monotonic=1100.0)
    snapshot = host(segments=[file()], units=[starting])
    assert isinstance(snapshot.host, Ok)
    assert inodes(planned(snapshot)) == [5]
    slept = replace(snapshot, host=Ok(replace(snapshot.host.value, boottime_ahead_seconds=200.0)))
    assert list(kept(planned(slept))) == [5]


def test_another_users_file_takes_root() -> None:
    snapshot = host(segments=[file(uid=1000)])
    assert inodes(planned(snapshot, CleanupRequest(uid=0))) == [5]
    assert inodes(planned(snapshot, CleanupRequest(uid=1000))) == [5]
    assert kept(planned(snapshot, CleanupRequest(uid=1001))) == {5: "user 1000's: for root to remove"}


def test_only_the_requested_kinds_are_planned() -> None:
    of_unit = {SegmentId(27, 6): UnitId("vllm.service")}
    snapshot = host(segments=[file(5), file(6, SegmentKind.SEMAPHORE), file(7, SegmentKind.CUDA)])
    found = planned(snapshot, CleanupRequest(uid=0, units=frozenset({UnitId("vllm.service")})), segment_units=of_unit)
    assert (inodes(found), found.removals[0].unit, found.skipped) == ([6], UnitId("vllm.service"), ())
    assert inodes(planned(snapshot, CleanupRequest(uid=0, kinds=frozenset({SegmentKind.NCCL})))) == [5]
    assert planned(snapshot, CleanupRequest(uid=0, kinds=frozenset({Condition.ORPHAN}))).steps == ()
    assert inodes(planned(snapshot, CleanupRequest(uid=0, older_than_seconds=4000.0))) == [
        5,
        6,
    ]  # they changed 4000 s ago
    assert inodes(planned(snapshot, CleanupRequest(uid=0, older_than_seconds=4001.0))) == []


@pytest.mark.parametrize("reading", ["processes", "units", "host"])
def test_without_processes_units_or_clocks_nothing_is_done(reading: str) -> None:
    snapshot = host([core()], [file()])
    assert len(planned(snapshot).steps) == 2
    for missing in (Failed(Cause.TIMEOUT), NotApplicable("disabled by the config")):
        found = planned(replace(snapshot, **{reading: missing}))  # type: ignore[arg-type]
        assert found.refused
        assert (found.steps, found.waiting, found.skipped) == ((), (), ())


def test_outside_the_hosts_pid_namespace_it_refuses_and_says_what_would_let_it() -> None:
    detail = "we run in pid:[1], not in the host's; run in the host's, or set host.pid_namespace to trust"
    assert planned(replace(host(), processes=Failed(Cause.PID_NAMESPACE, detail))).refused == detail


def test_without_shared_memory_processes_are_still_ended() -> None:
    found = planned(replace(host([core()]), shm=Failed(Cause.NO_PERMISSION, "/dev/shm: denied")))
    assert pids(found) == [40]
    assert found.unknowns == ("the files of shared memory cannot be read: no permission (/dev/shm: denied)",)
    assert planned(replace(host(), shm=NotApplicable("disabled by the config"))).unknowns == ()


def test_a_clock_that_was_set_back_removes_no_python_shm_of_a_living_engine() -> None:
    """To the clock as it is now, the file was made in the future: every process is older."""
    server = run(30, "/usr/bin/vllm serve m", start=300_000)
    ahead = file(kind=SegmentKind.PYTHON_SHM, changed_at=AT + 3600)
    assert list(kept(planned(host([server], [ahead])))) == [5]


def test_a_clock_that_was_set_forward_makes_no_file_older_than_the_engine_that_made_it() -> None:
    """By an hour, at 4500 s: a file of 4000 s seems to be of 400 s, and the engine to have begun after it."""
    server = run(30, "/usr/bin/vllm serve m", start=390_000)
    of_400 = file(kind=SegmentKind.PYTHON_SHM, changed_at=epoch(400.0))
    before = (ClockOffset(0.0, epoch(0.0) - 3600), ClockOffset(4480.0, epoch(0.0) - 3600))
    after = (ClockOffset(4520.0, epoch(0.0)), ClockOffset(NOW, epoch(0.0)))
    starting = unit("vllm.service", "activating", "start", condition_monotonic=3890.0, inactive_exit_monotonic=3890.0)
    for known in ((*before, *after), after):  # the exporter, or systemd, knows it; or has begun since
        why = kept(planned(host([server], [of_400]), clock_offsets=known))[5]
        assert "by 30 vllm, which may be as old, as the clock was set or not watched since; can go once" in why
        nccl = replace(of_400, kind=SegmentKind.NCCL)
        assert list(kept(planned(host(segments=[nccl], units=[starting]), clock_offsets=known))) == [5]
        older = CleanupRequest(uid=0, older_than_seconds=1200)
        assert planned(host(segments=[of_400]), older, clock_offsets=known).steps == ()
        assert inodes(planned(host(segments=[of_400]), clock_offsets=known)) == [5]  # nobody may come for it
    assert inodes(planned(host([server], [of_400]))) == [5]  # it was never set, and so the file is that old


def test_what_was_seen_before_a_process_began_is_no_business_of_its_whatever_the_clock_says() -> None:
    server = run(30, "/usr/bin/vllm serve m", start=390_000)
    stale = file(kind=SegmentKind.PYTHON_SHM, changed_at=AT + 7200)
    seen: dict[str, Any] = {"clock_offsets": (), "unheld_changed_at": {stale.id: AT + 7200}}
    assert inodes(planned(host([server], [stale]), watched=1200.0, **seen)) == [5]
    assert list(kept(planned(host([server], [stale]), watched=1000.0, **seen))) == [5]
