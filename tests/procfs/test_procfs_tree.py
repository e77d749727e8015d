"""The process table from procfs trees on disk, with a clock that we turn."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from tests.fakes.procfs import ProcessEntry, write_proc, write_process

from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Home, Placement, Process, ProcessTable, Role
from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError
from llmhost.sources.procfs import ProcfsSource
from llmhost.sources.procfs_files import MOST_ARGUMENT_BYTES, parse_cmdline

LONG_AGO = 1  # ticks since boot
NOW = 100_000.0  # seconds since boot
HERE, THERE = "/system.slice/here.service", "/system.slice/there.service"


class Tree:
    """A procfs, its source, and the source's clock."""

    def __init__(self, root: Path, processes: Sequence[ProcessEntry]) -> None:
        self.root = write_proc(root, processes)
        self.now = NOW
        self.source = ProcfsSource(procfs=root, trust_pid_namespace=False, clock=lambda: self.now)

    def read(self) -> ProcessTable:
        return self.source.read(time.monotonic() + 10)

    def units(self, pids: Iterable[int]) -> dict[int, str]:
        table = self.read()
        placements = {pid: table.by_pid[pid].placement for pid in pids}
        return {pid: placement.unit.name if placement.unit else "" for pid, placement in placements.items()}

    def move(self, pid: int, cgroup: str) -> None:
        (self.root / str(pid) / "cgroup").write_text(f"0::{cgroup}\n")


def old(pid: int, **rest: object) -> ProcessEntry:
    entry: ProcessEntry = {"pid": pid, "start": LONG_AGO, "argv": ["sleep", "inf"], "cgroup": HERE}
    return entry | rest  # type: ignore[return-value]  # TypedDict | dict is a dict to mypy


def error_of(call: Callable[[], object]) -> SourceError:
    with pytest.raises(SourceError) as caught:
        call()
    return caught.value


def test_every_field_of_a_process_is_read(tmp_path: Path) -> None:
    entry: ProcessEntry = {
        "pid": 4711,
        "ppid": 4000,
        "start": 987654321,
        "state": "D",
        "pgrp": 4001,
        "session": 4002,
        "comm": "VLLM::EngineCor",
        "argv": ["VLLM::EngineCore_DP0"],
        "cgroup": "/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service",
    }
    before = time.monotonic()
    table = Tree(tmp_path, [entry]).read()
    assert table.by_pid[4711] == Process(
        id=ProcessId(4711, 987654321),
        ppid=4000,
        pgrp=4001,
        session=4002,
        state="D",
        kernel_thread=False,
        uid=os.geteuid(),
        comm="VLLM::EngineCor",
        argv=("VLLM::EngineCore_DP0",),
        placement=Placement(Home.SERVICE, UnitId("vllm.service", "user@1000")),
        engine="vllm",
        role=Role.CORE,
        pipes_denied=True,
    )
    assert (table.unreadable, table.denied) == (0, frozenset())
    assert table.read_from_ticks == NOW * os.sysconf("SC_CLK_TCK")
    assert table.read_at_monotonic is not None
    assert before <= table.read_at_monotonic <= time.monotonic()
    assert table.children == {0: (1,), 4000: (4711,)}
    assert table.of(ProcessId(4711, 987654321)) is table.by_pid[4711]
    assert table.of(ProcessId(4711, 987654322)) is None


def test_arguments_lose_their_padding_and_keep_empty_ones_inside() -> None:
    assert parse_cmdline(b"VLLM::Worker_TP0\0\0\0\0\0") == ("VLLM::Worker_TP0",)
    assert parse_cmdline(b"a\0\0b\0") == ("a", "", "b")
    assert parse_cmdline(b"no end") == ("no end",)
    assert parse_cmdline(b"\0\0") == ()
    assert parse_cmdline(b"\xe2\x82\xac \xff\0") == ("€ \\xff",)


def test_kernel_threads_are_known_by_their_flag_and_of_no_unit(tmp_path: Path) -> None:
    entry = old(2, comm="kworker/R-VLLM::EngineCore", argv=[], flags=0x00200000 | 0x40, cgroup=HERE)
    process = Tree(tmp_path, [entry]).read().by_pid[2]
    assert process.kernel_thread
    assert (process.placement.home, process.engine, process.argv) == (Home.NONE, "", ())


def test_what_cannot_be_read_of_a_process_is_counted_and_the_rest_is_reported(tmp_path: Path) -> None:
    tree = Tree(tmp_path, [old(10), old(11), old(12), old(13)])
    for name in ("10/cgroup", "11/cmdline", "12/stat"):  # a directory opens, and then fails to read
        (tmp_path / name).unlink()
        (tmp_path / name).mkdir()
    for _ in range(2):  # also from memory
        table = tree.read()
        assert set(table.by_pid) == {1, 10, 11, 13}
        assert (table.unreadable, table.denied) == (3, frozenset({12}))
        assert table.by_pid[10].argv == ("sleep", "inf")
        assert table.by_pid[11].placement.unit == UnitId("here.service")


