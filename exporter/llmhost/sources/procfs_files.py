"""The files of one process in /proc: reading and parsing (proc(5))."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MOST_ARGUMENT_BYTES = 64 * 1024
KERNEL_THREAD_FLAG = 0x0020_0000  # include/linux/sched.h: PF_KTHREAD
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
ENDED_ERRNOS = frozenset(
    {errno.ENOENT, errno.ESRCH, errno.ENOTDIR}
)  # from opening or reading what is of an ended process
_PIECE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Stat:
    """The part of /proc/PID/stat that is used; comm still in bytes."""

    comm: bytes
    state: str
    ppid: int
    pgrp: int
    session: int
    flags: int
    start_ticks: int


def parse_stat(data: bytes) -> Stat:
    """Parse a /proc/PID/stat. The name ends at the last ')': it may hold blanks, newlines and ')' itself.

    Raises ValueError or IndexError when it is none.
    """
    end = data.rindex(b")")
    fields = data[end + 2 :].split(None, 20)
    return Stat(
        data[data.index(b"(") + 1 : end],
        chr(fields[0][0]),
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        int(fields[6]),
        int(fields[19]),
    )


def read_age_seconds(procfs: Path, pid: int, boottime_seconds: float) -> float:
    """Return the time since a process started, by CLOCK_BOOTTIME; 0.0 where that cannot be read."""
    start_ticks = read_start_ticks(procfs, pid)
    return 0.0 if start_ticks is None else max(0.0, boottime_seconds - start_ticks / os.sysconf("SC_CLK_TCK"))


def read_start_ticks(procfs: Path, pid: int) -> int | None:
    """Return when a process started, in ticks on CLOCK_BOOTTIME; None where that cannot be read."""
    try:
        return parse_stat((procfs / str(pid) / "stat").read_bytes()).start_ticks
    except (OSError, ValueError, IndexError):
        return None


def parse_cmdline(data: bytes) -> tuple[str, ...]:
    r"""Split a /proc/PID/cmdline, without the NULs that pad a title; bytes that are no UTF-8 are shown as `\xff`."""
    data = data.rstrip(b"\0")
    return tuple(text_of(argument) for argument in data.split(b"\0")) if data else ()


@contextmanager
def opened_process(directory: str | Path, start_ticks: int) -> Iterator[int]:
    """Open the /proc/PID of exactly this process: with it open, a reused pid is not mixed up with it.

    Raises OSError: ProcessLookupError where another process has the pid; ValueError or IndexError for no stat.
    """
    descriptor = os.open(directory, DIRECTORY_FLAGS)
    try:
        if parse_stat(small_file("stat", descriptor)).start_ticks != start_ticks:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        yield descriptor
    finally:
        os.close(descriptor)


def links_in(directory: int, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Read the links of an open /proc/PID/fd: (name, target), without those closed meanwhile. Raises OSError."""
    for name in names:
        try:
            yield name, os.readlink(name, dir_fd=directory)
        except FileNotFoundError:
            continue


def small_file(path: str, directory: int | None) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.read(descriptor, _PIECE_BYTES)
    finally:
        os.close(descriptor)


def whole_file(name: str, directory: int) -> bytes | None:
    """Read a whole file, up to a bound; None where it may not be read. Raises OSError when the process is gone."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        if error.errno in ENDED_ERRNOS:
            raise
        return None
    try:
        data = piece = os.read(descriptor, _PIECE_BYTES)
        while len(piece) == _PIECE_BYTES and len(data) < MOST_ARGUMENT_BYTES:  # neither file ends a read early
            piece = os.read(descriptor, _PIECE_BYTES)
            data += piece
    except OSError as error:
        if error.errno in ENDED_ERRNOS:
            raise
        return None
    finally:
        os.close(descriptor)
    return data


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
