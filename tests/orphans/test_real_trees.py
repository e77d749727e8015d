"""Real process trees, killed in every way that vLLM was (tests/fakes/standin_engine.py), read from the real /proc.

The clock is ours, so nobody waits for a grace time. Where the adopter is the machine's process 1, whether its
descriptors can be read is the machine's affair; where it is one of ours, orphans are proven.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.engine_tree import PYTHON, SHELL, WAIT_SECONDS, Member, Tree
from tests.fakes.needs import needs_root
from tests.fakes.observed_processes import ObservedProcesses

from llmhost.derive.trackers import TrackerState
from llmhost.model.process import Role

NOBODY = 65534
EXPORTER = Path(__file__).parents[2] / "exporter"
TP2 = ("--workers", "2")
CORE, WORKERS = "VLLM::EngineCore", ["VLLM::Worker_TP0", "VLLM::Worker_TP1"]
TP2_ORPHANS = [CORE, *WORKERS]


def observed(tree: Tree) -> ObservedProcesses:
    return ObservedProcesses(names=lambda: tree.pids)


def parent_of(processes: ObservedProcesses, tree: Tree, name: str) -> int:
    return processes.table.by_pid[tree.members[name].pid].ppid


@pytest.mark.parametrize(
    ("under", "method"),
    [((), "spawn"), (SHELL, "spawn"), (PYTHON, "spawn"), (PYTHON, "fork"), (PYTHON, "forkserver")],
    ids=["nobody we know", "the launching shell", "a subreaper", "a subreaper, forked", "a subreaper, fork server"],
)
def test_a_killed_servers_engine_is_orphaned_whoever_adopts_it(
    under: tuple[str, ...], method: str, tmp_path: Path
) -> None:
    with Tree(tmp_path / "tree", TP2, under, method) as tree:
        processes = observed(tree)
        assert processes.orphans(0) == {}
        assert set(processes.trackers().values()) <= {TrackerState.ATTACHED}
        tree.kill("vllm")
        assert processes.orphans(1) == {}
        assert processes.orphans(3) == {}
        if under:
            top = "forkserver" if method == "forkserver" else CORE
            assert parent_of(processes, tree, top) == tree.members["adopter"].pid
        found = processes.orphans(21)
        assert sorted(found) == sorted([*TP2_ORPHANS, *(["forkserver"] if method == "forkserver" else [])])
        assert {entry.seconds for entry in found.values()} == {20}
        assert {entry.engine for name, entry in found.items() if name != "forkserver"} == {"vllm"}
        assert not under or not any(entry.inferred for entry in found.values())
        assert {orphan.seconds for orphan in processes.orphans(61).values()} == {60}
        if method != "fork":  # it needs no tracker
            assert processes.trackers() == {"tracker": TrackerState.ORPHANED}


def test_a_killed_launcher_leaves_all_as_orphans_and_servers_that_listen(tmp_path: Path) -> None:
    with Tree(tmp_path / "tree", ("--cores", "2", "--api-server-count", "2"), PYTHON) as tree:
        processes = observed(tree)
        assert processes.orphans(0) == {}
        assert processes.table.by_pid[tree.members["vllm"].pid].role is Role.LAUNCHER
        tree.kill("vllm")
        assert processes.orphans(2) == {}
        found = processes.orphans(20)
        assert {name: orphan.process.role for name, orphan in found.items()} == {
            "VLLM::APIServer_0": Role.API_SERVER,
            "VLLM::APIServer_1": Role.API_SERVER,
            "VLLM::DPCoordinator": Role.COORDINATOR,
            "VLLM::EngineCore_DP0": Role.CORE,
            "VLLM::EngineCore_DP1": Role.CORE,
            "VLLM::Worker_DP0_TP0": Role.WORKER,
            "VLLM::Worker_DP1_TP0": Role.WORKER,
        }
        assert not any(orphan.inferred for orphan in found.values())
        with socket.create_connection(("127.0.0.1", tree.members["VLLM::APIServer_0"].facts["port"]), timeout=60):
            assert processes.trackers() == {"tracker": TrackerState.ORPHANED}


def test_workers_of_a_killed_core_are_none_while_they_are_on_their_way_out(tmp_path: Path) -> None:
    with Tree(tmp_path / "tree", TP2, PYTHON) as tree:
        processes = observed(tree)
        assert processes.orphans(0) == {}
        tree.kill(CORE)
        tree.wait_for_end_of("vllm")
        assert processes.orphans(2) == {}
        assert {parent_of(processes, tree, name) for name in WORKERS} == {tree.members["adopter"].pid}
        assert processes.trackers() == {"tracker": TrackerState.ORPHANED}
        assert sorted(processes.orphans(20)) == WORKERS  # they are, if they should hang
        with tree.leaving():
            for name in (*WORKERS, "tracker"):
                tree.wait_for_end_of(name)
        assert processes.orphans(21) == {}
        assert processes.trackers().get("tracker") in {None, TrackerState.ZOMBIE}
        assert not tree.members[CORE].segment.exists()  # the tracker's last act


def test_a_killed_server_and_tracker_leave_orphans_without_a_tracker(tmp_path: Path) -> None:
    with Tree(tmp_path / "tree", TP2, PYTHON) as tree:
        processes = observed(tree)
        processes.orphans(0)
        tree.kill("tracker", "vllm")
        processes.orphans(2)
        assert sorted(processes.orphans(20)) == TP2_ORPHANS
        assert set(processes.trackers().values()) <= {TrackerState.ZOMBIE}


def test_a_wedged_server_keeps_its_children(tmp_path: Path) -> None:
    with Tree(tmp_path / "tree", TP2) as tree:
        processes = observed(tree)
        processes.orphans(0)
        tree.members["vllm"].signal(signal.SIGSTOP)
        assert processes.orphans(2) == {}
        assert processes.orphans(60) == {}
        assert processes.trackers() == {"tracker": TrackerState.ATTACHED}


AS_NOBODY = """
import json, os, sys, time
from pathlib import Path
from llmhost.derive.orphans import orphan_conditions
from llmhost.derive.trackers import tracker_states
from llmhost.model.reading import NotApplicable, Ok
from llmhost.model.snapshot import Snapshot
from llmhost.sources.procfs import ProcfsSource
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
table = ProcfsSource(procfs=Path("/proc"), trust_pid_namespace=True).read(time.monotonic() + 10)
none = NotApplicable()
look = Snapshot(at=0, at_monotonic=0, host=none, nvml=none, processes=Ok(table), units=none, shm=none, engines=none)
found = {one.pid: inferred for one, inferred in orphan_conditions(look).value.items()}
print(json.dumps([found, {one.pid: state for one, state in tracker_states(table, frozenset()).items()}]))
"""


def found_unprivileged(tree: Tree) -> tuple[dict[str, bool], dict[str, str]]:
    run = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(NOBODY)],
        env={"PYTHONPATH": str(EXPORTER), "PATH": os.environ["PATH"]},
        capture_output=True,
        check=True,
        timeout=120,
    )
    found, states = json.loads(run.stdout)
    return (
        {tree.pids[int(pid)]: inferred for pid, inferred in found.items() if int(pid) in tree.pids},
        {tree.pids[int(pid)]: state for pid, state in states.items() if int(pid) in tree.pids},
    )


def test_without_privilege_orphans_are_inferred(tmp_path: Path) -> None:
    needs_root()
    with Tree(tmp_path / "tree", TP2, SHELL) as tree:
        assert found_unprivileged(tree) == ({}, {"tracker": "attached"})
        tree.kill("vllm")
        assert found_unprivileged(tree) == (dict.fromkeys(TP2_ORPHANS, True), {"tracker": "orphaned"})


def test_without_privilege_a_python_adopter_in_the_same_group_hides_orphans(tmp_path: Path) -> None:
    needs_root()
    with Tree(tmp_path / "tree", TP2, PYTHON) as tree:
        tree.kill("vllm")
        assert found_unprivileged(tree) == ({}, {})


LAUNCH = """
import subprocess, sys
subprocess.run([sys.executable, "text_generation_server/cli.py", "serve", "m"], check=False)
"""


def test_a_text_generation_server_that_a_program_started_by_hand_is_no_orphan(tmp_path: Path) -> None:
    program = tmp_path / "text_generation_server/cli.py"
    program.parent.mkdir()
    program.write_text("import os, sys\nprint(os.getpid(), flush=True)\nsys.stdin.read()\n")
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCH], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as launcher:  # ends with its standard input
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        processes = ObservedProcesses(names=lambda: {pid: "shard"})
        processes.orphans(0)
        assert (processes.table.by_pid[pid].engine, processes.table.by_pid[pid].role) == ("tgi", Role.WORKER)
        assert processes.orphans(60) == {}


DAEMON = """
import multiprocessing, os, sys, time
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
segment = SharedMemory(create=True, size=4096)
if os.fork():
    os._exit(0)
