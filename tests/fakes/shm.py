"""Shared memory of a test's own, real processes that hold files in it, and a procfs that shows only those.

A test sees only its own files and processes, whatever else the machine runs: the tmpfs is a new one, which a child may
have at /dev/shm, and the procfs is a directory of links into the real one. Its process 1 is a stand-in that sleeps: the
real one may refuse to be inspected.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from tests.fakes.needs import needs, needs_root

from llmhost.config.schema import SegmentNames
from llmhost.model.ids import ProcessId
from llmhost.model.segment import Segment, SharedMemory
from llmhost.sources.shm.process import HeldInodes, Inspector
from llmhost.sources.shm.source import MOST_FILES, ShmSource

# Runs each line that it gets, and prints what the code assigned to `answer`.
_OBEDIENT = """
import json, sys
for line in sys.stdin:
    answer = None
    exec(json.loads(line))
    print(json.dumps(answer), flush=True)
"""
# mmap(2) itself: Python's keeps a descriptor of its own.
MMAP = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
def mapped(path, protection, flags, opened=os.O_RDWR):
    descriptor = os.open(path, opened)
    assert libc.mmap(None, 4096, protection, flags, descriptor, 0) not in (None, 2**64 - 1)
    os.close(descriptor)
"""


def at_dev_shm(shm: Path) -> tuple[str, ...]:
    """Give what runs a command in a mount namespace that has `shm` at /dev/shm, as root."""
    needs_root()
    mount = 'mount --bind "$1" /dev/shm && shift && exec "$@"'
    return (needs("unshare"), "--mount", "sh", "-c", mount, "sh", str(shm))


class Child:
    """A Python process that runs the code it gets; with `shm`, in a mount namespace that has it at /dev/shm."""

    def __init__(self, shm: Path | None = None) -> None:
        command: tuple[str, ...] = (sys.executable, "-c", _OBEDIENT)
        if shm is not None:
            command = (*at_dev_shm(shm), *command)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.pid = self._process.pid
        self.do("pass")  # it is Python by then

    def do(self, code: str) -> object:
        """Have it run the code; gives what the code assigned to `answer`."""
        self.tell(code)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"it failed: {code}"
        answer: object = json.loads(line)
        return answer

    def tell(self, code: str) -> None:
        """Have it run code after which it may not answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()

    def number(self, code: str) -> int:
        answer = self.do(code)
        assert isinstance(answer, int)
        return answer

    @property
    def id(self) -> ProcessId:
        return process_id(self.pid)

    def end(self) -> None:
        """End it, by SIGKILL, and its children with it."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, 9)
        self._process.kill()
        self._process.communicate()


def process_id(pid: int) -> ProcessId:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return ProcessId(pid, int(fields[19]))  # field 22


def these(*processes: Child | int) -> frozenset[ProcessId]:
    return frozenset(process_id(process) if isinstance(process, int) else process.id for process in processes)


class Children:
    def __init__(self) -> None:
        self._all: list[Child] = []

    def __call__(self, shm: Path | None = None) -> Child:
        self._all.append(Child(shm))
        return self._all[-1]

    def end(self) -> None:
        for child in self._all:
            child.end()


@pytest.fixture
def children() -> Iterator[Children]:
    """Give a maker of children, which are ended after the test."""
    made = Children()
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """Give a tmpfs of 64 MiB of its own, as root; else a directory in /dev/shm."""
    if os.geteuid() != 0:
        directory = Path(tempfile.mkdtemp(prefix="llmhost-test-", dir="/dev/shm"))
        yield directory
        subprocess.run([needs("rm"), "-rf", directory], check=True)  # however deep it is by now
        return
    directory = tmp_path / "shm"
    with mounted(directory):
        yield directory


class mounted:  # noqa: N801 - read as a verb: with mounted(directory)
    """A tmpfs on a directory, which is made."""

    def __init__(self, directory: Path, options: str = "size=64M,nr_inodes=200000,mode=1777") -> None:
        needs_root()
        self._directory = directory
        self._options = options

    def __enter__(self) -> Path:
        self._directory.mkdir(exist_ok=True)
        subprocess.run([needs("mount"), "-t", "tmpfs", "-o", self._options, "tmpfs", self._directory], check=True)
        return self._directory

    def __exit__(self, *_: object) -> None:
        subprocess.run([needs("umount"), "--lazy", self._directory], check=True)


class ShownProcesses:
    """A procfs with these processes, and process 1, which is another program that sleeps."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        self.path.mkdir()
        (self.path / "self").symlink_to("/proc/self")
        self._init = subprocess.Popen([needs("sleep"), "1000"])
        (self.path / "1").symlink_to(f"/proc/{self._init.pid}")
        self._children = Children()

    def child(self, shm: Path | None = None) -> Child:
        """Make a child, and show it."""
        made = self._children(shm)
        self.show(made)
        return made

    def show(self, *shown: Child | int) -> None:
        for process in shown:
            pid = process if isinstance(process, int) else process.pid
            (self.path / str(pid)).symlink_to(f"/proc/{pid}")

    def hide(self, pid: int) -> None:
        (self.path / str(pid)).unlink()

    def end(self) -> None:
        self._children.end()
        self._init.kill()
        self._init.wait()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[ShownProcesses]:
    shown = ShownProcesses(tmp_path / "proc")
    try:
        yield shown
    finally:
        shown.end()


class CountingInspector(Inspector):
    """Keeps what was inspected, in order."""

    def __init__(self, procfs: Path) -> None:
        super().__init__(procfs)
        self.inspected: list[tuple[int, bool]] = []  # pid, thorough

    def inspect(self, pid: int, device: int, *, thorough: bool) -> HeldInodes | None:
        self.inspected.append((pid, thorough))
        return super().inspect(pid, device, thorough=thorough)


class Hand:
    """A clock that is set by hand."""

    def __init__(self, at: float = 1000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


class Stopping(CountingInspector):
    """Lets time pass at every inspection, and does something before one of them."""

    def __init__(self, procfs: Path, clock: Hand, before: Callable[[int], None] = lambda _pid: None) -> None:
        super().__init__(procfs)
        self.clock = clock
        self.seconds = 0.0
        self.before = before

    def inspect(self, pid: int, device: int, *, thorough: bool) -> HeldInodes | None:
        self.clock.at += self.seconds
        self.before(pid)
        return super().inspect(pid, device, thorough=thorough)


def source(
    shm: Path, shown: ShownProcesses, *names: SegmentNames, most_files: int = MOST_FILES, clock: Hand | None = None
) -> ShmSource:
    return ShmSource(
        shm=shm,
        procfs=shown.path,
        names=names,
        grace_seconds=30.0,
        trust_pid_namespace=True,
        most_files=most_files,
        monotonic=clock or time.monotonic,
    )


def observe(shm_source: ShmSource, clock: Hand | None = None) -> SharedMemory:
    return shm_source.read((clock or time.monotonic)() + 30)


def by_path(shared: SharedMemory) -> Mapping[str, Segment]:
    return {segment.path: segment for segment in shared.segments}


def holders(shared: SharedMemory) -> Mapping[str, frozenset[ProcessId] | None]:
    return {segment.path: segment.holders for segment in shared.segments}
