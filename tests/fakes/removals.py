"""Files that are to be removed from the real /dev/shm, and a child of the Remover that stops at a chosen moment."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmhost.act import lease_program
from llmhost.act.removing import Remover
from llmhost.decide.cleanup.steps import Outcome, Removal
from llmhost.model.segment import Segment, SegmentId
from llmhost.model.segment_names import kind_of


@pytest.fixture
def shm() -> Iterator[Path]:
    """Give a directory in the real /dev/shm."""
    folder = Path(f"/dev/shm/llmhost-test-{os.getpid()}-{time.monotonic_ns()}")
    folder.mkdir()
    yield folder
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.rmdir()


def made(folder: Path, name: str = "psm_0123abcd", content: bytes = b"x" * 4096) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def removal_of(path: Path, folder: Path, *, called: str | None = None) -> Removal:
    """Request the removal of the present file; `called`: its path in the reading, where that differs."""
    file_stat = path.lstat()
    below = str(path.relative_to(folder)) if called is None else called
    kind, creator = kind_of(below)
    segment = Segment(
        id=SegmentId(file_stat.st_dev, file_stat.st_ino),
        path=below,
        kind=kind,
        creator_pid=creator,
        size_bytes=file_stat.st_size,
        allocated_bytes=file_stat.st_blocks * 512,
        changed_at=file_stat.st_ctime_ns / 1e9,
        uid=file_stat.st_uid,
        holders=frozenset(),
        inspected_at=0.0,
    )
    return Removal(segment=segment, unit=None, because="")


def removed(folder: Path, removal: Removal) -> Outcome:
    with Remover(folder) as remover:
        return remover.remove(removal)


_PROGRAM = lease_program.__file__
# The moments of a removal, in order: what the child is about to do when it stops.
MOMENTS = ("open", "take the lease", "rename", "look at the lease", "unlink")
_STOPPING = """
import fcntl, os, runpy, signal, sys
program, moment = {program!r}, {moment!r}

def stopping(call, name, applies):
    def instead(*given, **named):
        if name == moment and applies(*given):
            os.kill(os.getpid(), signal.SIGSTOP)
        return call(*given, **named)
    return instead

os.open = stopping(os.open, "open", lambda name, flags: flags & os.O_NONBLOCK)
fcntl.fcntl = stopping(fcntl.fcntl, "take the lease", lambda file, what, *_: what == fcntl.F_SETLEASE)
fcntl.fcntl = stopping(fcntl.fcntl, "look at the lease", lambda file, what, *_: what == fcntl.F_GETLEASE)
os.rename = stopping(os.rename, "rename", lambda *_: True)
os.unlink = stopping(os.unlink, "unlink", lambda *_: True)
runpy.run_path(program, run_name="__main__")
"""


def stopping_program(folder: Path, moment: str) -> Path:
    """Write the Remover's child as a program that stops, by SIGSTOP, each time when it is about to do that."""
    program = folder / "stopping_program.py"
    program.write_text(_STOPPING.format(program=_PROGRAM, moment=moment))
    return program


@pytest.fixture
def stop_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Give a way to have the children of Removers that are made from then on stop."""
    return lambda moment: monkeypatch.setattr(lease_program, "__file__", str(stopping_program(tmp_path, moment)))


def stopped_child(seconds: float = 10) -> int:
    """Wait until a child of ours is stopped, and give its pid."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for pid in _children():
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                return pid
        time.sleep(0.001)
    raise AssertionError("no child has stopped")


def _children() -> list[int]:
    found = [task.joinpath("children").read_text().split() for task in Path("/proc/self/task").iterdir()]
    return [int(pid) for pids in found for pid in pids]


def go_on(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


# Once it is told to, opens a file and maps it, and says how long the opening took, or what kept it; then has it until
# its input ends.
OPENER = [
    sys.executable,
    "-c",
    """
import mmap, os, sys, time
print("here", flush=True)
sys.stdin.readline()
began = time.monotonic()
try:
    descriptor = os.open(sys.argv[1], os.O_RDWR)
except OSError as error:
    print(error.strerror, flush=True)
else:
    waited = time.monotonic() - began
    held = mmap.mmap(descriptor, 1)
    os.close(descriptor)
    print(waited, flush=True)
    sys.stdin.read()
""",
]
