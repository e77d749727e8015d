"""Trees of the stand-in engine (standin_engine.py): started, killed by name, ended by pid even when adopted."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SERVER = Path(__file__).with_name("standin_engine.py")
WAIT_SECONDS = 60.0

# Become a subreaper (prctl(2), kept over exec), in the process group that the engine will be in.
_SUBREAPER = "import ctypes, os, sys; assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0; "
# A Python that captures the engine's output by a pipe, and lives on after its end.
PYTHON = (
    sys.executable,
    "-c",
    f"{_SUBREAPER} from subprocess import PIPE, Popen; Popen(sys.argv[1:], stdout=PIPE).wait(); sys.stdin.read()",
)
SHELL = (
    sys.executable,
    "-c",
    f"{_SUBREAPER} os.execvp('sh', ['sh', '-c', '\"$@\" & wait; cat', 'sh', *sys.argv[1:]])",
)

_QUIET = {"PYTHONWARNINGS": "ignore::UserWarning"}  # of trackers, about what they have cleaned up


@dataclass
class Member:
    pid: int
    pidfd: int
    facts: dict[str, Any]

    @property
    def segment(self) -> Path:
        """Its segment in shared memory."""
        return Path("/dev/shm", self.facts["segment"])

    def has_ended(self, seconds: float = 0.0) -> bool:
        """Tell if it has ended: a pidfd can be read from then on (pidfd_open(2)). Its children have been adopted."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)


@dataclass
class Tree:
    directory: Path
    arguments: tuple[str, ...] = ()
    under: tuple[str, ...] = ()  # the command that starts the engine
    method: str = "spawn"
    members: dict[str, Member] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.directory.mkdir()
        command = [sys.executable, "-B", shutil.copy(SERVER, self.directory / "vllm"), "serve", "tiny", *self.arguments]
        for fifo in ("report", "leave"):
            os.mkfifo(self.directory / fifo)
        self._report = os.open(self.directory / "report", os.O_RDWR)
        self._heard = b""
        self._top = subprocess.Popen(
            [*self.under, *command],
            env={**os.environ, "STANDIN_DIRECTORY": str(self.directory), "STANDIN_METHOD": self.method, **_QUIET},
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self._take("adopter" if self.under else "vllm", self._top.pid, {})
            self._hear()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        trackers = [member for name, member in self.members.items() if name == "tracker"]
        for member in self.members.values():
            if member not in trackers:
                member.signal(signal.SIGKILL)
        for pid in _pids_of_session(self._top.pid):  # also who was not heard of
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._top.kill()
        self._top.communicate()
        for member in trackers:
            if not member.has_ended(WAIT_SECONDS):  # it cleans up once all are gone
                member.signal(signal.SIGKILL)
        for member in self.members.values():
            member.has_ended(WAIT_SECONDS)
            os.close(member.pidfd)
        os.close(self._report)
        for member in self.members.values():
            if "segment" in member.facts:
                member.segment.unlink(missing_ok=True)

    @property
    def pids(self) -> dict[int, str]:
        return {member.pid: name for name, member in self.members.items()}

    def kill(self, *names: str) -> None:
        """End these with SIGKILL and see their end; of our own child also take it away, as a supervisor does."""
        for name in names:
            self.members[name].signal(signal.SIGKILL)
        for name in names:
            self.wait_for_end_of(name)

    def wait_for_end_of(self, name: str) -> None:
        member = self.members[name]
        assert member.has_ended(WAIT_SECONDS), f"{name} does not end"
        if member.pid == self._top.pid:
            self._top.wait()

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Let workers that have lost their core go."""
        descriptor = os.open(self.directory / "leave", os.O_RDWR)
        try:
            yield
        finally:
            os.close(descriptor)

    def _hear(self) -> None:
        cores, workers, servers = (self._given(name) for name in ("--cores", "--workers", "--api-server-count"))
        wanted = 1 + (cores or 1) * (1 + (workers or 1)) + (servers + 1 if servers else 0)
        until = time.monotonic() + WAIT_SECONDS
        for _ in range(wanted):
            while b"\n" not in self._heard:
                heard = select.select([self._report], [], [], max(0.0, until - time.monotonic()))[0]
                assert heard, f"only {list(self.members)} started"
                self._heard += os.read(self._report, 4096)
            line, _, self._heard = self._heard.partition(b"\n")
            facts = json.loads(line)
            self._take(facts["name"], facts["pid"], facts)
            for helper in ("tracker", "forkserver"):
                if facts.get(helper):
                    self._take(helper, facts[helper], {})

    def _given(self, name: str) -> int:
        return int(self.arguments[self.arguments.index(name) + 1]) if name in self.arguments else 0

    def _take(self, name: str, pid: int, facts: dict[str, Any]) -> None:
        if name in self.members:
            self.members[name].facts = facts
        else:
            self.members[name] = Member(pid, os.pidfd_open(pid), facts)


def _pids_of_session(leader: int) -> list[int]:
    """Find the processes of a tree, which is a session of its own, but for trackers: those clean up and end last."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stat = (directory / "stat").read_text().rpartition(")")[2].split()
            if int(stat[3]) == leader and b"resource_tracker" not in (directory / "cmdline").read_bytes():
                found.append(int(directory.name))
    return found