os.setsid()
if sys.argv[1:]:
    os.setgroups([])
    os.setgid(int(sys.argv[1]))
    os.setuid(int(sys.argv[1]))
print(os.getpid(), resource_tracker._resource_tracker._pid, flush=True)
sys.stdin.read()
segment.unlink()
"""


@pytest.mark.parametrize("user", [[], [str(NOBODY)]], ids=["as it was", "dropped root"])
def test_the_tracker_of_a_program_in_the_background_is_detached(user: list[str]) -> None:
    if user:
        needs_root()
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON, *user],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        pid, tracker = first.stdout.readline().split()
        names = {int(pid): "daemon", int(tracker): "tracker"}
        members = {name: Member(pid, os.pidfd_open(pid), {}) for pid, name in names.items()}
        try:
            first.wait()
            processes = ObservedProcesses(names=lambda: names)
            assert processes.orphans(0) == {}
            assert processes.trackers() == {"tracker": TrackerState.DETACHED}
            assert processes.table.by_pid[int(pid)].pipes is not None
            processes.orphans(60)  # found once, it is looked at again without a search
            assert processes.trackers() == {"tracker": TrackerState.DETACHED}
        finally:
            first.stdin.close()  # which ends it, and that the tracker
            for member in members.values():
                if not member.has_ended(WAIT_SECONDS):
                    member.signal(signal.SIGKILL)
                os.close(member.pidfd)