def test_a_process_without_its_files_is_gone_and_not_counted(tmp_path: Path) -> None:
    tree = Tree(tmp_path, [old(10), old(11), old(12)])
    (tmp_path / "10/cgroup").unlink()
    (tmp_path / "11/stat").unlink()
    table = tree.read()
    assert set(table.by_pid) == {1, 12}
    assert table.unreadable == 0


def test_no_directory_and_an_empty_one_are_no_procfs(tmp_path: Path) -> None:
    for root in (tmp_path / "none", tmp_path):
        source = ProcfsSource(procfs=root, trust_pid_namespace=True)
        assert error_of(lambda source=source: source.read(float("inf"))).cause is Cause.NO_PROCFS  # type: ignore[misc]


def test_outside_of_the_hosts_pid_namespace_nothing_is_read(tmp_path: Path) -> None:
    write_proc(tmp_path, [old(10)], pid_namespace=4026532281)
    error = error_of(lambda: ProcfsSource(procfs=tmp_path, trust_pid_namespace=False).read(float("inf")))
    assert error.cause is Cause.PID_NAMESPACE
    assert "pid:[4026532281]" in error.detail
    assert "host.pid_namespace" in error.detail


def test_a_procfs_that_does_not_know_us_is_not_the_one_of_our_pid_namespace(tmp_path: Path) -> None:
    write_proc(tmp_path, [old(10)])
    (tmp_path / "self/ns/pid").unlink()
    error = error_of(lambda: ProcfsSource(procfs=tmp_path, trust_pid_namespace=False).read(float("inf")))
    assert error.cause is Cause.PID_NAMESPACE


@pytest.mark.parametrize(("broken", "how"), [("1", "is not listed"), ("1/stat", "cannot be read")])
def test_a_procfs_that_hides_process_1_hides_others_too_and_gives_no_table(
    tmp_path: Path, broken: str, how: str
) -> None:
    tree = Tree(tmp_path, [old(10)])
    (tmp_path / broken).rename(tmp_path / "elsewhere")
    error = error_of(tree.read)
    assert error.cause is Cause.NO_PERMISSION
    assert how in error.detail


def test_a_read_past_its_deadline_says_how_far_it_came_and_names_the_process_it_waits_for(tmp_path: Path) -> None:
    tree = Tree(tmp_path, [old(10), old(20), old(30)])
    (tmp_path / "20/stat").unlink()
    os.mkfifo(tmp_path / "20/stat")  # to open it for reading waits for a writer, as a stuck process makes us wait
    caught: list[SourceError] = []
    deadline = time.monotonic() + 1

    def read() -> None:
        caught.append(error_of(lambda: tree.source.read(deadline)))

    thread = threading.Thread(target=read)
    thread.start()
    writer = os.open(tmp_path / "20/stat", os.O_WRONLY)  # comes back once the reader is there
    assert tree.source.doing() == "reading process 20"
    time.sleep(max(deadline - time.monotonic(), 0))
    os.close(writer)
    thread.join(10)
    assert caught[0].cause is Cause.TIMEOUT
    assert caught[0].detail == "3 of 4 processes read"
    assert tree.source.doing() == "idle"


def test_a_deadline_that_has_passed_leaves_the_next_read_whole(tmp_path: Path) -> None:
    tree = Tree(tmp_path, [old(10)])
    error = error_of(lambda: tree.source.read(time.monotonic() - 1))
    assert (error.cause, error.detail) == (Cause.TIMEOUT, "0 of 2 processes read")
    assert set(tree.read().by_pid) == {1, 10}


def test_what_is_known_of_a_settled_process_is_kept_for_a_while(tmp_path: Path) -> None:
    tree = Tree(tmp_path, [old(10)])
    tree.read()
    tree.move(10, THERE)
    assert tree.units([10]) == {10: "here.service"}  # in the same second: from memory


def test_a_move_to_another_cgroup_is_seen_within_a_minute_and_the_work_is_spread(tmp_path: Path) -> None:
    pids = range(1000, 1120)
    tree = Tree(tmp_path, [old(pid) for pid in pids])
    tree.read()
    for pid in pids:
        tree.move(pid, THERE)
    moves = []
    for _ in range(4):
        tree.now += 15
        moves.append(sum(name == "there.service" for name in tree.units(pids).values()))
    assert moves == [30, 60, 90, 120]


def test_after_a_minute_without_a_read_everything_is_read_again(tmp_path: Path) -> None:
    tree = Tree(tmp_path, [old(10), old(11)])
    tree.read()
    tree.move(10, THERE)
    tree.move(11, THERE)
    tree.now += 61
    assert set(tree.units([10, 11]).values()) == {"there.service"}


