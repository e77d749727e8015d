"""The lock of a clean-up: two at once would send a process a second SIGTERM, which cuts its own clean-up short.

Whoever can open a file can lock it (flock(2)), and for as long as they like. So only its owner can open this one, and
nobody else can name another in its place: root's is in the run directory, another user's in that user's own
($XDG_RUNTIME_DIR). Root does not wait for a user's clean-up, as that user could have it wait for ever.

Removals would not need it: under their leases, two that remove the same file spare it for each other.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llmhost.state.directory import StoreError, lock_or_holder
from llmhost.state.run_directory import make_directory, trusted_directory

NAME = "clean.lock"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class BusyError(Exception):
    """Another clean-up is at work. str() is one line, which names its pid."""


@contextmanager
def cleanup_lock(run_directory: Path) -> Iterator[None]:
    """Keep out other clean-ups. Waits for none: raises BusyError, or StoreError where there can be no lock."""
    lock = _opened(run_directory)
    try:
        holder = lock_or_holder(lock)
        if holder is not None:
            raise BusyError(f"another llmhost{holder} is cleaning up")
        yield
    finally:
        os.close(lock)


def _opened(run_directory: Path) -> int:
    folders = [run_directory]
    if os.geteuid():
        folders.append(Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}") / "llmhost")
    faults = []
    for folder in folders:
        try:
            return _opened_in(folder)
        except OSError as error:
            faults.append(f"{folder / NAME}: {error.strerror}")
    raise StoreError(f"no lock keeps other clean-ups out: {'; '.join(faults)}")


def _opened_in(folder: Path) -> int:
    make_directory(folder)
    with trusted_directory(folder) as directory:
        lock = os.open(NAME, _FLAGS, 0o600, dir_fd=directory)
    found = os.fstat(lock)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        os.close(lock)
        raise PermissionError(1, "others can open it, or it is none of ours")
    return lock
