"""Admissions: a file for each start that a guard let go on, in `admissions/` of the run directory.

A guard admits by compare and set: its file is written only if the others' are those that it has decided by. A lock
keeps two guards from writing at a time. One that was stopped while it had the lock is not waited for: the lock is
replaced, and it withdraws what it wrote when it goes on. Files of users other than root and our own are ignored.
"""

import contextlib
import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from llmhost.model.admission import Admission
from llmhost.model.ids import ProcessId
from llmhost.runtime.trusted_path import trusted_owners
from llmhost.state.directory import read_file
from llmhost.state.driver_pause import boottime
from llmhost.state.json_codec import DecodeError, EncodeCache, codec_of
from llmhost.state.run_directory import make_directory, replace_in, trusted_directory

FORMAT = "llmhost guard admission"
VERSION = 1
FOLDER = "admissions"
STUCK_SECONDS = 2.0  # after which who has the lock is taken to be stopped
_LOCK = ".lock"
_MOST_BYTES = 64 << 10
_MOST_FILES = 1000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    """The content of a file."""

    boot_id: str
    admission: Admission


class Admissions:
    """The admissions of this boot, for use by one thread; `own` is the name that this guard's file has."""

    def __init__(
        self,
        run_directory: Path,
        own: str,
        *,
        boot_id: str,
        is_alive: Callable[[ProcessId], bool],
        most_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = run_directory / FOLDER
        self._own = own
        self._boot_id = boot_id
        self._is_alive = is_alive
        self._most_seconds = most_seconds
        self._monotonic = monotonic
        self._busy: tuple[int, float] | None = None  # inode of a lock that another has, and since when
        self._warned: set[str] = set()

    def others(self) -> tuple[Admission, ...]:
        """Read the admissions of others that may count; () where they cannot be read, which is said once."""
        try:
            names = self._names()
        except FileNotFoundError:
            return ()
        except OSError as error:
            self._warn(f"what other guards have let start counts for nothing: {self._folder}: {error.strerror}")
            return ()
        return tuple(found for name in names[:_MOST_FILES] if (found := self._read(name)) is not None)

    def admit(self, admission: Admission, seen: Sequence[Admission]) -> bool:
        """Record it, unless the others' are not those that were `seen`, or another guard is at it: then try again.

        Where nothing can be written, that is said once, and the start goes on.
        """
        try:
            make_directory(self._folder)
            with trusted_directory(self._folder) as directory, self._locked(directory) as lock:
                if lock is None or self.others() != tuple(seen):
                    return False
                self._remove_ended(directory)
                replace_in(directory, self._own, self._document(admission))
                if _is_current(directory, lock):
                    return True
                os.unlink(self._own, dir_fd=directory)  # we were stopped meanwhile, and another has admitted since
                return False
        except OSError as error:
            self._warn(f"other guards are not told of this start: {self._folder}: {error.strerror}")
            return True

    def _names(self) -> list[str]:
        """Give the names of others' files."""
        names = (path.name for path in self._folder.iterdir())
        return sorted(name for name in names if name != self._own and not name.startswith("."))

    def _read(self, name: str) -> Admission | None:
        """Read one; None for a file that is none, or whose time is over."""
        try:
            document = json.loads(read_file(self._folder / name, _MOST_BYTES, owners=trusted_owners()).decode())
            if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
                raise DecodeError(f'it does not say "format": "{FORMAT}", "version": {VERSION}')
            read = cast("_Document", codec_of(_Document).decode(document))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._warn(f"{self._folder / name} is no valid admission, and counts for nothing: {error}")
            return None
        admission = read.admission
        age_seconds = boottime() - admission.at_boottime_seconds
        if read.boot_id != self._boot_id or not 0 <= age_seconds <= self._most_seconds:
            return None
        return None if admission.process is not None and not self._is_alive(admission.process) else admission

    def _remove_ended(self, directory: int) -> None:
        """Remove what counts no more: commands that were let start have a file each."""
        for name in self._names():
            if self._read(name) is None:
                with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                    os.unlink(name, dir_fd=directory)

    def _document(self, admission: Admission) -> bytes:
        head = json.dumps({"format": FORMAT, "version": VERSION}, separators=(",", ":"))[:-1]
        body = codec_of(_Document).encode(_Document(boot_id=self._boot_id, admission=admission), EncodeCache())
        return f"{head},{body[1:]}\n".encode("ascii")

    @contextlib.contextmanager
    def _locked(self, directory: int) -> Iterator[int | None]:
        """Have the lock; None where another has it."""
        lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=directory)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not self._is_stuck(os.fstat(lock).st_ino):
                    yield None
                    return
                os.close(lock)
                lock = _new_lock(directory)
            self._busy = None
            yield lock if _is_current(directory, lock) else None
        finally:
            os.close(lock)

    def _is_stuck(self, inode: int) -> bool:
        """Say whether the lock with this inode has been another's for long."""
        now = self._monotonic()
        if self._busy is None or self._busy[0] != inode:
            self._busy = inode, now
        return now - self._busy[1] >= STUCK_SECONDS

    def _warn(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            log.warning("%s", what)


def _new_lock(directory: int) -> int:
    """Put a new lock, which we have, in the place of the other."""
    new = f"{_LOCK}-{os.getpid()}"
    lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=directory)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(new, _LOCK, src_dir_fd=directory, dst_dir_fd=directory)
    return lock


def _is_current(directory: int, lock: int) -> bool:
    """Say whether nobody has replaced the lock."""
    try:
        there = os.stat(_LOCK, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return there.st_ino == os.fstat(lock).st_ino