def test_an_engines_process_and_its_services_others_are_read_again_every_time(tmp_path: Path) -> None:
    engine: ProcessEntry = {"pid": 10, "start": LONG_AGO, "argv": ["VLLM::EngineCore"], "cgroup": HERE}
    elsewhere: ProcessEntry = {"pid": 11, "start": LONG_AGO, "argv": ["VLLM::Worker"], "cgroup": "/"}
    tree = Tree(tmp_path, [engine, elsewhere, old(12), old(13, cgroup="/system.slice/other.service")])
    tree.read()
    for pid in (10, 11, 12, 13):
        tree.move(pid, THERE)
    there = "there.service"
    assert tree.units([10, 11, 12, 13]) == {10: there, 11: there, 12: there, 13: "other.service"}


def test_a_young_process_is_read_again_every_time(tmp_path: Path) -> None:
    hertz = os.sysconf("SC_CLK_TCK")
    young, grown = int((NOW - 59) * hertz), int((NOW - 61) * hertz)
    tree = Tree(tmp_path, [old(10, start=young), old(11, start=grown)])
    tree.read()
    tree.move(10, THERE)
    tree.move(11, THERE)
    assert tree.units([10, 11]) == {10: "there.service", 11: "here.service"}


def test_a_new_name_makes_the_command_line_be_read_again(tmp_path: Path) -> None:
    tree = Tree(tmp_path, [old(10, argv=["python3"], comm="python3")])
    assert tree.read().by_pid[10].role is Role.OTHER
    write_process(tmp_path, old(10, argv=["VLLM::Worker_TP0"], comm="VLLM::Worker_TP"))
    process = tree.read().by_pid[10]
    assert (process.argv, process.engine, process.role) == (("VLLM::Worker_TP0",), "vllm", Role.WORKER)


def test_a_reused_pid_is_another_process(tmp_path: Path) -> None:
    tree = Tree(tmp_path, [old(10)])
    tree.read()
    write_process(tmp_path, old(10, start=LONG_AGO + 1, argv=["sleep", "1"], cgroup=THERE))
    process = tree.read().by_pid[10]
    assert (process.id, process.argv) == (ProcessId(10, LONG_AGO + 1), ("sleep", "1"))
    assert process.placement.unit == UnitId("there.service")


def test_a_new_parent_and_state_are_seen_at_once(tmp_path: Path) -> None:
    tree = Tree(tmp_path, [old(10, ppid=9), old(9)])
    assert tree.read().children[9] == (10,)
    write_process(tmp_path, old(10, ppid=1, state="D"))
    table = tree.read()
    assert (table.by_pid[10].ppid, table.by_pid[10].state) == (1, "D")
    assert 9 not in table.children


def test_a_zombie_keeps_the_role_and_unit_that_it_was_seen_with_but_no_arguments(tmp_path: Path) -> None:
    tracker = ["python3", "-c", "from multiprocessing.resource_tracker import main;main(9)"]
    tree = Tree(
        tmp_path, [old(10, argv=tracker, comm="python3"), old(11, argv=["VLLM::EngineCore"], comm="VLLM::EngineCor")]
    )
    tree.read()
    for pid, comm in ((10, "python3"), (11, "VLLM::EngineCor")):
        write_process(tmp_path, old(pid, state="Z", argv=[], comm=comm, cgroup="/"))  # v1 shows the root for zombies
    for seconds in (0, 61):
        tree.now += seconds
        by_pid = tree.read().by_pid
        assert [by_pid[pid].zombie for pid in (10, 11)] == [True, True]
        assert [by_pid[pid].argv for pid in (10, 11)] == [(), ()]
        assert [by_pid[pid].role for pid in (10, 11)] == [Role.TRACKER, Role.CORE]
        assert {by_pid[pid].placement.unit for pid in (10, 11)} == {UnitId("here.service")}


def test_an_ended_process_leaves_the_table(tmp_path: Path) -> None:
    tree = Tree(tmp_path, [old(10), old(11)])
    tree.read()
    (tmp_path / "10").rename(tmp_path / "gone")
    assert set(tree.read().by_pid) == {1, 11}


def test_endless_arguments_are_cut(tmp_path: Path) -> None:
    process = Tree(tmp_path, [old(10, argv=["vllm", "serve", "m", "x" * 200_000])]).read().by_pid[10]
    assert process.argv[:3] == ("vllm", "serve", "m")
    assert len(process.argv[3]) == MOST_ARGUMENT_BYTES - len("vllm serve m ")
    assert process.role is Role.API_SERVER


def test_a_read_that_runs_out_of_time_is_not_in_vain(tmp_path: Path) -> None:
    write_proc(tmp_path, [old(pid) for pid in range(10, 20)])
    times = iter(range(1000))
    source = ProcfsSource(procfs=tmp_path, trust_pid_namespace=True, monotonic=lambda: next(times))
    error = error_of(lambda: source.read(6))  # it has looked at the clock once before
    assert (error.cause, error.detail) == (Cause.TIMEOUT, "6 of 11 processes read")
    assert sorted(source._known) == [1, 10, 11, 12, 13, 14]
