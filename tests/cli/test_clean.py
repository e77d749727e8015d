"""`llmhost clean`, the real command, over real orphans and files: what it does, leaves and says, and how it ends."""

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.cleaned import World, world
from tests.fakes.engine_tree import PYTHON, Tree
from tests.fakes.needs import needs, needs_root
from tests.fakes.shm import Child, Children, children  # noqa: F401 - a fixture

from llmhost.model.history.history import History
from llmhost.model.ids import UnitId
from llmhost.model.segment import SegmentId
from llmhost.state.history_file import HistoryFile
from llmhost.views.text import columns

MAKE = """
from multiprocessing.shared_memory import SharedMemory
kept = SharedMemory(create=True, size=1 << 20)
kept.buf[:] = bytes(1 << 20)
told = kept._name.lstrip("/")
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def unfolded(text: str) -> str:
    return " ".join(text.split())


def left_behind(here: World, make: Children) -> str:
    """Give the name of a shared memory of which the maker was killed, and its tracker too."""
    maker, name = made_by_multiprocessing(here, make)
    maker.end()
    here.processes.hide(maker.pid)
    return name


def made_by_multiprocessing(here: World, make: Children) -> tuple[Child, str]:
    """Give a process that has made a shared memory, and its name."""
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


def test_it_removes_what_a_killed_program_has_left_and_nothing_that_is_held(
    here: World,
    children: Children,  # noqa: F811
) -> None:
    left = left_behind(here, children)
    _, held = made_by_multiprocessing(here, children)
    (here.shm / "PostgreSQL.1").write_bytes(b"x")
    dry = here.clean()
    assert (dry.returncode, dry.stderr) == (3, "")  # nobody has watched it
    assert f"python_shm: {left} (1.0 MiB)" in dry.stdout
    assert "NOT WATCHED FOR LONG ENOUGH YET" in dry.stdout
    assert (here.shm / left).exists()
    done = here.clean("--apply")
    assert done.returncode == 0
    assert done.stderr == "llmhost: looking again in 0.5 s, to do what both looks say; until then Ctrl-C stops it\n"
    assert f"removed        {left} (1.0 MiB)" in done.stdout
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
        assert [names[one["process"]["pid"]] for one in dry["waiting"]] == [
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
        told = json.loads(done.stdout)
        assert {one["result"] for one in told["outcomes"]} <= {"done", "gone"}
        assert [names[one["process"]["pid"]] for one in told["outcomes"]][-1] == "tracker"
        assert told["freed"]["gpu_bytes"] == 1000 << 20
        assert (told["complete"], told["not_begun"], told["interrupted_by"]) == (True, [], None)
        assert all(tree.members[name].is_gone() for name in names.values() if name != "adopter")
        assert not tree.members["adopter"].is_gone()
        assert not core.segment.exists()  # the tracker's last act


def test_ctrl_c_while_it_waits_ends_it_at_once_and_nothing_is_done(
    here: World,
    children: Children,  # noqa: F811
) -> None:
    left = left_behind(here, children)
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
    assert (here.shm / left).exists()


def test_ctrl_c_while_it_acts_tells_what_was_done_and_what_was_not(
    here: World,
    tmp_path: Path,
    children: Children,  # noqa: F811
) -> None:
    left = left_behind(here, children)
    with Tree(tmp_path / "tree", (), PYTHON) as tree:
        orphaned(here, tree)
        for name in ("VLLM::EngineCore", "VLLM::Worker_TP0"):
            tree.members[name].signal(signal.SIGSTOP)  # who is stopped does not end by SIGTERM
        with here.start("--apply") as running:
            assert running.stderr is not None
            running.stderr.readline()
            _until_told(tree.members["VLLM::EngineCore"].pid)
            os.killpg(running.pid, signal.SIGINT)
            output = running.communicate(timeout=20)[0]
        assert running.returncode == 130
        assert "interrupted: it has been told to end, and has not yet" in unfolded(output)
        assert "NOT BEGUN, AS IT WAS INTERRUPTED" in output
        assert f"python_shm: {left}" in output.split("NOT BEGUN")[1]
        assert (here.shm / left).exists()
        assert not any(member.is_gone() for name, member in tree.members.items() if name != "vllm")
        assert max(columns(line) for line in output.splitlines()) <= 80


def _until_told(pid: int) -> None:
    """Wait until a stopped process has a SIGTERM pending (proc(5): status, ShdPnd)."""
    until = time.monotonic() + 20
    while True:
        status = Path(f"/proc/{pid}/status").read_text()
        pending = next(line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd:"))
        if int(pending, 16) >> (signal.SIGTERM - 1) & 1:
            return
        assert time.monotonic() < until, "it was never told"
        time.sleep(0.01)


def test_a_second_clean_up_at_the_same_time_is_refused(
    here: World,
    children: Children,  # noqa: F811
) -> None:
    left = left_behind(here, children)
    other = os.open(here.shm, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        done = here.clean("--apply")
    finally:
        os.close(other)
    assert done.returncode == 3
    assert unfolded(done.stdout) == f"refused: another llmhost is cleaning {here.shm} up"
    assert (here.shm / left).exists()


def test_what_the_exporter_has_watched_for_long_enough_is_a_finding_at_once(here: World) -> None:
    (here.shm / "nccl-AbCdEf").write_bytes(b"x")
    found = (here.shm / "nccl-AbCdEf").stat()
    one = SegmentId(found.st_dev, found.st_ino)
    state = here.directory / "state"
    state.mkdir()
    store = HistoryFile(state)
    store.save(
        History(
            boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            unheld_since={one: time.monotonic() - 60},
            unheld_changed_at={one: found.st_ctime_ns / 1e9},
            segment_units={one: UnitId("vllm-gone.service")},
        ),
        durable=False,
    )
    store.close()
    before = {path.name: path.read_bytes() for path in state.iterdir()}
    dry = here.clean("--state-dir", str(state), "--unit", "vllm-gone.service")
    assert dry.returncode == 1
    assert dry.stdout.splitlines()[0] == "TO REMOVE"
    for others in (("--kind", "loky"), ("--older-than", "1h")):
        assert here.clean("--state-dir", str(state), *others).stdout == "nothing to clean\n"
    assert "nccl: nccl-AbCdEf (4.0 KiB), of vllm-gone.service" in dry.stdout
    assert here.clean("--state-dir", str(state), "--unit", "vllm-gone.service", "--apply").returncode == 0
    assert not (here.shm / "nccl-AbCdEf").exists()
    assert {path.name: path.read_bytes() for path in state.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kind", "cuda"), "llmhost: --kind cuda: what is cleaned is orphan, tracker, python_shm, "),
        (("--unit", "vllm.service"), "llmhost: there is no unit vllm.service\n"),
    ],
)
def test_wrong_use_is_told_in_a_line(here: World, arguments: tuple[str, ...], said: str) -> None:
    for more in ((), ("--apply",)):
        done = here.clean(*arguments, *more)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr


def test_without_root_it_says_what_it_cannot_tell_and_does_nothing(here: World) -> None:
    needs_root()
    (here.shm / "nccl-AbCdEf").write_bytes(b"x")
    bus = Path(here.bus_address.partition("=")[2]).parent
    for path in (bus, here.directory, *here.directory.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    as_nobody = (needs("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups")
    done = here.clean("--apply", prefix=as_nobody)
    assert done.returncode == 3, done.stderr
    assert "whether files of known kinds are held, of 1 (processes that could not be" in unfolded(done.stdout)
    assert "root can" in done.stdout
    refused = here.clean("--all-users", prefix=as_nobody)
    assert (refused.returncode, refused.stderr) == (2, "llmhost: --all-users is for root\n")
    assert (here.shm / "nccl-AbCdEf").exists()
