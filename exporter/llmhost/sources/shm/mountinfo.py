"""What kind of filesystem has a device number."""

# Kept in memory: one superblock each, so that stat(2) and /proc/PID/maps tell the same device and inode. Of btrfs or
# overlayfs they differ, and every file there would look as if nobody had it mapped.
MEMORY_FILESYSTEMS = frozenset({b"tmpfs", b"ramfs", b"devtmpfs"})


def filesystem_of(mountinfo: bytes, device: str) -> bytes | None:
    """Find the type of the filesystem with a device "MAJOR:MINOR" in a /proc/PID/mountinfo (proc(5))."""
    wanted = device.encode()
    for line in mountinfo.splitlines():
        fields = line.split(b" ")
        if len(fields) > 2 and fields[2] == wanted and b"-" in fields:  # noqa: PLR2004 - the third field
            return fields[fields.index(b"-") + 1]
    return None
