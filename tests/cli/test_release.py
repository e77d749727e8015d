"""`llmhost release` beside the real exporter, with its real child on the fake driver."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fakes.children import children_of
from tests.fakes.daemon import LLMHOST, Daemon, environment
from tests.fakes.needs import needs, needs_root
from tests.fakes.nvml import FakeNvml, fake_nvml
from tests.fakes.other_users import as_nobody, llmhost_for_all
from tests.fakes.procfs import ProcessEntry, write_proc
from tests.fakes.unkillable import keep_from_dying

from llmhost.state.driver_pause import ask

__all__ = ["fake_nvml", "keep_from_dying"]

GPUS = [f"gpu {index}" for index in range(4)]
SUCCESS = 'llmhost_collector_success{collector="nvml"}'
RELEASED = 'llmhost_collector_fault{cause="released",collector="nvml"} 1.0'


def llmhost(*arguments: str, program: tuple[str, ...] = LLMHOST) -> subprocess.CompletedProcess[str]:
    command = [*program, *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=120)


class Beside:
    """An exporter, and `llmhost release` with the same run directory."""

    def __init__(self, daemon: Daemon, run: Path) -> None:
        self.daemon = daemon
        self.run = run
        self._view = run.parent / "proc"

    def release(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        view = () if "--end" in arguments else ("--path.procfs", str(self.view()))
        return llmhost("release", "--run-dir", str(self.run), *view, *arguments)

    def view(self) -> Path:
        """Make a /proc in which there is this exporter, as it is now, and no other that is tested at the same time."""
        shutil.rmtree(self._view, ignore_errors=True)
        self._view.mkdir()
        (self._view / "1").symlink_to(f"/proc/{os.getpid()}")
        for name in ("sys", *map(str, (self.daemon.process.pid, *self.children()))):
            (self._view / name).symlink_to(f"/proc/{name}")
        return self._view

    def reads_the_driver(self) -> bool:
        page = self.daemon.get()[2]
        reads = f"{SUCCESS} 1.0" in page
        assert reads is (RELEASED not in page)
        assert reads is ("llmhost_gpu_memory_total_bytes{" in page), page
        return reads

    def children(self) -> list[int]:
        return children_of(self.daemon.process.pid)


@pytest.fixture
def beside(fake_nvml: FakeNvml, tmp_path: Path) -> Iterator[Beside]:
    """Yield one whose exporter reads four GPUs."""
    fake_nvml.write(GPUS)
    run = tmp_path / "run"
    with Daemon("--run-dir", str(run), env=fake_nvml.environment()) as daemon:
        exporter = Beside(daemon, run)
        assert exporter.reads_the_driver()
        assert len(exporter.children()) == 1
        yield exporter


def test_the_exporter_lets_go_says_so_and_is_called_back(beside: Beside) -> None:
    done = beside.release()
    assert (done.returncode, done.stderr) == (0, "")
    pid = beside.daemon.process.pid
    first, second = done.stdout.splitlines()
    assert re.fullmatch(
        rf"the exporter \(pid {pid}\) has let go of the driver until \d\d:\d\d:\d\d; "
        r"to end that: llmhost release --end",
        first,
    )
    assert second == "no other process has /dev/nvidia* open"
    assert beside.children() == []
    for _ in range(3):
        assert not beside.reads_the_driver()
    assert beside.children() == []
    assert (
        len(re.findall(r"INFO the driver is paused until \d\d:\d\d:\d\d, as llmhost release asks", beside.daemon.log))
        == 1
    )
    done = beside.release("--end")
    assert (done.returncode, done.stdout, done.stderr) == (0, "the driver may be read again\n", "")
    beside.daemon.logged(r"INFO the driver is read again: the pause is over")
    assert beside.reads_the_driver()
    done = beside.release("--end")
    assert (done.returncode, done.stdout, done.stderr) == (0, "no release is in force\n", "")


def test_it_comes_back_by_itself_and_the_later_of_two_releases_counts(beside: Beside) -> None:
    assert beside.release("--for", "1h").returncode == 0
    began = time.monotonic()
    assert beside.release("--for", "4s").returncode == 0
    assert not beside.reads_the_driver()
    beside.daemon.logged(r"the pause is over")
    assert 3.5 < time.monotonic() - began < 30
    assert beside.reads_the_driver()
    assert len(re.findall("the driver is paused", beside.daemon.log)) == 2


def test_a_driver_that_hangs_is_let_go_of_too(beside: Beside, fake_nvml: FakeNvml) -> None:
    fake_nvml.add("delay nvmlDeviceGetMemoryInfo_v2 3 hang")
    time.sleep(1.0)  # lists are due again
    (child,) = beside.children()
    page = beside.daemon.get(headers={"X-Prometheus-Scrape-Timeout-Seconds": "1"})[2]
    assert f"{SUCCESS} 0.0" in page
    assert beside.release().returncode == 0
    assert not Path(f"/proc/{child}").exists()
    assert beside.children() == []


def test_a_child_that_does_not_die_is_named_and_the_exit_code_is_1(
    beside: Beside, keep_from_dying: Callable[[int], Callable[[], None]]
) -> None:
    (child,) = beside.children()
    let_die = keep_from_dying(child)
    began = time.monotonic()
    done = beside.release()
    assert time.monotonic() - began > 4.5
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(f"NVML child {child} of llmhost serve (pid {beside.daemon.process.pid}) still runs: ")
    assert not beside.reads_the_driver()
    beside.daemon.logged(rf"NVML child {child} hangs in the driver and does not die")
    let_die()
    beside.daemon.logged(r"the NVML children that hung are gone")
    assert beside.release().returncode == 0


def test_an_exporter_that_is_started_meanwhile_keeps_off_and_one_shot_commands_too(
    beside: Beside, fake_nvml: FakeNvml
) -> None:
    fake_nvml.write([*GPUS, f"system x trace={fake_nvml.directory}/trace"])
    assert beside.release().returncode == 0
    trace = fake_nvml.directory / "trace"
    trace.unlink(missing_ok=True)
    beside.daemon.end()
    run = ("--run-dir", str(beside.run))
    env = environment(fake_nvml.environment())
    with Daemon(*run, env=fake_nvml.environment()) as daemon:
        assert RELEASED in daemon.get()[2]
        once = subprocess.run([*LLMHOST, "serve", "--once", *run], env=env, capture_output=True, text=True, check=True)
        assert RELEASED in once.stdout
        status = subprocess.run([*LLMHOST, "status", *run], env=env, capture_output=True, text=True, check=False)
        assert status.returncode == 3
        assert "GPUs: released" in status.stdout
        assert not trace.exists()
        assert beside.release("--end").returncode == 0
        daemon.logged("the pause is over")
        assert f"{SUCCESS} 1.0" in daemon.get()[2]


def test_without_an_exporter_it_says_so(tmp_path: Path) -> None:
    procfs = write_proc(tmp_path / "proc", [])
    done = llmhost("release", "--run-dir", str(tmp_path), "--path.procfs", str(procfs))
    assert (done.returncode, done.stderr) == (0, "")
    first = done.stdout.splitlines()[0]
    assert re.fullmatch(
        r"no exporter is to be seen; one that starts before \d\d:\d\d:\d\d keeps off the driver until then", first
    )


WORKER = ("/opt/llmhost/bin/python", "-P", "-m", "llmhost.sources.nvml.child.worker", "--procfs", "/proc")


def descriptors(procfs: Path, pid: int, *targets: str) -> None:
    (procfs / str(pid) / "fd").mkdir()
    for number, target in enumerate(targets):
        (procfs / str(pid) / "fd" / str(number)).symlink_to(target)


def test_a_guards_child_and_other_users_of_the_driver_are_left_alone_and_listed(tmp_path: Path) -> None:
    tree: list[ProcessEntry] = [
        {"pid": 100, "argv": ["/opt/llmhost/bin/python", "/opt/llmhost/bin/llmhost", "serve", "--once"], "pipes": {}},
        {"pid": 200, "argv": ["/opt/llmhost/bin/python", "/opt/llmhost/bin/llmhost", "guard"], "pipes": {}},
        {"pid": 201, "ppid": 200, "argv": WORKER},
        {"pid": 300, "argv": ["VLLM::Worker_TP0"], "comm": "VLLM::Worker_TP"},
        {"pid": 400, "argv": ["/usr/bin/nvidia-persistenced"]},
        {"pid": 500, "argv": ["sh", "-c", "llmhost serve"]},
        {"pid": 600, "argv": ["cat"]},
    ]
    procfs = write_proc(tmp_path / "proc", tree)
    descriptors(procfs, 201, "/dev/nvidiactl")
    descriptors(procfs, 300, "/dev/null", "/dev/nvidia-uvm")
    descriptors(procfs, 400, "/dev/nvidia0")
    descriptors(procfs, 500, "/dev/null")
    descriptors(procfs, 600, "/home/me/dev/nvidia0", "pipe:[7]")
    done = llmhost("release", "--run-dir", str(tmp_path), "--path.procfs", str(procfs))
    assert (done.returncode, done.stderr) == (1, "")
    first, second, third = done.stdout.splitlines()
    assert first == (
        "NVML child 201 of llmhost guard (pid 200) still runs: a guard asks the driver until its service may start"
    )
    assert second.startswith("what else llmhost runs keeps off the driver until ")
    assert third == "/dev/nvidia* is open in: VLLM::Worker_TP 300, nvidia-persiste 400"


@pytest.mark.parametrize(
    ("uid", "name"),
    [(65534, WORKER[1:4]), (65534, ("llmhost", "serve")), (0, WORKER[1:4])],
    ids=["a child", "an exporter", "a child that nobody has started"],
)
def test_what_only_calls_itself_llmhosts_has_no_say(uid: int, name: tuple[str, ...], tmp_path: Path) -> None:
    """Its arguments are a child's, or an exporter's, to the letter; it does not have the driver open."""
    needs_root()
    with tempfile.TemporaryDirectory() as theirs:
        os.chmod(theirs, 0o755)  # noqa: PTH101, S103
        module = Path(theirs, "llmhost/sources/nvml/child/worker.py") if "-m" in name else Path(theirs, "llmhost")
        module.parent.mkdir(parents=True, exist_ok=True)
        for package in module.relative_to(theirs).parents[:-1]:
            Path(theirs, package, "__init__.py").touch()
        module.write_text("print(flush=True); input()")
        with subprocess.Popen(
            [needs("setpriv"), f"--reuid={uid}", sys.executable, *name],
            cwd=theirs,
            env={"PYTHONPATH": theirs},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as claiming:
            assert claiming.stdout is not None
            assert claiming.stdout.readline() == b"\n"
            view = tmp_path / "proc"
            view.mkdir()
            (view / "1").symlink_to(f"/proc/{os.getpid()}")
            for shown in ("sys", str(claiming.pid)):
                (view / shown).symlink_to(f"/proc/{shown}")
            done = llmhost("release", "--run-dir", str(tmp_path / "run"), "--path.procfs", str(view))
            claiming.kill()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("no exporter is to be seen; ")


def test_a_request_of_another_user_does_not_count(beside: Beside) -> None:
    needs_root()
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    until = time.clock_gettime(time.CLOCK_BOOTTIME) + 60
    beside.run.mkdir()
    ask(beside.run, boot_id="of the boot before", until_boottime_seconds=until)
    time.sleep(1.2)
    assert beside.reads_the_driver()
    new = beside.run / "theirs"
    new.mkdir()
    ask(new, boot_id=boot_id, until_boottime_seconds=until)
    os.chown(new / "release", 65534, 65534)
    (new / "release").rename(beside.run / "release")
    beside.daemon.logged(r"WARNING .*/release is no valid request: it belongs to user 65534")
    assert beside.reads_the_driver()


def test_without_the_right_to_write_it_exits_with_cannot_tell(beside: Beside) -> None:
    unprivileged = as_nobody() + llmhost_for_all()
    beside.run.mkdir(mode=0o755)
    for arguments in ((), ("--end",)):
        done = llmhost("release", "--run-dir", str(beside.run), *arguments, program=unprivileged)
        assert (done.returncode, done.stdout) == (3, "")
        cannot = rf"llmhost: {beside.run}/release cannot be (written|removed): Permission denied\n"
        assert re.fullmatch(cannot, done.stderr), done.stderr
    assert beside.reads_the_driver()


def test_where_other_users_processes_are_hidden_it_exits_with_cannot_tell(tmp_path: Path) -> None:
    procfs = write_proc(tmp_path / "proc", [])
    shutil.rmtree(procfs / "1")
    done = llmhost("release", "--run-dir", str(tmp_path), "--path.procfs", str(procfs))
    assert done.returncode == 3
    assert done.stderr == f"llmhost: {procfs} hides other users' processes: an exporter may be among them\n"


def test_wrong_use_pauses_nothing(tmp_path: Path) -> None:
    done = llmhost("release", "--run-dir", str(tmp_path), "--for", "0s")
    assert (done.returncode, done.stdout) == (2, "")
    assert list(tmp_path.iterdir()) == []


def test_ended_while_it_waits_the_wish_stands(beside: Beside, keep_from_dying: Callable[[int], object]) -> None:
    keep_from_dying(*beside.children())
    command = [*LLMHOST, "release", "--run-dir", str(beside.run), "--path.procfs", str(beside.view())]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as waiting:
        beside.daemon.logged("the driver is paused")
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(5) == 130
    assert not beside.reads_the_driver()
