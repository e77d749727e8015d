"""The child of act/removing: removes files of a tmpfs, as asked line by line. It imports the standard library alone.

A write lease (fcntl(2), F_SETLEASE) is granted where nobody at all has the file open or mapped, in whatever namespace
and of whatever user; while it is held, whoever opens the file waits, at most /proc/sys/fs/lease-break-time seconds.
Leases belong to a process, and the longest wait of an opener is that for this process to go on, or to end: hence one
of its own, with one thread, that its parent ends when it does not answer.

A file is first renamed, so that nobody comes by its name any more. An opener who had looked the name up just before
is given a moment to arrive: the kernel tells of it in that our lease is being broken, and the file gets its name back.
"""

import fcntl
import json
import os
import signal
import stat
import sys
import time
from typing import NamedTuple

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Asked(NamedTuple):
    path: str  # below the root
    hidden: str  # another name, beside it
    device: int
    inode: int
    changed_at: float  # ctime in seconds since the epoch
    settle_seconds: float


class Told(NamedTuple):
    result: str  # a value of decide.cleanup_plan.Result
    detail: str


def remove(root: int, asked: Asked) -> Told:
    """Remove exactly this file, unless somebody has it, or comes for it. Errors are told, none is raised."""
    *folders, name = asked.path.split("/")
    directory = os.dup(root)
    try:
        for folder in folders:
            below = os.open(folder, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
        return _remove(directory, name, asked)
    except FileNotFoundError:
        return Told("gone", "it is gone already")
    except PermissionError:
        return Told("denied", "we may not: it takes its owner, or root")
    except BlockingIOError:  # somebody else's lease
        return Told("spared", "it is in use")
    except OSError as error:
        return Told("spared", f"it could not be looked at: {os.strerror(error.errno or 0)}")
    finally:
        os.close(directory)


def _remove(directory: int, name: str, asked: Asked) -> Told:
    file = os.open(name, _FILE, dir_fd=directory)
    try:
        seen = os.fstat(file)
        if (seen.st_dev, seen.st_ino) != (asked.device, asked.inode) or not stat.S_ISREG(seen.st_mode):
            return Told("spared", "another file has its name by now")
        if seen.st_ctime_ns / 1e9 != asked.changed_at:
            return Told("spared", "it has changed since it was looked at")
        if seen.st_nlink != 1:
            return Told("spared", "it has a second name")
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except BlockingIOError:
            return Told("spared", "it is in use")
        os.rename(name, asked.hidden, src_dir_fd=directory, dst_dir_fd=directory)
        if _is_wanted(file, asked.settle_seconds):
            return _put_back(directory, name, asked.hidden)
        os.unlink(asked.hidden, dir_fd=directory)
        return Told("done", "")
    finally:
        os.close(file)  # and the lease with it


def _is_wanted(file: int, seconds: float) -> bool:
    """Whether somebody opens the file within that time, who looked its name up before it was gone."""
    until = time.monotonic() + seconds
    while fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_WRLCK:
        left = until - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, 0.001))
    return True


def _put_back(directory: int, name: str, hidden: str) -> Told:
    """Give the file its name again: by link(2), which replaces nothing."""
    try:
        os.link(hidden, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        os.unlink(hidden, dir_fd=directory)
        return Told("done", "somebody was about to open it, and made another of its name meanwhile")
    os.unlink(hidden, dir_fd=directory)
    return Told("spared", "somebody is about to use it")


def main(root: int) -> None:
    """Answer until nobody asks any more. Whatever ends our parent, a step that is under way is done whole."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # tells of an opener, and would end us; F_GETLEASE tells as well
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    for line in sys.stdin:
        told = remove(root, Asked(**json.loads(line)))
        sys.stdout.write(json.dumps(told._asdict()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
