"""A directory that one process has at a time, with files that are whole or as they were before.

A lock file (flock(2)) keeps a second llmhost out; the kernel unlocks it when the process ends, however it ends. New
content is written beside the old and renamed over it (rename(2) is atomic): a process that is killed, or out of space,
leaves the old file as it was. The new file has always the same name, so that there is never more than one left over.
"""

import contextlib
import fcntl
import os
import stat
from pathlib import Path

LOCK = "lock"
_MODE = 0o640
_KEPT_ASIDE = 3


class StoreError(Exception):
    """The state directory, or a file in it, cannot be used; str() is one line that says what, where and why."""


class OwnDirectory:
    def __init__(self, path: Path) -> None:
        """Open and lock it; raises StoreError where it is none, is not writable, or is in use by another."""
        self.path = path
        self._fd = -1
        self._lock = -1
        self._open()

    def read(self, name: str, most_bytes: int) -> bytes:
        return read_file(self.path / name, most_bytes)

    def replace(self, name: str, content: bytes, *, durable: bool) -> None:
        """Give the file this content, or leave it as it is and raise StoreError. Durable: also over a power failure."""
        self._reopen_if_replaced()
        new = f"{name}.new"
        try:
            self._write(new, content, durable=durable)
            os.rename(new, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            if durable:
                os.fsync(self._fd)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(new, dir_fd=self._fd)
            raise StoreError(f"{self.path / name} cannot be written: {error.strerror}") from error

    def handle(self) -> int:
        """Give a descriptor of the directory, for the caller to close; raises StoreError."""
        try:
            return os.dup(self._fd)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be used: {error.strerror}") from error

    def put_aside(self, name: str, stamp: str) -> str:
        """Rename a file to NAME.bad-STAMP, remove all such files but the latest three; give its new name."""
        aside = f"{name}.bad-{stamp}"
        try:
            os.rename(name, aside, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            before = sorted(self.path.glob(f"{name}.bad-*"))
        except OSError as error:
            raise StoreError(f"{self.path / name} cannot be renamed: {error.strerror}") from error
        for old in before[:-_KEPT_ASIDE]:
            with contextlib.suppress(OSError):  # a folder, for instance: not ours
                old.unlink()
        return aside

    def close(self) -> None:
        for fd in (self._lock, self._fd):
            if fd >= 0:
                os.close(fd)
        self._lock = self._fd = -1

    def _open(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            self._lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, _MODE, dir_fd=self._fd)
            os.utime(self._lock)  # no content, so also on a full disk; an old lock file may be on a read-only one
            self._take_lock()
        except OSError as error:
            self.close()
            raise StoreError(f"{self.path} cannot be used: {error.strerror}") from error
        except StoreError:
            self.close()
            raise

    def _take_lock(self) -> None:
        holder = lock_or_holder(self._lock)
        if holder is not None:
            raise StoreError(f"{self.path} is in use by another llmhost{holder}")

    def _reopen_if_replaced(self) -> None:
        """Open the directory again where it has been removed and made anew, or was not there."""
        try:
            there, ours = self.path.stat(), os.fstat(self._fd) if self._fd >= 0 else None
        except OSError as error:
            raise StoreError(f"{self.path} cannot be used: {error.strerror}") from error
        if ours is None or (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            self.close()
            self._open()

    def _write(self, name: str, content: bytes, *, durable: bool) -> None:
        with contextlib.suppress(FileNotFoundError):  # of a process that was killed as it wrote
            os.unlink(name, dir_fd=self._fd)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        fd = os.open(name, flags, _MODE, dir_fd=self._fd)
        try:
            os.fchmod(fd, _MODE)  # whatever the umask is
            remaining = memoryview(content)
            while remaining:
                remaining = remaining[os.write(fd, remaining) :]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)  # NFS reports a full disk here


def lock_or_holder(file: int) -> str | None:
    """Lock an open file, and write our pid into it. Where another has it, say who: " (pid 4711)", or "" if unknown."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(file, 20, 0).decode("ascii", "replace").strip()
        return f" (pid {pid})" if pid.isdecimal() else ""
    with contextlib.suppress(OSError):  # no space: the lock is what counts
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return None


def sync_copy(directory: int, name: str, copy: str) -> None:
    """Let `copy` be the file as it is now, and survive a power failure. Waits for the disk; raises OSError.

    After a power failure, a file that was renamed into its place and not synced may be empty (XFS). The two are one
    file until `name` is replaced.
    """
    new = f"{copy}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new, dir_fd=directory)
    os.link(name, new, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    fd = os.open(new, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(new, copy, src_dir_fd=directory, dst_dir_fd=directory)
    with contextlib.suppress(FileNotFoundError):  # rename(2) does nothing where both are one file already
        os.unlink(new, dir_fd=directory)
    os.fsync(directory)


def read_file(path: Path, most_bytes: int, *, owners: frozenset[int] | None = None) -> bytes:
    """Read a regular file, not through a symbolic link; raises OSError, or ValueError for what is no such file.

    Where `owners` are given, a file of another user's is none.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a FIFO is not waited for
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no regular file")
        if owners is not None and found.st_uid not in owners:
            raise ValueError(f"it belongs to user {found.st_uid}")
        if found.st_size > most_bytes:
            raise ValueError(f"it is larger than {most_bytes} bytes")
        with os.fdopen(fd, "rb", closefd=False) as file:
            content = file.read(most_bytes + 1)
    finally:
        os.close(fd)
    if len(content) > most_bytes:
        raise ValueError(f"it is larger than {most_bytes} bytes")
    return content
