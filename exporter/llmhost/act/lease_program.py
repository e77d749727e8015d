"""The child of act/removing: removes files of a tmpfs, as asked line by line. It imports the standard library alone.

A write lease (fcntl(2), F_SETLEASE) is granted where no process at all has the file open or mapped, in whatever
namespace and of whatever user; while it is held, an opener of the file waits, at most /proc/sys/fs/lease-break-time
seconds. Leases belong to a process, and the longest wait of an opener is that for this process to go on, or to end:
hence one of its own, with one thread, that its parent ends when it does not answer.

A file is first renamed, so that no opener finds it by its name any more. An opener that had looked the name up just
before is given a moment to arrive: the kernel reports it by breaking our lease, and the file gets its name back. So
does another file that was given the name just before we renamed it: the lease keeps nobody from unlinking ours.
"""

import errno
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
_ANOTHER = "another file has its name by now"
_NO_LEASES = "file leases are off (sysctl fs.leases-enable) or unknown to this kernel: who has it open cannot be told"
_NOT_A_FILE = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENXIO})  # a symlink, where a folder was, a socket


class RemovalRequest(NamedTuple):
    path: str  # below the root
    hidden: str  # another name, beside it
    device: int
    inode: int
    changed_at: float  # ctime in seconds since the epoch
    settle_seconds: float


class Reply(NamedTuple):
    result: str  # a value of decide.cleanup.steps.Result
    detail: str


def remove(root: int, request: RemovalRequest) -> Reply:
    """Remove exactly this file, unless somebody has it, or comes for it. Errors are results, none is raised."""
    directory = None
    try:
        directory, name = directory_of(root, request.path)
        return _remove(directory, name, request)
    except FileNotFoundError:
        return Reply("gone", "it is gone already")
    except PermissionError:
        return Reply("denied", "we may not: it takes its owner, or root")
    except BlockingIOError:  # somebody has it open, or a lease on it
        return Reply("spared", "it is in use")
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            return Reply("spared", _ANOTHER)
        return Reply("failed", os.strerror(error.errno or 0))
    finally:
        if directory is not None:
            os.close(directory)


def directory_of(root: int, path: str) -> tuple[int, bytes]:
    """Open the directory that a file is in, through no symlink; gives it, for the caller to close, and the last name.

    Names are UTF-8 whatever the locale, as the paths of segments are. Raises OSError.
    """
    *folders, name = path.encode("utf-8", "surrogateescape").split(b"/")
    directory = os.dup(root)
    try:
        for folder in folders:
            below = os.open(folder, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
    except OSError:
        os.close(directory)
        raise
    return directory, name


def put_back(directory: int, name: bytes, hidden: str) -> None:
    """Give a hidden file its name again. Raises FileExistsError where another has it meanwhile: none is replaced."""
    try:
        os.link(hidden, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:  # each name of a tmpfs counts as an inode (nr_inodes), and then nobody can make a file either
        if _inode_at(directory, name) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(hidden, name, src_dir_fd=directory, dst_dir_fd=directory)
    else:
        os.unlink(hidden, dir_fd=directory)


def _remove(directory: int, name: bytes, request: RemovalRequest) -> Reply:
    file = os.open(name, _FILE, dir_fd=directory)
    try:
        if spared := _difference(file, request):
            return spared
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return Reply("failed", _NO_LEASES)
        if spared := _difference(file, request):  # somebody came and went, or removed it
            return spared
        os.rename(name, request.hidden, src_dir_fd=directory, dst_dir_fd=directory)
        if _inode_at(directory, request.hidden) != (request.device, request.inode):
            return _shown_again(directory, name, request.hidden, _ANOTHER)
        if _is_opened(file, request.settle_seconds):
            return _shown_again(directory, name, request.hidden, "somebody is about to use it")
        os.unlink(request.hidden, dir_fd=directory)
        return Reply("done", "")
    finally:
        os.close(file)  # and the lease with it


def _difference(file: int, request: RemovalRequest) -> Reply | None:
    """Tell how this differs from the file that was looked at."""
    file_stat = os.fstat(file)
    if (file_stat.st_dev, file_stat.st_ino) != (request.device, request.inode) or not stat.S_ISREG(file_stat.st_mode):
        return Reply("spared", _ANOTHER)
    if file_stat.st_nlink == 0:
        return Reply("gone", "it is gone already")
    if file_stat.st_nlink != 1:
        return Reply("spared", "it has a second name")
    if file_stat.st_ctime_ns / 1e9 != request.changed_at:
        return Reply("spared", "it has changed since it was looked at")
    return None


def _inode_at(directory: int, name: bytes | str) -> tuple[int, int] | None:
    """Give device and inode of what has a name; None where nothing has."""
    try:
        file_stat = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return file_stat.st_dev, file_stat.st_ino


def _is_opened(file: int, seconds: float) -> bool:
    """Tell if somebody opens the file within that time, having looked its name up before it was hidden."""
    until = time.monotonic() + seconds
    while fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_WRLCK:
        remaining = until - time.monotonic()
        if remaining <= 0:
            return False
        time.sleep(min(remaining, 0.001))
    return True


def _shown_again(directory: int, name: bytes, hidden: str, why: str) -> Reply:
    try:
        put_back(directory, name, hidden)
    except FileExistsError:
        return Reply("spared", f"{why}, and another was made of its name meanwhile: it is called {hidden} now")
    return Reply("spared", why)


def main(root: int) -> None:
    """Report the start, and answer until the questions end.

    Whatever ends our parent, a step that is under way is done whole: to die with it would leave a file hidden.
    """
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # tells of an opener, and would end us; F_GETLEASE tells as well
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    _answer("here")
    for line in sys.stdin:
        _answer(remove(root, RemovalRequest(**json.loads(line)))._asdict())


def _answer(what: object) -> None:
    try:
        os.write(1, json.dumps(what).encode() + b"\n")  # whole: it is shorter than PIPE_BUF (pipe(7))
    except BrokenPipeError:  # our parent has ended
        sys.exit()


if __name__ == "__main__":
    main(int(sys.argv[1]))
