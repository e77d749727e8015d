"""The environment, streams and signals that a guard is started with, and leaves to a command."""

import logging
import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.fakes.daemon import LLMHOST, environment
from tests.fakes.installed import guard_argv
from tests.fakes.nvml import FakeNvml, fake_nvml
from tests.fakes.values import HOST
from tests.guard.steps import state, used

from llmhost.decide.guard.state import Finish, Inputs, RemedyProgress
from llmhost.guard.loop import Loop, Signals
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
        timeout=20,
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
            timeout=20,
        )
        assert closed.returncode == code


def test_a_command_ignores_no_signal_that_it_would_not_ignore_without_a_guard(tmp_path: Path) -> None:
    """Python ignores SIGPIPE and SIGXFSZ, and what is executed inherits that (signal(7))."""
    command = ["sed", "-n", "s/SigIgn://p", "/proc/self/status"]
    done = subprocess.run(
        [*LLMHOST, "guard", "--run-dir", str(tmp_path), "--", *command],
        env=environment({"LLMHOST_GUARD": "off"}),
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
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


def test_sigterm_that_comes_while_a_line_is_written_is_not_lost() -> None:
    log = logging.Logger("of this test")  # noqa: LOG001 - nobody else's
    log.addHandler(logging.StreamHandler(_TerminatesUs()))
    with Signals() as signals:
        log.warning("it waits")
    assert signals.terminated()


class _FreeReadings(GuardReadings):
    """Readings by which a start is let on at once."""

    def __init__(self) -> None:
        """Read nothing."""

    def take(self, remedies: RemedyProgress | None, *, terminated: bool) -> Inputs:
        return Inputs(host=Ok(HOST), memory=used(39), remedies=remedies, terminated=terminated)


def test_sigterm_that_comes_with_the_last_line_starts_nothing() -> None:
    log = logging.getLogger("llmhost.guard.loop")
    stream = _TerminatesUs()
    handler = logging.StreamHandler(stream)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        end = Loop(state(timeout=1e9), _FreeReadings(), Notifier({}), None).run()
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
    assert [line.split(" after")[0] for line in stream.lines] == ["the start: free", "the start: ended by SIGTERM"]
    assert end == Finish(verdict=GuardVerdict.HELD, terminated=True)


class _BrokenReadings(_FreeReadings):
    """Readings with a bug, during which signals come."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def take(self, remedies: RemedyProgress | None, *, terminated: bool) -> Inputs:  # noqa: ARG002 - as all have it
        for number in self._numbers:
            os.kill(os.getpid(), number)
        raise RuntimeError


def test_a_bug_lets_no_start_on_after_sigterm() -> None:
    end = Loop(state(), _BrokenReadings(signal.SIGTERM), Notifier({}), None).run()
    assert end == Finish(verdict=GuardVerdict.UNKNOWN, terminated=True)
    with pytest.raises(RuntimeError):
        Loop(state(), _BrokenReadings(), Notifier({}), None).run()
    with pytest.raises(KeyboardInterrupt):
        Loop(state(), _BrokenReadings(signal.SIGINT), Notifier({}), None).run()


def test_ctrl_c_is_one_between_two_steps() -> None:
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signals.terminated()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


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
            timeout=20,
        )
        verdicts.append((done.returncode, "its NVLink fabric is not ready" in done.stderr))
    assert verdicts == [(1, True), (0, False)]
    assert "RunningProcesses" not in trace.read_text()
