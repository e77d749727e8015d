"""A real systemd, booted as PID 1 of its own namespaces (see the script `boot`). Root only.

    from tests.fakes.booted import Booted, booted_systemd  # noqa: F401 - a fixture, one for each file

    def test_it(booted_systemd: Booted) -> None:
        booted_systemd.write_unit("a.service", UNIT)
        booted_systemd.systemctl("start", "a.service")

`bus_address` is its system bus as reached from outside, `root` its file system, `pid` its PID 1, all as seen from here.
Processes inside have other pids than from here.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import pytest
from tests.fakes.needs import missing, needs, needs_root

_HERE = Path(__file__).parent
_TIMEOUT_SECONDS = 300.0


class Booted:
    """Started with the context, gone with it."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="llmhost-boot-"))
        self.pid = 0

    def __enter__(self) -> Self:
        booting = subprocess.run(
            [_HERE / "boot", self._directory], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
        if booting.returncode != 0:
            self.__exit__()
            pytest.fail(booting.stderr)
        self.pid = int(booting.stdout)
        return self

    def __exit__(self, *exc: object) -> None:
        stopping = subprocess.run(
            [_HERE / "stop", self._directory], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
        shutil.rmtree(self._directory)
        assert stopping.returncode == 0, stopping.stderr

    @property
    def root(self) -> Path:
        return Path(f"/proc/{self.pid}/root")

    @property
    def bus_address(self) -> str:
        return f"unix:path={self.root}/run/dbus/system_bus_socket"

    def run(
        self, argv: Sequence[str], *, stdin: str = "", check: bool = True, timeout_seconds: float = _TIMEOUT_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside. It does not go when its time is up with what it started; `stop` ends that."""
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "-a", *argv],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
        assert not check or done.returncode == 0, f"{argv}: {done.stderr}"
        return done

    def write(self, path: str, text: str) -> None:
        self.run(["/bin/sh", "-c", 'cat >"$1"', "sh", path], stdin=text)

    def write_unit(self, name: str, text: str) -> None:
        """Write a unit file. systemd takes note of a changed one with the next daemon-reload."""
        self.write(f"/etc/systemd/system/{name}", text)

    def systemctl(self, *arguments: str, check: bool = True) -> str:
        return self.run(["systemctl", *arguments], check=check).stdout

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """Ask `systemctl show`, wall-clock times in UTC and to the microsecond. Loads the unit."""
        shown = self.systemctl("show", "--timestamp=us+utc", "--property", ",".join(properties), "--", unit)
        return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)


def needs_boot() -> None:
    """Skip, or in CI fail, where none can be booted."""
    needs_root()
    for tool in (
        "nsenter",
        "unshare",
        "pivot_root",
        "setsid",
        "findmnt",
        "pgrep",
        "busctl",
        "systemctl",
        "dbus-daemon",
    ):
        needs(tool)
    if not Path("/lib/systemd/systemd").exists():
        missing("systemd")


@pytest.fixture(scope="module")
def booted_systemd() -> Iterator[Booted]:
    needs_boot()
    with Booted() as booted:
        yield booted
