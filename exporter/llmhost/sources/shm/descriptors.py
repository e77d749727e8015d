"""The files of one device that a process has open: /proc/PID/fd (proc(5)), by device and inode.

Descriptors are read with statx(2) and AT_STATX_DONT_SYNC, for device and inode alone: stat(2) waits
for the server of a file on a dead network mount, and is refused for another user's FUSE mount.
"""

import errno
import os
import struct

try:
    import ctypes
except (ImportError, MemoryError):  # a Python without it; a libffi that MemoryDenyWriteExecute= stops
    _statx = None
else:
    _statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)  # glibc 2.28, musl 1.2.5

_AT_NO_AUTOMOUNT, _AT_STATX_DONT_SYNC = 0x0800, 0x4000  # include/uapi/linux/fcntl.h
_STATX_BYTES = 256  # struct statx: stx_ino at 32, stx_dev_major and stx_dev_minor at 136
_INODE_AT, _DEVICE_AT = 32, 136
_REFUSED = frozenset({errno.EACCES, errno.EPERM})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def open_inodes(directory: int, device: int) -> set[int]:
    """List the inodes of a device that the process of an open /proc/PID has open. Raises OSError."""
    descriptors = os.open("fd", _DIRECTORY, dir_fd=directory)
    try:
        names = os.listdir(descriptors)  # noqa: PTH208 - of an open directory
        return _by_statx(descriptors, names, device) if _statx is not None else _by_stat(descriptors, names, device)
    finally:
        os.close(descriptors)


def _by_statx(descriptors: int, names: list[str], device: int) -> set[int]:
    assert _statx is not None  # noqa: S101 - for the type checker
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    wanted = struct.pack("=II", os.major(device), os.minor(device))
    found = set()
    for name in names:
        flags = _AT_STATX_DONT_SYNC | _AT_NO_AUTOMOUNT
        if _statx(descriptors, name.encode(), flags, 0, answer) != 0:
            number = ctypes.get_errno()
            if number in _REFUSED:
                raise OSError(number, os.strerror(number), f"fd/{name}")
            continue  # closed meanwhile, or a filesystem that fails: no file in memory does
        if answer.raw[_DEVICE_AT : _DEVICE_AT + 8] == wanted:
            found.add(struct.unpack_from("=Q", answer, _INODE_AT)[0])
    return found


def _by_stat(descriptors: int, names: list[str], device: int) -> set[int]:
    """Do the same with stat(2), of what has a path at all: pipes, sockets and the like have none."""
    found = set()
    for name in names:
        try:
            if os.readlink(name, dir_fd=descriptors).startswith("/"):
                file_stat = os.stat(name, dir_fd=descriptors)
                if file_stat.st_dev == device:
                    found.add(file_stat.st_ino)
        except OSError as error:
            if error.errno in _REFUSED:
                raise
    return found
