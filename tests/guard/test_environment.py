"""The environment, streams and signals that a guard is started with, and leaves to a command."""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.daemon import LLMHOST, environment
from tests.fakes.installed import guard_argv
from tests.fakes.nvml import FakeNvml, fake_nvml
from tests.fakes.values import HOST
from tests.guard.steps import state, used

from llmhost.decide.guard.state import Finish, Inputs, RemedyProgress
from llmhost.guard.ending_signals import EndingSignals
from llmhost.guard.loop import Loop
from llmhost.guard.readings import GuardReadings
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.reading import Ok
from llmhost.sources.sd_notify import Notifier

__all__ = ["fake_nvml"]

FREE = ("--gpus", "0", "--settle", "0s")


@pytest.fixture
def free_gpu(fake_nvml: FakeNvml) -> FakeNvml:
    fake_nvml.write(["gpu 0 total=96G reserved=1G used=600M"])
    return fake_nvml


def test_what_an_engines_environment_says_of_its_python_is_not_the_guards(free_gpu: FakeNvml, tmp_path: Path) -> None:
    """Started by the drop-in, neither the guard nor its child imports modules from the engine's PYTHONPATH."""
    for module in ("logging", "ctypes"):
        (tmp_path / f"{module}.py").write_text("raise RuntimeError('of the engine')")
    more = {"PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nonexistent"}
    done = subprocess.run(
        [*guard_argv("vllm.service"), *FREE, "--run-dir", str(tmp_path)],
        env=environment({**free_gpu.environment(), **more}),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "free after" in done.stderr


def test_a_guard_whose_streams_are_closed_still_answers(free_gpu: FakeNvml, tmp_path: Path) -> None:
    for options, code in ((FREE, 0), (("--gpus", "0", "--need-free", "96GiB", "--timeout", "0s"), 1)):
        guard = [*LLMHOST, "guard", "--run-dir", str(tmp_path), *options]
        closed = subprocess.run(
            ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *guard],
            env=environment(free_gpu.environment()),
            check=False,
            timeout=120,
        )
        assert closed.returncode == code


def test_a_guard_in_a_folder_that_is_gone_still_answers(free_gpu: FakeNvml, tmp_path: Path) -> None:
    removed = ["sh", "-c", 'mkdir gone; cd gone; rmdir ../gone; exec "$@"', "sh", *LLMHOST, "guard"]
    command = [*removed, "--run-dir", str(tmp_path), "--gpus", "0", "--need-free", "96GiB", "--timeout", "0s"]
    given = environment(free_gpu.environment())
    assert subprocess.run(command, env=given, cwd=tmp_path, check=False, timeout=120).returncode == 1


