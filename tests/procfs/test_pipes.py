"""Whose pipes are told: on trees on disk, and of real processes."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.fakes.needs import needs_root
from tests.fakes.procfs import ProcessEntry, write_proc, write_process

from llmhost.model.process import Process
from llmhost.model.reading import Cause
from llmhost.sources import procfs
from llmhost.sources.base import SourceError
from llmhost.sources.procfs import ProcfsSource
from llmhost.sources.procfs_pipes import MOST_DESCRIPTORS, SEARCH_SECONDS, Pipes, read_pipes

NOW = 100_000.0
PIPE = 7001
TRACKER = ["python3", "-B", "-c", "from multiprocessing.resource_tracker import main;main(31)"]
SPAWN = ["python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=9, pipe_handle=8)"]


class Tree:
    """A procfs, its source and clock, and the pids whose descriptors were looked at."""

    def __init__(self, root: Path, processes: Sequence[ProcessEntry], monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = write_proc(root, processes)
        self.now = NOW
        self.looked_at: list[int] = []
        self.source = ProcfsSource(procfs=root, trust_pid_namespace=False, clock=lambda: self.now)

        def counting(path: str, start_ticks: int) -> Pipes | None:
            self.looked_at.append(int(path.rsplit("/", 1)[-1]))
            return read_pipes(path, start_ticks)

        monkeypatch.setattr(procfs, "read_pipes", counting)

    def pipes(self) -> dict[int, Pipes]:
        self.looked_at = []
        by_pid: dict[int, Process] = dict(self.source.read(time.monotonic() + 10).by_pid)
        return {pid: process.pipes for pid, process in by_pid.items() if process.pipes is not None}


def one(pid: int, ppid: int, argv: list[str], pipes: dict[int, int] | None = None, **more: object) -> ProcessEntry:
    entry: ProcessEntry = {"pid": pid, "ppid": ppid, "argv": argv, "pipes": pipes or {5: pid}}
    return entry | more  # type: ignore[return-value]  # TypedDict | dict is a dict to mypy


SERVER = one(100, 1, ["vllm", "serve", "m"], {32: PIPE})
HEALTHY = [
    SERVER,
    one(101, 100, TRACKER, {31: PIPE}),
    one(102, 100, ["VLLM::EngineCore"]),
    one(103, 102, ["VLLM::Worker_TP0"]),
    one(104, 1, ["sleep", "inf"]),
    one(105, 1, ["python3", "app.py"]),
]


def test_of_a_healthy_engine_only_the_trackers_and_the_servers_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(tmp_path, HEALTHY, monkeypatch)
    assert tree.pipes() == {100: {32: PIPE}, 101: {31: PIPE}}
    assert sorted(tree.looked_at) == [100, 101]


@pytest.mark.parametrize("argv", [["VLLM::EngineCore"], ["VLLM::APIServer_0"], SPAWN, ["sglang::scheduler_TP0"]])
def test_of_a_child_whose_parent_is_no_engines_both_are_read(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(tmp_path, [one(90, 1, ["bash"]), one(102, 90, argv), one(103, 90, ["vllm", "serve", "m"])], monkeypatch)
    assert tree.pipes() == {90: {5: 90}, 102: {5: 102}}


def test_a_dead_server_makes_its_childrens_pipes_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path, [one(100, 1, [], state="Z", comm="vllm"), *HEALTHY[1:]], monkeypatch)
    assert tree.pipes().keys() == {101, 102, 103}  # 103: nobody is known to hold the tracker's, so all of them are read


def test_a_dead_server_needs_no_tracker_for_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path, [one(100, 1, [], state="Z", comm="vllm"), *HEALTHY[2:]], monkeypatch)
    assert tree.pipes().keys() == {102}


def test_they_are_read_anew_at_every_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path, HEALTHY, monkeypatch)
    tree.pipes()
    write_process(tmp_path, SERVER | {"pipes": {40: 9}})
    assert tree.pipes()[100] == {40: 9}
    write_process(tmp_path, {key: value for key, value in SERVER.items() if key != "pipes"})  # type: ignore[arg-type]
    assert 100 not in tree.pipes()


LOST = [one(101, 1, TRACKER, {31: PIPE}, cgroup="/system.slice/app.service")]


def daemon(pid: int, **more: object) -> ProcessEntry:
    return one(pid, 1, ["python3", "app.py"], {7: PIPE}, **more)


def test_a_daemon_that_holds_a_lost_trackers_pipe_is_searched_for_and_then_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [one(300, 1, ["sleep", "1"]), one(301, 1, ["python3"])]
    tree = Tree(tmp_path, [*LOST, daemon(200), *others], monkeypatch)
    assert tree.pipes() == {101: {31: PIPE}, 200: {7: PIPE}}
    assert {300, 301} <= set(tree.looked_at)
    assert tree.pipes() == {101: {31: PIPE}, 200: {7: PIPE}}
    assert sorted(tree.looked_at) == [1, 101, 200]


def test_a_search_that_found_nobody_is_repeated_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path, [*LOST, one(200, 1, ["sleep", "1"])], monkeypatch)
    assert tree.pipes() == {101: {31: PIPE}}
    assert 200 in tree.looked_at
    write_process(tmp_path, daemon(201))
    tree.now += SEARCH_SECONDS - 1
    assert 201 not in tree.pipes()
    tree.now += 1
    assert tree.pipes()[201] == {7: PIPE}


def test_another_tracker_is_searched_for_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path, LOST, monkeypatch)
    tree.pipes()
    write_process(tmp_path, one(101, 1, TRACKER, {31: 8001}, start=90_000))
    write_process(tmp_path, one(201, 1, ["python3", "other.py"], {7: 8001}))
    assert 201 in tree.pipes()


def test_holders_are_sought_among_the_trackers_user_and_place_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_root()
    tree = Tree(
        tmp_path,
        [
            LOST[0] | {"uid": 1000},
            daemon(200, uid=1001),
            daemon(201, uid=1000),
            daemon(202, uid=1001, cgroup="/system.slice/app.service"),
            daemon(203, uid=1000, flags=0x00200000),  # a kernel thread
            one(204, 1, [], {7: PIPE}, uid=1000, state="Z"),
        ],
        monkeypatch,
    )
    assert tree.pipes().keys() == {101, 201, 202}


def test_a_process_with_too_many_descriptors_is_not_told_of_at_all(tmp_path: Path) -> None:
    root = write_process(tmp_path, one(100, 1, ["vllm"], dict.fromkeys(range(MOST_DESCRIPTORS), PIPE)))
    found = read_pipes(str(root), 10_000)
    assert found is not None
    assert len(found) == MOST_DESCRIPTORS
    (root / "fd" / str(MOST_DESCRIPTORS)).symlink_to("/dev/null")
    assert read_pipes(str(root), 10_000) is None


def test_only_pipes_of_that_very_process_are_told(tmp_path: Path) -> None:
    root = write_process(tmp_path, one(100, 1, ["vllm"], {3: PIPE}))
    for number, target in enumerate(["/dev/null", "socket:[7]", "anon_inode:[eventpoll]", "/tmp/pipe:[8]"], 10):
        (root / "fd" / str(number)).symlink_to(target)
    assert read_pipes(str(root), 10_000) == {3: PIPE}
    assert read_pipes(str(root), 10_001) is None
    assert read_pipes(str(tmp_path / "101"), 10_000) is None


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
        assert found is not None
        assert found[0] == os.fstat(child.stdin.fileno()).st_ino
        assert found[writing] == inode
        assert reading not in found
        assert 1 not in found
    finally:
        child.communicate()
        os.close(reading)
        os.close(writing)
    assert read_pipes(f"/proc/{child.pid}", int(stat[19])) is None


def test_pipes_that_take_too_long_make_the_read_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ProcfsSource(procfs=write_proc(tmp_path, HEALTHY), trust_pid_namespace=False)
    deadline = time.monotonic() + 0.5

    def slow(path: str, start_ticks: int) -> None:
        while time.monotonic() <= deadline:
            time.sleep(0.05)

    monkeypatch.setattr(procfs, "read_pipes", slow)
    with pytest.raises(SourceError) as caught:
        source.read(deadline)
    assert (caught.value.cause, caught.value.detail) == (Cause.TIMEOUT, "while reading pipes")
