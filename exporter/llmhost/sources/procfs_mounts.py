"""Mounts, by a /proc/PID/mountinfo (proc_pid_mountinfo(5)). Pure."""

import os
import re

from llmhost.sources.procfs_files import text_of


def mount_points_below(root: str, mountinfo: bytes) -> frozenset[str]:
    """Find what is mounted below a directory; gives paths below the directory."""
    before = os.fsencode(os.path.realpath(root)).rstrip(b"/") + b"/"
    points = (_unescaped(line.split(b" ", 5)[4]) for line in mountinfo.splitlines())
    return frozenset(text_of(point.removeprefix(before)) for point in points if point.startswith(before))


def filesystem_of(mountinfo: bytes, device: str) -> bytes | None:
    """Find the type of the filesystem with a device "MAJOR:MINOR"."""
    wanted = device.encode()
    for line in mountinfo.splitlines():
        fields = line.split(b" ")
        if len(fields) > 2 and fields[2] == wanted and b"-" in fields:  # noqa: PLR2004 - the third field
            return fields[fields.index(b"-") + 1]
    return None


def device_at(mountinfo: bytes, path: str) -> bytes | None:
    """Find the device, "MAJOR:MINOR", of the filesystem that a path without links is on; None where none is mounted."""
    below = os.fsencode(path).rstrip(b"/") + b"/"
    longest, found = b"", None
    for line in mountinfo.splitlines():
        fields = line.split(b" ", 5)
        if len(fields) < 6:  # noqa: PLR2004 - up to the mount point, and more
            continue
        point = _unescaped(fields[4]).rstrip(b"/") + b"/"
        if below.startswith(point) and len(point) >= len(longest):  # a later mount at the same place lies on top
            longest, found = point, fields[2]
    return found


def _unescaped(field: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), field) if b"\\" in field else field
