"""`llmhost clean`, the real command, over real orphans and files: what it does, leaves and says, and how it ends."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fakes.bus import FakeSystemd, PrivateBus
from tests.fakes.daemon import LLMHOST, environment
from tests.fakes.engine_tree import PYTHON, Tree
from tests.fakes.needs import needs_root
from tests.fakes.nvml import FakeNvml
from tests.fakes.other_users import as_nobody, llmhost_for_all, open_path
from tests.fakes.shm import Child, Children, ShownProcesses, children, mounted
from tests.fakes.without_leases import PROGRAM as WITHOUT_LEASES

from llmhost.model.clock_offset import ClockOffset
from llmhost.model.history.history import History
from llmhost.model.ids import UnitId
from llmhost.model.segment import SegmentId
from llmhost.state.cleanup_lock import cleanup_lock
from llmhost.state.history_file import HistoryFile
from llmhost.views.text import columns

__all__ = ["children", "open_path"]

MAKE = """
from multiprocessing.shared_memory import SharedMemory
kept = SharedMemory(create=True, size=1 << 20)
kept.buf[:] = bytes(1 << 20)
answer = kept._name.lstrip("/")
"""


GRACE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class World:
    """Real processes and files, of which `llmhost clean` sees those that a test shows it."""

    directory: Path
    shm: Path  # a tmpfs of its own
    processes: ShownProcesses
    nvml: FakeNvml
    bus_address: str

    def arguments(self, *more: str) -> list[str]:
        config = self.directory / "llmhost.yml"
        roots = ["--path.procfs", str(self.processes.path), "--path.shm", str(self.shm)]
        run = ["--run-dir", str(self.directory / "run")]
        return ["clean", "--config", str(config), *roots, *run, *more]

    def environment(self) -> dict[str, str]:
        return environment(self.nvml.environment() | {"DBUS_SYSTEM_BUS_ADDRESS": self.bus_address})

    def clean(self, *more: str, program: tuple[str, ...] = LLMHOST) -> subprocess.CompletedProcess[str]:
        command = [*program, *self.arguments(*more)]
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=False, timeout=120)

    def start(self, *more: str) -> "subprocess.Popen[str]":
        """Start it in a process group of its own, as a shell does."""
        return subprocess.Popen(
            [*LLMHOST, *self.arguments(*more)],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def configure(self, grace_seconds: float) -> None:
        """Have it watch for so long from now on."""
        millis = f"{int(grace_seconds * 1000)}ms"
        config = {
            "host": {"pid_namespace": "trust"},
            "policy": {"segment_grace": millis, "orphan_grace": millis},
        }
        (self.directory / "llmhost.yml").write_text(yaml.safe_dump(config))


@pytest.fixture
def here(open_path: Path) -> Iterator[World]:
    """Make a world with no process but an init, no file, no unit, and one unused GPU."""
    needs_root()
    nvml = FakeNvml(open_path / "nvml")
    nvml.write(['gpu 0 name="NVIDIA L40S" total=46068M reserved=600M'])
    shown = ShownProcesses(open_path / "proc")
    for name in ("meminfo", "sys"):
        (shown.path / name).symlink_to(f"/proc/{name}")
    try:
        with mounted(open_path / "shm") as shm, PrivateBus() as bus, FakeSystemd(bus, units=[]):
            world = World(open_path, shm, shown, nvml, bus.address)
            world.configure(GRACE_SECONDS)
            yield world
    finally:
        shown.end()


def unfolded(text: str) -> str:
    return " ".join(text.split())


def abandoned_segment(here: World, make: Children) -> str:
    """Return the name of a segment of which the creator was killed, and its tracker too."""
    maker, name = made_by_multiprocessing(here, make)
    maker.end()
    here.processes.hide(maker.pid)
    return name


def made_by_multiprocessing(here: World, make: Children) -> tuple[Child, str]:
    """Return a process that has made a segment, and the name of that."""
    maker = make(here.shm)
    here.processes.show(maker)
    name = maker.do(MAKE)
    assert isinstance(name, str)
    assert (here.shm / name).exists()
    return maker, name


def orphaned(here: World, tree: Tree) -> None:
    """Kill the server of a tree, and show what it leaves."""
    tree.kill("vllm")
    here.processes.show(*tree.pids)
    here.processes.hide(tree.members["vllm"].pid)


WORKS_FOR = (
    "import socket, sys; kept = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); print(flush=True); input()"
)


def test_an_orphan_that_still_works_for_another_process_is_left_until_that_is_gone(here: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        core = subprocess.Popen(
            ["VLLM::EngineCore", "-c", WORKS_FOR, str(head.getsockname()[1])],
            executable=sys.executable,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert core.stdout is not None
        assert core.stdout.readline() == b"\n"
        here.processes.show(core.pid)
        connection, (address, _) = head.accept()
        with core, connection:
            left = here.clean("--apply")
            told = f"still connected to {address}:{head.getsockname()[1]}, and may work for it: for a person to end, if"
            assert told in unfolded(left.stdout), left.stdout
            assert core.poll() is None
            connection.close()
            done = here.clean("--apply")
            assert done.returncode == 0, done.stdout
            assert core.wait(10) == -signal.SIGTERM


def test_it_removes_what_a_killed_program_has_left_and_nothing_that_is_held(
    here: World,
    children: Children,
) -> None:
    segment = abandoned_segment(here, children)
    _, held = made_by_multiprocessing(here, children)
    (here.shm / "PostgreSQL.1").write_bytes(b"x")
    dry = here.clean()
    assert (dry.returncode, dry.stderr) == (3, "")  # nobody has watched it
    assert f"python_shm: {segment} (1.0 MiB)" in dry.stdout
    assert "NOT WATCHED FOR LONG ENOUGH YET" in dry.stdout
    assert (here.shm / segment).exists()
    done = here.clean("--apply")
    assert done.returncode == 0
    assert done.stderr == "llmhost: looking again in 0.5 s, to do what both looks say; until then Ctrl-C stops it\n"
    assert f"removed        {segment} (1.0 MiB)" in done.stdout
    assert done.stdout.endswith("freed 0 B of GPU memory, 1.0 MiB of shared memory\n")
    assert sorted(path.name for path in here.shm.iterdir()) == sorted(["PostgreSQL.1", held])
    assert max(columns(line) for line in done.stdout.splitlines()) <= 80
    again = here.clean("--apply")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.endswith("nothing to clean\n")


def test_it_ends_an_orphaned_tree_and_lets_its_tracker_clean_up(here: World, tmp_path: Path) -> None:
    with Tree(tmp_path / "tree", ("--workers", "2"), PYTHON) as tree:
        core = tree.members["VLLM::EngineCore"]
        here.nvml.add(f"proc 0 {core.pid} mem=1000M")
        orphaned(here, tree)
        dry = json.loads(here.clean("--json").stdout)
        names = tree.pids
        assert [names[step["process"]["pid"]] for step in dry["waiting"]] == [
            "VLLM::EngineCore",
            "VLLM::Worker_TP0",
            "VLLM::Worker_TP1",
            "tracker",
        ]
        assert (dry["applied"], dry["endings"], dry["removals"]) == (False, [], [])
        assert core.segment.exists()
        with tree.leaving():
            done = here.clean("--apply", "--json")
        assert done.returncode == 0, done.stdout
        document = json.loads(done.stdout)
        assert {outcome["result"] for outcome in document["outcomes"]} <= {"done", "gone"}
        assert [names[outcome["process"]["pid"]] for outcome in document["outcomes"]][-1] == "tracker"
        assert document["freed"]["gpu_bytes"] == 1000 << 20
        assert (document["complete"], document["not_begun"], document["interrupted_by"]) == (True, [], None)
        assert all(tree.members[name].has_ended() for name in names.values() if name != "adopter")
        assert not tree.members["adopter"].has_ended()
        assert not core.segment.exists()  # the tracker's last act


def test_with_a_mistake_in_the_config_it_shows_the_plan_and_removes_nothing(here: World) -> None:
    (here.directory / "llmhost.yml").write_text("host: {pid_namespace: trust}\npolicy: {orphan_grase: 1h}\n")
    mistake = f'{here.directory}/llmhost.yml:2: policy.orphan_grase: unknown key; did you mean "orphan_grace"?'
    dry, done = here.clean(), here.clean("--apply")
    first = f"warning: {mistake}: all that follows goes by the defaults"
    assert [run.stdout.splitlines()[0] for run in (dry, done)] == [first, first]
    assert (dry.returncode, done.returncode, dry.stdout, dry.stderr) == (3, 2, done.stdout, "")
    assert done.stderr.startswith("llmhost: --apply removes nothing while the config has a mistake")
    untold = json.loads(here.clean("--json", "--apply").stdout)
    assert untold["applied"] is False


def test_ctrl_c_while_it_waits_ends_it_at_once_and_nothing_is_done(
    here: World,
    children: Children,
) -> None:
    segment = abandoned_segment(here, children)
    here.configure(30.0)
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with here.start("--apply") as running:
            assert running.stderr is not None
            assert "looking again in 30 s" in running.stderr.readline()
            began = time.monotonic()
            running.send_signal(number)
            assert running.wait(10) == status
            assert time.monotonic() - began < 5
            assert running.stderr.read() == "llmhost: interrupted; nothing was done\n"
    assert (here.shm / segment).exists()


def test_ctrl_c_while_it_acts_reports_what_was_done_and_what_was_not(
    here: World,
    tmp_path: Path,
    children: Children,
) -> None:
    segment = abandoned_segment(here, children)
    with Tree(tmp_path / "tree", (), PYTHON) as tree:
        orphaned(here, tree)
        for name in ("VLLM::EngineCore", "VLLM::Worker_TP0"):
            tree.members[name].signal(signal.SIGSTOP)  # who is stopped does not end by SIGTERM
        with here.start("--apply") as running:
            assert running.stderr is not None
            running.stderr.readline()
            _until_terminated(tree.members["VLLM::EngineCore"].pid)
            os.killpg(running.pid, signal.SIGINT)
            output = running.communicate(timeout=120)[0]
        assert running.returncode == 130
        assert "interrupted: it has been told to end, and has not yet" in unfolded(output)
        assert "NOT BEGUN, AS IT WAS INTERRUPTED" in output
        assert f"python_shm: {segment}" in output.split("NOT BEGUN")[1]
        assert (here.shm / segment).exists()
        assert not any(member.has_ended() for name, member in tree.members.items() if name != "vllm")
        assert max(columns(line) for line in output.splitlines()) <= 80


def _until_terminated(pid: int) -> None:
    """Wait until a stopped process has a SIGTERM pending (proc(5): status, ShdPnd)."""
    until = time.monotonic() + 120
    while True:
        status = Path(f"/proc/{pid}/status").read_text()
        pending = next(line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd:"))
        if int(pending, 16) >> (signal.SIGTERM - 1) & 1:
            return
        assert time.monotonic() < until, "it never got one"
        time.sleep(0.01)


def test_a_second_clean_up_at_the_same_time_is_refused(
    here: World,
    children: Children,
) -> None:
    segment = abandoned_segment(here, children)
    with cleanup_lock(here.directory / "run"):
        done = here.clean("--apply")
    assert done.returncode == 3
    said = f"refused: another llmhost (pid {os.getpid()}) is cleaning up: clean again once it has ended"
    assert unfolded(done.stdout) == said
    assert (here.shm / segment).exists()


def test_a_lock_that_any_user_can_hold_keeps_no_clean_up_from_its_work(here: World, children: Children) -> None:
    segment = abandoned_segment(here, children)
    shm = os.open(here.shm, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(shm, fcntl.LOCK_EX)
        done = here.clean("--apply")
    finally:
        os.close(shm)
    assert (done.returncode, (here.shm / segment).exists()) == (0, False)


def test_where_there_can_be_no_lock_it_says_so_and_cleans_all_the_same(here: World, children: Children) -> None:
    segment = abandoned_segment(here, children)
    (here.directory / "run").write_text("no directory")
    done = here.clean("--apply")
    assert (done.returncode, (here.shm / segment).exists()) == (0, False)
    assert "llmhost: no lock keeps other clean-ups out: " in done.stderr


def test_where_file_leases_are_off_what_stays_is_a_failure_with_its_cause(here: World, children: Children) -> None:
    segment = abandoned_segment(here, children)
    done = here.clean("--apply", program=(sys.executable, str(WITHOUT_LEASES), *LLMHOST))
    assert (done.returncode, (here.shm / segment).exists()) == (1, True)
    assert f"failed {segment} (1.0 MiB): could not be removed (file leases are off" in unfolded(done.stdout)
    report = json.loads(here.clean("--apply", "--json", program=(sys.executable, str(WITHOUT_LEASES), *LLMHOST)).stdout)
    assert ([outcome["result"] for outcome in report["outcomes"]], report["complete"]) == (["failed"], False)


def test_what_the_exporter_has_watched_for_long_enough_is_a_finding_at_once_if_it_is_selected(here: World) -> None:
    (here.shm / "nccl-AbCdEf").write_bytes(b"x")
    (here.shm / "vllm_offload_x.mmap").write_bytes(b"x")
    found = (here.shm / "nccl-AbCdEf").stat()
    segment = SegmentId(found.st_dev, found.st_ino)
    option, directory = remembering(
        here,
        unheld_since={segment: time.monotonic() - 60},
        unheld_changed_at={segment: found.st_ctime_ns / 1e9},
        segment_units={segment: UnitId("vllm-gone.service")},
    )
    state = Path(directory)
    before = {path.name: path.read_bytes() for path in state.iterdir()}
    of_unit = (option, directory, "--unit", "vllm-gone.service")
    unknown = here.clean("--apply", "--unit", "vllm.service")
    assert (unknown.returncode, unknown.stdout, unknown.stderr) == (2, "", "llmhost: there is no unit vllm.service\n")
    for other in (("--kind", "vllm"), ("--older-than", "1h")):
        assert here.clean(*of_unit, *other, "--apply").stdout == "nothing to clean\n"
    dry = here.clean(*of_unit, "--kind", "nccl", "--kind", "orphan")
    assert dry.returncode == 1
    assert dry.stdout.splitlines()[0] == "TO REMOVE"
    assert "nccl: nccl-AbCdEf (4.0 KiB), of vllm-gone.service" in dry.stdout
    assert here.clean(*of_unit, "--apply").returncode == 0
    assert [path.name for path in here.shm.iterdir()] == ["vllm_offload_x.mmap"]
    assert {path.name: path.read_bytes() for path in state.iterdir()} == before


def test_a_file_that_only_seems_older_than_an_engine_as_the_clock_was_set_since_stays(
    here: World, tmp_path: Path
) -> None:
    """The exporter saw the clock an hour back until just now: since when the file is there cannot be told."""
    (here.shm / "psm_0123abcd").write_bytes(b"x")
    time.sleep(1.2)  # by which a process is younger than a file beyond doubt
    with Tree(tmp_path / "tree", (), PYTHON) as tree:
        here.processes.show(*tree.pids)
        boottime = time.clock_gettime(time.CLOCK_BOOTTIME)
        offset = time.time() - boottime
        until_now = (ClockOffset(0.0, offset - 3600), ClockOffset(boottime - 3, offset - 3600))
        stays = here.clean("--apply", *remembering(here, clock_offsets=until_now))
        assert (stays.returncode, stays.stdout.splitlines()[0]) == (0, "LEFT ALONE")
        assert "may be as old, as the clock was set or not watched since" in unfolded(stays.stdout)
        assert (here.shm / "psm_0123abcd").exists()
        goes = here.clean("--apply", *remembering(here, clock_offsets=(ClockOffset(0.0, offset),)))
        assert (goes.returncode, (here.shm / "psm_0123abcd").exists()) == (0, False)


def remembering(here: World, **remembered: Any) -> tuple[str, str]:  # noqa: ANN401
    """Save a history of this boot; give the option that names its directory."""
    state = here.directory / "state"
    state.mkdir(exist_ok=True)
    store = HistoryFile(state)
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    store.save(History(boot_id=boot_id, **remembered), durable=False)
    store.close()
    return "--state-dir", str(state)


def test_without_root_it_names_the_unknowns_and_does_nothing(here: World) -> None:
    unprivileged = as_nobody() + llmhost_for_all()
    (here.shm / "nccl-AbCdEf").write_bytes(b"x")
    Path(here.bus_address.partition("=")[2]).parent.chmod(0o755)
    done = here.clean("--apply", program=unprivileged)
    assert done.returncode == 3, done.stderr
    assert "whether files of known kinds are held, of 1 (processes that could not be" in unfolded(done.stdout)
    assert "root can" in done.stdout
    refused = here.clean("--all-users", program=unprivileged)
    assert (refused.returncode, refused.stderr) == (2, "llmhost: --all-users is for root\n")
    assert (here.shm / "nccl-AbCdEf").exists()
