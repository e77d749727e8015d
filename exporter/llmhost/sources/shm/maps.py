"""The files of one device that a process has mapped: /proc/PID/maps, asked (Linux 6.11) or read as text.

Both give the same, of shared and private mappings, read-only or not, of deleted files and of files that other mount
namespaces call otherwise: device and inode are compared, never a name.
"""

import errno
import fcntl
import os
import re
import struct
from array import array

_PIECE_BYTES = 1 << 16
# include/uapi/linux/fs.h: PROCMAP_QUERY is _IOWR('f', 17, struct procmap_query) of 104 bytes. As thirteen 64-bit words:
# 0 size, 1 flags, 2 address asked for, 3 start, 4 end, 5 permissions, 6 page size, 7 offset, 8 inode, 9 device.
_QUERY_BYTES = 104
_PROCMAP_QUERY = 3 << 30 | _QUERY_BYTES << 16 | ord("f") << 8 | 17
_SHARED, _COVERING_OR_NEXT, _FILE_BACKED = 0x08, 0x10, 0x20
_FLAGS, _ADDRESS, _END, _INODE, _DEVICE = 1, 2, 4, 8, 9


class NoQueryError(Exception):
    """This kernel cannot be asked; read the text."""


def mapped_by_query(descriptor: int, device: int, *, shared_only: bool) -> set[int]:
    """Ask an open /proc/PID/maps for the inodes of a device; `shared_only` leaves out private mappings, and is cheap.

    Raises NoQueryError; the process having ended is no error, and nothing mapped.
    """
    query = array("Q", bytes(_QUERY_BYTES))
    query[0] = _QUERY_BYTES
    query[_FLAGS] = _COVERING_OR_NEXT | _FILE_BACKED | (_SHARED if shared_only else 0)
    wanted = struct.unpack("=Q", struct.pack("=II", os.major(device), os.minor(device)))[0]
    found = set()
    try:
        while True:
            fcntl.ioctl(descriptor, _PROCMAP_QUERY, query, True)
            if query[_DEVICE] == wanted:
                found.add(query[_INODE])
            query[_ADDRESS] = query[_END]
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ESRCH}:  # no more mappings; no more memory to map
            raise NoQueryError from error
    return found


def mapped_by_text(descriptor: int, device: int) -> set[int]:
    """Read the same from the text of an open /proc/PID/maps. Raises OSError."""
    pieces = []
    while piece := os.read(descriptor, _PIECE_BYTES):  # a short read is not the end: each gives a page or so
        pieces.append(piece)
    return parse_maps(b"".join(pieces), device)


def parse_maps(maps: bytes, device: int) -> set[int]:
    """Find the inodes of a device in a /proc/PID/maps (proc(5)); a newline in a path is escaped there."""
    field = b"%02x:%02x" % (os.major(device), os.minor(device))
    if b" " + field + b" " not in maps:  # most processes map nothing of it
        return set()
    lines = re.findall(rb"^[0-9a-f]+-[0-9a-f]+ [-rwxsp]{4} [0-9a-f]+ " + field + rb" ([0-9]+)", maps, re.MULTILINE)
    return {int(inode) for inode in lines}
