"""The processes whose pipes are read: on trees on disk, and of real processes."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.fakes.needs import needs_root
from tests.fakes.procfs import INIT, ProcessEntry, write_proc, write_process

from llmhost.derive.parentage import ParentLink, parent_link
from llmhost.derive.trackers import TrackerState, tracker_states
from llmhost.model.ids import ProcessId
from llmhost.model.process import Process, ProcessTable
from llmhost.sources import procfs
from llmhost.sources.procfs import ProcfsSource
from llmhost.sources.procfs_pipes import MOST_DESCRIPTORS, MOST_SECONDS, SEARCH_SECONDS, NoPipes, Pipes, read_pipes

NOW = 100_000.0
PIPE = 7001
TRACKER = ["python3", "-B", "-c", "from multiprocessing.resource_tracker import main;main(31)"]
SPAWN = ["python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=9, pipe_handle=8)"]


class Tree:
    """A procfs, its source and clock, and the pids whose descriptors were read."""

    def __init__(self, root: Path, processes: Sequence[ProcessEntry], monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = write_proc(root, processes)
        self.now = NOW
        self.monotonic = 50.0
        self.seconds_each = 0.0  # that a look at a process's descriptors takes
        self.looked_at: list[int] = []
        self.table = ProcessTable(by_pid={}, unreadable=0)
        self.source = ProcfsSource(
            procfs=root, trust_pid_namespace=False, clock=lambda: self.now, monotonic=lambda: self.monotonic
        )

        def counting(path: str, start_ticks: int) -> Pipes | NoPipes:
            self.looked_at.append(int(path.rsplit("/", 1)[-1]))
            self.monotonic += self.seconds_each
            return read_pipes(path, start_ticks)

        monkeypatch.setattr(procfs, "read_pipes", counting)

    def pipes(self, seconds: float = 10.0) -> dict[int, Pipes]:
        self.looked_at = []
        self.table = self.source.read(self.monotonic + seconds)
        by_pid: dict[int, Process] = dict(self.table.by_pid)
        return {pid: process.pipes for pid, process in by_pid.items() if process.pipes is not None}

    def tracker(self, pid: int = 101) -> TrackerState | None:
        return tracker_states(self.table, frozenset()).get(ProcessId(pid, 100 * pid))


Grow = Callable[[Sequence[ProcessEntry]], Tree]


@pytest.fixture
def grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grow:
    return lambda processes: Tree(tmp_path, processes, monkeypatch)


def entry_of(pid: int, ppid: int, argv: list[str], pipes: dict[int, int] | None = None, **more: object) -> ProcessEntry:
    entry: ProcessEntry = {"pid": pid, "ppid": ppid, "argv": argv, "pipes": pipes or {5: pid}}
    return entry | more  # type: ignore[return-value]  # TypedDict | dict is a dict to mypy


SERVER = entry_of(100, 1, ["vllm", "serve", "m"], {32: PIPE})
HEALTHY = [
    SERVER,
    entry_of(101, 100, TRACKER, {31: PIPE}),
    entry_of(102, 100, ["VLLM::EngineCore"]),
    entry_of(103, 102, ["VLLM::Worker_TP0"]),
    entry_of(104, 1, ["sleep", "inf"]),
    entry_of(105, 1, ["python3", "app.py"]),
]


def test_of_a_healthy_engine_only_the_trackers_and_the_servers_are_read(grow: Grow) -> None:
    tree = grow(HEALTHY)
    assert tree.pipes() == {100: {32: PIPE}, 101: {31: PIPE}}
    assert sorted(tree.looked_at) == [100, 101]


@pytest.mark.parametrize("argv", [["VLLM::EngineCore"], ["VLLM::APIServer_0"], SPAWN, ["sglang::scheduler_TP0"]])
def test_of_a_child_whose_parent_is_no_engines_both_are_read(argv: list[str], grow: Grow) -> None:
    tree = grow([entry_of(90, 1, ["bash"]), entry_of(102, 90, argv), entry_of(103, 90, ["vllm", "serve", "m"])])
    assert tree.pipes() == {90: {5: 90}, 102: {5: 102}}


def test_a_dead_server_makes_its_childrens_pipes_matter(grow: Grow) -> None:
    tree = grow([entry_of(100, 1, [], state="Z", comm="vllm"), *HEALTHY[1:]])
    assert tree.pipes().keys() == {101, 102, 103}  # 103: nobody is known to hold the tracker's, so all of them are read


def test_a_dead_server_needs_no_tracker_for_that(grow: Grow) -> None:
    tree = grow([entry_of(100, 1, [], state="Z", comm="vllm"), *HEALTHY[2:]])
    assert tree.pipes().keys() == {102}


def test_they_are_read_anew_at_every_pass(grow: Grow) -> None:
    tree = grow(HEALTHY)
    tree.pipes()
    write_process(tree.root, SERVER | {"pipes": {40: 9}})
    assert tree.pipes()[100] == {40: 9}
    write_process(tree.root, {key: value for key, value in SERVER.items() if key != "pipes"})  # type: ignore[arg-type]
    assert 100 not in tree.pipes()


LOST = [entry_of(101, 1, TRACKER, {31: PIPE}, cgroup="/system.slice/app.service")]


def daemon(pid: int, **more: object) -> ProcessEntry:
    return entry_of(pid, 1, ["python3", "app.py"], {7: PIPE}, **more)


def test_a_daemon_that_holds_a_lost_trackers_pipe_is_searched_for_and_then_known(grow: Grow) -> None:
    candidates = [entry_of(300, 1, ["sleep", "1"]), entry_of(301, 1, ["python3"])]
    tree = grow([*LOST, daemon(200), *candidates])
    assert tree.pipes() == {101: {31: PIPE}, 200: {7: PIPE}}
    assert {300, 301} <= set(tree.looked_at)
    assert tree.pipes() == {101: {31: PIPE}, 200: {7: PIPE}}
    assert sorted(tree.looked_at) == [1, 101, 200]


def test_a_search_that_found_no_holder_is_repeated_once_a_minute(grow: Grow) -> None:
    tree = grow([*LOST, entry_of(200, 1, ["sleep", "1"])])
    assert tree.pipes() == {101: {31: PIPE}}
    assert 200 in tree.looked_at
    write_process(tree.root, daemon(201))
    tree.now += SEARCH_SECONDS - 1
    assert 201 not in tree.pipes()
    tree.now += 1
    assert tree.pipes()[201] == {7: PIPE}


def test_another_tracker_is_searched_for_at_once(grow: Grow) -> None:
    tree = grow(LOST)
    tree.pipes()
    write_process(tree.root, entry_of(101, 1, TRACKER, {31: 8001}, start=90_000))
    write_process(tree.root, entry_of(201, 1, ["python3", "other.py"], {7: 8001}))
    assert 201 in tree.pipes()


def test_holders_are_sought_among_all_processes_that_can_hold_any(grow: Grow) -> None:
    needs_root()
    tree = grow(
        [
            READABLE_INIT,
            LOST[0] | {"uid": 1000},
            daemon(200, uid=1001),  # it has dropped root
            daemon(203, uid=1000, flags=0x00200000),  # a kernel thread
            entry_of(204, 1, [], {7: PIPE}, uid=1000, state="Z"),
        ]
    )
    assert tree.pipes().keys() == {1, 101, 200}
    assert tree.tracker() is TrackerState.DETACHED


READABLE_INIT: ProcessEntry = INIT | {"pipes": {9: 5}}


def test_a_tracker_is_orphaned_without_a_holder_only_if_all_were_asked(grow: Grow) -> None:
    candidates = [entry_of(300 + number, 1, ["sleep", "1"]) for number in range(3)]
    tree = grow([READABLE_INIT, *LOST, *candidates])
    tree.pipes()
    assert tree.tracker() is TrackerState.ORPHANED
    tree.now += SEARCH_SECONDS - 1
    tree.pipes()
    assert 300 not in tree.looked_at
    assert tree.tracker() is TrackerState.ORPHANED  # as of the search
    write_process(tree.root, {"pid": 302, "argv": ["sleep", "1"]})
    tree.now += 1
    tree.pipes()
    assert tree.tracker() is None
    tree.pipes()
    assert tree.tracker() is None
    write_process(tree.root, candidates[2])
    tree.now += SEARCH_SECONDS
    tree.seconds_each = MOST_SECONDS / 4  # for process 1, the tracker, and two of three
    tree.pipes()
    assert sorted(tree.looked_at) == [1, 101, 300, 301]
    assert tree.tracker() is None


def test_a_process_of_which_nothing_could_be_read_may_hold_a_trackers_pipe(grow: Grow, tmp_path: Path) -> None:
    write_process(tmp_path, entry_of(300, 1, ["sleep"]))
    (tmp_path / "300/stat").write_bytes(b"?")
    tree = grow([READABLE_INIT, *LOST])
    tree.pipes()
    assert tree.tracker() is None


def test_a_holder_that_was_found_and_is_not_read_now_is_not_forgotten(grow: Grow) -> None:
    tree = grow([READABLE_INIT, *LOST, daemon(200)])
    tree.pipes()
    assert tree.tracker() is TrackerState.DETACHED
    tree.seconds_each = MOST_SECONDS / 2
    assert tree.pipes().keys() == {1, 101}
    assert tree.tracker() is None
    tree.seconds_each = 0
    assert tree.pipes().keys() == {1, 101, 200}
    assert 101 in tree.looked_at
    assert tree.tracker() is TrackerState.DETACHED


def test_a_process_with_too_many_descriptors_has_no_known_pipes(tmp_path: Path) -> None:
    root = write_process(tmp_path, entry_of(100, 1, ["vllm"], dict.fromkeys(range(MOST_DESCRIPTORS), PIPE)))
    found = read_pipes(str(root), 10_000)
    assert not isinstance(found, NoPipes)
    assert len(found) == MOST_DESCRIPTORS
    (root / "fd" / str(MOST_DESCRIPTORS)).symlink_to("/dev/null")
    assert read_pipes(str(root), 10_000) is NoPipes.TOO_MUCH


def test_only_pipes_of_that_very_process_are_read(tmp_path: Path) -> None:
    root = write_process(tmp_path, entry_of(100, 1, ["vllm"], {3: PIPE}))
    for number, target in enumerate(["/dev/null", "socket:[7]", "anon_inode:[eventpoll]", "/tmp/pipe:[8]"], 10):
        (root / "fd" / str(number)).symlink_to(target)
    assert read_pipes(str(root), 10_000) == {3: PIPE}
    assert read_pipes(str(root), 10_001) is NoPipes.ENDED
    assert read_pipes(str(tmp_path / "101"), 10_000) is NoPipes.ENDED


def test_what_a_real_process_holds_is_what_it_was_given() -> None:
    reading, writing = os.pipe()
    inode = os.fstat(reading).st_ino
    child = subprocess.Popen(
        [sys.executable, "-c", "input()", "x"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[writing]
    )
    try:
        assert child.stdin is not None
        stat = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        found = read_pipes(f"/proc/{child.pid}", int(stat[19]))
        assert not isinstance(found, NoPipes)
        assert found[0] == os.fstat(child.stdin.fileno()).st_ino
        assert found[writing] == inode
        assert reading not in found
        assert 1 not in found
    finally:
        child.communicate()
        os.close(reading)
        os.close(writing)
    assert read_pipes(f"/proc/{child.pid}", int(stat[19])) is NoPipes.ENDED


CORES = [entry_of(200 + number, 1, ["VLLM::EngineCore"]) for number in range(8)]


@pytest.mark.parametrize(("seconds", "read"), [(10.0, 5), (0.25, 3), (0.0, 0)])
def test_pipes_have_a_budget_and_the_table_is_whole_all_the_same(seconds: float, read: int, grow: Grow) -> None:
    tree = grow(CORES)
    tree.seconds_each = 0.1
    tree.pipes(seconds)
    assert len(tree.looked_at) == read
    assert tree.table.by_pid.keys() == {1, *range(200, 208)}
    unread = [tree.table.by_pid[pid] for pid in range(200, 208) if tree.table.by_pid[pid].pipes is None]
    assert len(unread) == 8 - max(0, read - 1)  # less process 1, their parent
    assert not any(process.pipes_denied for process in unread)
    assert {parent_link(process, tree.table) for process in unread} == {ParentLink.UNKNOWN}


def test_services_spend_the_budget_first_and_then_each_user_in_turn(grow: Grow) -> None:
    needs_root()
    session = "/user.slice/user-1000.slice/session-1.scope"
    tree = grow(
        [
            READABLE_INIT,
            *(process | {"uid": 1000, "cgroup": session} for process in CORES),
            entry_of(300, 1, ["VLLM::EngineCore"], uid=1001, cgroup=session),
            entry_of(301, 1, ["VLLM::EngineCore"], uid=1000, cgroup="/system.slice/vllm.service"),
            entry_of(302, 1, ["VLLM::EngineCore"], uid=1001, cgroup="/system.slice/docker-" + 64 * "a" + ".scope"),
        ]
    )
    tree.seconds_each = MOST_SECONDS / 6
    tree.pipes()
    assert tree.looked_at == [301, 1, 302, 200, 300, 201]


def test_what_may_not_be_read_is_distinguished_from_what_costs_too_much(grow: Grow) -> None:
    no_descriptors: ProcessEntry = {"pid": 102, "ppid": 90, "argv": ["VLLM::EngineCore"]}
    many = entry_of(90, 1, ["gunicorn: worker [chat]"], dict.fromkeys(range(MOST_DESCRIPTORS + 1), PIPE))
    tree = grow([many, no_descriptors])
    assert tree.pipes() == {}
    assert (tree.table.by_pid[90].pipes_denied, tree.table.by_pid[102].pipes_denied) == (False, True)
    write_process(tree.root, {"pid": 90, "argv": ["bash"]})
    tree.pipes()
    assert parent_link(tree.table.by_pid[102], tree.table) is ParentLink.SEEMS_LOST


def test_to_read_another_users_process_without_privilege_is_denied() -> None:
    needs_root()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            stat = Path("/proc/1/stat").read_text().rpartition(")")[2].split()
            os._exit(0 if read_pipes("/proc/1", int(stat[19])) is NoPipes.DENIED else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
