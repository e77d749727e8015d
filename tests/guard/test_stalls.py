"""A guard whose inputs stall, by SIGSTOP, before it begins or while it waits. It waits by hand, for GPU 0 of a unit."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.fakes.booted import Booted, booted_systemd
from tests.guard.test_on_systemd import Host, host

__all__ = ["booted_systemd", "host"]


@contextmanager
def systemd(booted: Booted) -> Iterator[None]:
    os.kill(booted.pid, signal.SIGSTOP)  # from its parent namespace, this stops also a PID 1 (pid_namespaces(7))
    try:
        yield
    finally:
        os.kill(booted.pid, signal.SIGCONT)


@contextmanager
def bus(booted: Booted) -> Iterator[None]:
    booted.run(["pkill", "-STOP", "-x", "dbus-daemon"])
    try:
        yield
    finally:
        booted.run(["pkill", "-CONT", "-x", "dbus-daemon"])


@contextmanager
def driver(booted: Booted) -> Iterator[None]:
    """Stop the child that asks the driver: it takes the guard's end to end it."""
    booted.run(["pkill", "-STOP", "-f", "llmhost.*nvml"])
    yield


UNKNOWN_NEED = r"waits for systemd to say what is needed: .*; for GPU 0 \(80\.0 GiB in use, less than 1\.0 GiB wanted\)"
NO_NEED = r"cannot tell what is needed: systemd cannot be asked: (starting|timeout) \(.*"
HANGS = r"cannot tell after \d\.\d s \(--timeout\): waits for the driver: timeout \("
HELD = r"held after \d\.\d s \(--timeout\): waits for GPU 0 \(15\.0 of 85\.5 GiB free\)"


@dataclass(frozen=True)
class Stall:
    of: Callable[[Booted], AbstractContextManager[None]]
    amid: bool  # else before the guard begins
    used: str
    code: int
    says: str


@pytest.mark.parametrize(
    "stall",
    [
        Stall(systemd, amid=False, used="80G", code=1, says=rf"held after \d\.\d s \(--timeout\): {UNKNOWN_NEED}"),
        Stall(systemd, amid=False, used="600M", code=4, says=NO_NEED),
        Stall(systemd, amid=True, used="80G", code=1, says=HELD),
        Stall(bus, amid=False, used="80G", code=1, says=rf"held after \d\.\d s \(--timeout\): {UNKNOWN_NEED}"),
        Stall(bus, amid=False, used="600M", code=4, says=NO_NEED),
        Stall(bus, amid=True, used="80G", code=1, says=HELD),
        Stall(driver, amid=True, used="80G", code=3, says=HANGS),
    ],
    ids=lambda stall: f"{stall.of.__name__} {'amid' if stall.amid else 'before'} {stall.used}",
)
def test_an_input_that_stalls_lets_no_start_on(host: Host, stall: Stall) -> None:
    host.use({0: stall.used})
    host.unit("vllm-a", "0", prefix="-+/nonexistent/llmhost guard ")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    with ExitStack() as stalled:
        if not stall.amid:
            stalled.enter_context(stall.of(host.booted))
        guard = stalled.enter_context(begun(host, "--timeout", "8s" if stall.amid else "5s", "--on-fault", "refuse"))
        assert guard.stderr is not None
        lines = []
        if stall.amid:
            lines += [next(line for line in guard.stderr if "waits for GPU 0 (15.0 of 85.5 GiB free)" in line)]
            stalled.enter_context(stall.of(host.booted))
        lines += guard.stderr
        assert (guard.wait(20), bool(re.search(stall.says, "".join(lines)))) == (stall.code, True), lines


def begun(host: Host, *options: str) -> subprocess.Popen[str]:
    guard = [sys.executable, "-m", "llmhost", "guard", "--unit", "vllm-a", "--config", "/etc/llmhost-guard.yml"]
    environment = ["-C", str(Path.cwd()), "LD_LIBRARY_PATH=/opt/nvml", "FAKE_NVML_STATE=/opt/nvml/state"]
    command = ["nsenter", "-t", str(host.booted.pid), "-a", "env", *environment, *guard, *options]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
