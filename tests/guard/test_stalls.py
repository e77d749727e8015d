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


HELD = r"waits for GPU 0 \(15\.0 of 85\.5 GiB free\).*; ([6-9]|\d\d) s of"
SILENT = r"waits for systemd to say what is needed: .*; ([6-9]|\d\d) s of"
SILENT_AND_HELD = SILENT.replace(".*", r".*; for GPU 0 \(80\.0 GiB in use, less than 1\.0 GiB wanted\).*")
HANGS = r"waits for the driver: (timeout|it hangs in) "


@pytest.fixture
def unit(host: Host) -> None:
    host.unit("vllm-a", "0", prefix="-+/nonexistent/llmhost guard ")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")


@dataclass(frozen=True)
class Stall:
    of: Callable[[Booted], AbstractContextManager[None]]
    amid: bool  # else before the guard begins
    used: str
    says: str


@pytest.mark.parametrize(
    "stall",
    [
        Stall(systemd, amid=False, used="80G", says=SILENT_AND_HELD),
        Stall(systemd, amid=False, used="600M", says=SILENT),
        Stall(systemd, amid=True, used="80G", says=HELD),
        Stall(bus, amid=False, used="80G", says=SILENT_AND_HELD),
        Stall(bus, amid=False, used="600M", says=SILENT),
        Stall(bus, amid=True, used="80G", says=HELD),
        Stall(driver, amid=True, used="80G", says=HANGS),
    ],
    ids=lambda stall: f"{stall.of.__name__} {'amid' if stall.amid else 'before'} {stall.used}",
)
@pytest.mark.usefixtures("unit")
def test_an_input_that_stalls_lets_no_start_on(host: Host, stall: Stall) -> None:
    host.use({0: stall.used})
    with ExitStack() as until_end:
        if not stall.amid:
            until_end.enter_context(stall.of(host.booted))
        guard = until_end.enter_context(begun(host))
        until_end.callback(guard.terminate)
        if stall.amid:
            says(guard, r"waits for GPU 0 \(15\.0 of 85\.5 GiB free\)")
            until_end.enter_context(stall.of(host.booted))
        says(guard, stall.says)


@pytest.mark.usefixtures("unit")
def test_a_bus_that_is_silent_to_the_end_is_a_fault_where_no_memory_is_in_use(host: Host) -> None:
    host.use({0: "600M"})
    with bus(host.booted), begun(host, "--timeout", "20s", "--on-fault", "refuse") as guard:
        says(guard, r"cannot tell what is needed: systemd cannot be asked: (starting|timeout) \(")
        assert guard.wait(20) == 4


def begun(host: Host, *options: str) -> subprocess.Popen[str]:
    guard = [sys.executable, "-m", "llmhost", "guard", "--unit", "vllm-a", "--config", "/etc/llmhost-guard.yml"]
    environment = ["-C", str(Path.cwd()), "LD_LIBRARY_PATH=/opt/nvml", "FAKE_NVML_STATE=/opt/nvml/state"]
    enter = ["nsenter", "-t", str(host.booted.pid), "-a", "setpriv", "--pdeathsig", "TERM"]  # it ends with nsenter
    command = [*enter, "env", *environment, *guard, *options]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def says(guard: subprocess.Popen[str], pattern: str) -> None:
    """Wait for a line; a guard that never says it ends at its limit."""
    assert guard.stderr is not None
    lines = []
    for line in guard.stderr:
        lines.append(line)
        if re.search(pattern, line):
            return
    pytest.fail(f"no {pattern!r} in {lines}")