def test_a_command_ignores_no_signal_that_it_would_not_ignore_without_a_guard(tmp_path: Path) -> None:
    """Python ignores SIGPIPE and SIGXFSZ, and what is executed inherits that (signal(7))."""
    command = ["sed", "-n", "s/SigIgn://p", "/proc/self/status"]
    done = subprocess.run(
        [*LLMHOST, "guard", "--run-dir", str(tmp_path), "--", *command],
        env=environment({"LLMHOST_GUARD": "off"}),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    ignored = int(done.stdout, 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


class _TerminatesUs:
    """A stream during whose first write SIGTERM comes, as to a guard that waits for a journal that is slow."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, text: str) -> None:
        if not self.lines:
            os.kill(os.getpid(), signal.SIGTERM)
        self.lines.append(text)

    def flush(self) -> None:
        pass


@pytest.fixture
def noted() -> Iterator[EndingSignals]:
    signals = EndingSignals()
    signals.note()
    yield signals
    signals.release()


def test_sigterm_that_comes_while_a_line_is_written_is_not_lost(noted: EndingSignals) -> None:
    log = logging.Logger("of this test")  # noqa: LOG001 - nobody else's
    log.addHandler(logging.StreamHandler(_TerminatesUs()))
    log.warning("it waits")
    assert noted.name == "SIGTERM"


def test_the_first_signal_counts_and_none_that_is_ignored(noted: EndingSignals) -> None:
    noted.release()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        noted.note()
        for number in (signal.SIGHUP, signal.SIGRTMIN + 3, signal.SIGQUIT):
            os.kill(os.getpid(), number)
        assert noted.name == "SIGRTMIN+3"
    finally:
        noted.release()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class _FreeReadings(GuardReadings):
    """Readings by which a start is let on at once."""

    def __init__(self) -> None:
        """Read nothing."""

    def take(self, remedies: RemedyProgress | None, *, ended_by: str) -> Inputs:
        return Inputs(host=Ok(HOST), memory=used(39), remedies=remedies, ended_by=ended_by)


def test_sigterm_that_comes_with_the_last_line_starts_nothing(noted: EndingSignals) -> None:
    log = logging.getLogger("llmhost.guard.loop")
    stream = _TerminatesUs()
    handler = logging.StreamHandler(stream)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        end = Loop(state(timeout=1e9), _FreeReadings(), Notifier({}), None, signals=noted).run()
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
    assert [line.split(" after")[0] for line in stream.lines] == ["the start: free", "the start: ended by SIGTERM"]
    assert end == Finish(verdict=GuardVerdict.HELD, terminated=True)


class _BrokenReadings(_FreeReadings):
    """Readings with a bug, during which signals come."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def take(self, remedies: RemedyProgress | None, *, ended_by: str) -> Inputs:  # noqa: ARG002 - as all have it
        for number in self._numbers:
            os.kill(os.getpid(), number)
        raise RuntimeError


def test_a_bug_lets_no_start_on_after_a_signal(noted: EndingSignals) -> None:
    with pytest.raises(RuntimeError):
        Loop(state(), _BrokenReadings(), Notifier({}), None, signals=noted).run()
    end = Loop(state(), _BrokenReadings(signal.SIGINT), Notifier({}), None, signals=noted).run()
    assert end == Finish(verdict=GuardVerdict.UNKNOWN, terminated=True)


def test_free_gpus_are_free_without_a_list_of_processes_but_not_without_their_fabric(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    """Live engines wait for the lock that a list takes, and eight GPUs take tens of milliseconds for it."""
    trace = tmp_path / "trace"
    verdicts = []
    for fabric in ("2:0", "3:0"):  # nvml.h: NVML_GPU_FABRIC_STATE_IN_PROGRESS, _COMPLETED
        trace.write_text("")
        fake_nvml.write([f"system x trace={trace}", f"gpu 0 total=96G reserved=1G used=600M fabric={fabric}"])
        done = subprocess.run(
            [*LLMHOST, "guard", *FREE, "--run-dir", str(tmp_path), "--timeout", "500ms"],
            env=environment(fake_nvml.environment()),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        verdicts.append((done.returncode, "its NVLink fabric is not ready" in done.stderr))
    assert verdicts == [(1, True), (0, False)]
    assert "RunningProcesses" not in trace.read_text()


STEERING = {
    "PATH": "/home/llm/bin:/usr/bin",
    "HOME": "/home/llm",
    "XDG_CONFIG_HOME": "/home/llm/.config",
    "OPENSSL_CONF": "/home/llm/openssl.cnf",
    "PYTHONPATH": "/home/llm/lib",
    "PYTHONWARNINGS": "ignore",
    "NVIDIA_VISIBLE_DEVICES": "0",
    "CUDA_VISIBLE_DEVICES": "0",
    "LANGUAGE": "/home/llm",
    "SSLKEYLOGFILE": "/home/llm/keys",
    "NOTIFY_SOCKET": "/run/systemd/notify",
    "INVOCATION_ID": "1" * 32,
}


def taken(given: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Take the environment in a process of its own; give what was taken, and what is left."""
    program = (
        "from llmhost.guard.environment import take_environment\nimport json, os\n"
        "print(json.dumps([take_environment(), dict(os.environ)]))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=True, timeout=120)
    data, left = json.loads(done.stdout)
    return dict(data), left


def test_the_guard_goes_by_nothing_of_the_engines_environment_but_has_it_as_data() -> None:
    data, left = taken(STEERING)
    assert {name: data[name] for name in STEERING} == STEERING
    assert left == {"NOTIFY_SOCKET": "/run/systemd/notify", "INVOCATION_ID": "1" * 32}


def test_another_driver_library_and_another_bus_are_used_where_they_are_roots_or_ours(tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    library = {"LD_LIBRARY_PATH": f"{tmp_path}:{others}:", "STATE": f"{tmp_path}/state", "ELSEWHERE": "/usr/lib/state"}
    bus = {"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={others}/bus"}
    assert taken(library | bus)[1] == {
        "LD_LIBRARY_PATH": f"{tmp_path}:{others}",
        "STATE": f"{tmp_path}/state",
        **bus,
    }
    others.chmod(0o777)
    assert taken(library | bus)[1] == {"LD_LIBRARY_PATH": str(tmp_path), "STATE": f"{tmp_path}/state"}
    (tmp_path / "libnvidia-ml.so.1").write_text("")
    (tmp_path / "libnvidia-ml.so.1").chmod(0o666)
    assert taken(library | bus)[1] == {}
    assert taken({"DBUS_SYSTEM_BUS_ADDRESS": "unixexec:path=/home/llm/evil"})[1] == {}


def test_the_drivers_child_has_the_guards_environment_and_the_command_its_own(
    free_gpu: FakeNvml, tmp_path: Path
) -> None:
    given = environment({**free_gpu.environment(), **STEERING, "PATH": os.environ["PATH"]})
    waits = [*LLMHOST, "guard", "--gpus", "0", "--need-free", "96GiB", "--run-dir", str(tmp_path), "--timeout", "20s"]
    with subprocess.Popen(waits, env=given, stderr=subprocess.PIPE, text=True) as guard:
        assert guard.stderr is not None
        while "waits for GPU 0" not in (line := guard.stderr.readline()):
            assert line, "it has ended"
        tasks = Path(f"/proc/{guard.pid}/task").glob("*/children")
        (child,) = [pid for task in tasks for pid in task.read_text().split()]
        names = {
            entry.partition(b"=")[0].decode() for entry in Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        }
        guard.kill()
    kept = {"LD_LIBRARY_PATH", "FAKE_NVML_STATE", "DBUS_SYSTEM_BUS_ADDRESS", "NOTIFY_SOCKET", "INVOCATION_ID", ""}
    assert names - {"LC_CTYPE"} == kept, "LC_CTYPE is Python's own"
    command = [*LLMHOST, "guard", *FREE, "--run-dir", str(tmp_path), "--", "env"]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=True, timeout=120)
    assert {line.partition("=")[0] for line in done.stdout.splitlines()} >= set(STEERING)


def test_nothing_that_the_environment_configures_is_loaded_before_the_guard_drops_it() -> None:
    """OpenSSL, for one, runs what its configuration names as soon as it is loaded."""
    program = (
        "import llmhost.guard.environment, sys; print({'_ssl', '_hashlib', '_ctypes', '_socket'} & {*sys.modules})"
    )
    command = [sys.executable, "-I", "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "set()\n"
