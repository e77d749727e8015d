"""The files of a tmpfs: names and sizes, without opening one."""

import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from llmhost.sources.procfs_files import text_of

_MOST_DEPTH = 32  # of directories in directories; one descriptor is open for each
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_VANISHED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})  # ELOOP: it is a symlink by now
_MOST_DIRECTORIES = 10_000
_BETWEEN_CHECKS = 256


class File(NamedTuple):
    """One inode, by the first of its names."""

    path: str  # below the root
    inode: int
    size_bytes: int
    allocated_bytes: int
    changed_ns: int  # ctime
    uid: int


_NONE: Final[Mapping[int, File]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileListing:
    device: int
    files: dict[int, File]  # by inode, in the order of their paths
    unlisted: int  # files beyond the bound; directories, and files in them, that may not be listed


def list_files(
    root: str,
    most: int,
    overdue: Callable[[], bool],
    before: Mapping[int, File] = _NONE,
    is_known: Callable[[str], bool] = lambda _path: False,
    *,
    mount_points: Collection[str] = (),
) -> FileListing:
    """List the regular files below `root` that are of its own filesystem; no symlink below it is followed.

    The first `most` files are listed, and of the others `most` more whose names are known: a flood of any files comes
    first in the listing, being the newest, and must not hide what was there before. `before` is what was listed the
    last time: what is the same is given again, which spares a new object for each.

    What is mounted at one of the `mount_points`, which are paths below the root, is not touched: any user may mount a
    FUSE file system that never answers (fusermount(1)).

    Raises OSError when the root cannot be listed, TimeoutError when overdue.
    """
    descriptor = os.open(root, _DIRECTORY)
    try:
        walk = _Walk(os.fstat(descriptor).st_dev, most, overdue, is_known, mount_points)
        walk.into(descriptor, "", 0)
    finally:
        os.close(descriptor)
    files: dict[int, File] = {}
    for file in sorted(walk.files):
        known = before.get(file.inode)
        files.setdefault(
            file.inode, known if known is not None and known == file else file
        )  # a second name of an inode is no second file
    return FileListing(device=walk.device, files=files, unlisted=walk.unlisted)


class _Walk:
    def __init__(
        self,
        device: int,
        most: int,
        overdue: Callable[[], bool],
        is_known: Callable[[str], bool],
        mount_points: Collection[str],
    ) -> None:
        self.device = device
        self.files: list[File] = []
        self.unlisted = 0
        self._remaining, self._known_remaining = most, most
        self._directories_remaining = _MOST_DIRECTORIES
        self._is_known = is_known
        self._overdue = overdue
        self._mount_points = mount_points
        self._entries = 0

    def into(self, descriptor: int, prefix: str, depth: int) -> None:
        """Take in one open directory and, through it, those below."""
        directories = []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                self._check_time()
                if self._mount_points and prefix + _text(entry.name) in self._mount_points:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    self._take(entry, prefix)
        for name in directories:
            self._check_time()
            self._directories_remaining -= 1
            if self._directories_remaining < 0:
                self.unlisted += 1
                continue
            try:
                below = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError as error:
                self.unlisted += error.errno not in _VANISHED
                continue
            try:
                if os.fstat(below).st_dev != self.device:  # something is mounted there
                    continue
                if depth < _MOST_DEPTH:
                    self.into(below, f"{prefix}{_text(name)}/", depth + 1)
                else:
                    self.unlisted += 1
            finally:
                os.close(below)

    def _check_time(self) -> None:
        self._entries += 1
        if self._entries % _BETWEEN_CHECKS == 0 and self._overdue():
            raise TimeoutError(f"{len(self.files)} files listed")

    def _take(self, entry: "os.DirEntry[str]", prefix: str) -> None:
        if not self._remaining and not (self._known_remaining and self._is_known(prefix + _text(entry.name))):
            self.unlisted += 1
            return
        try:
            file_stat = entry.stat(follow_symlinks=False)
        except OSError as error:
            self.unlisted += error.errno not in _VANISHED
            return
        if file_stat.st_dev == self.device and stat.S_ISREG(file_stat.st_mode):
            path = prefix + _text(entry.name)
            blocks = file_stat.st_blocks * 512  # of 512 bytes, whatever the filesystem's are (stat(2))
            if self._remaining:
                self._remaining -= 1
            else:
                self._known_remaining -= 1
            self.files.append(
                File(path, file_stat.st_ino, file_stat.st_size, blocks, file_stat.st_ctime_ns, file_stat.st_uid)
            )


def mount_points_below(root: str, mountinfo: bytes) -> frozenset[str]:
    """Find what is mounted below a directory, by a /proc/PID/mountinfo (proc(5)); gives paths below the directory."""
    before = os.fsencode(os.path.realpath(root)).rstrip(b"/") + b"/"
    points = (_unescaped(line.split(b" ", 5)[4]) for line in mountinfo.splitlines())
    return frozenset(text_of(point.removeprefix(before)) for point in points if point.startswith(before))


def _unescaped(field: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), field) if b"\\" in field else field


def _text(name: str) -> str:
    return name if name.isascii() else text_of(os.fsencode(name))
