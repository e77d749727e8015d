"""Source of the host's shared memory: every file of the tmpfs, and its holders.

Nothing is opened in there but directories, and nothing through multiprocessing.shared_memory: an attached segment is
registered with a resource tracker, which unlinks it once we end (python/cpython#82300).

Where --path.shm is no tmpfs, holders cannot be told apart, and where it is not the host's (sources/narrowed_view), it
tells nothing of the host: there is no reading at all. Other instances of tmpfs, a container's own /dev/shm say, have
another device number and are no part of it.
"""

import errno
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from llmhost.model.reading import Cause
from llmhost.model.segment import Segment, SegmentId, SegmentKind, SharedMemory
from llmhost.model.segment_names import NameRow, kind_of
from llmhost.sources.base import SourceError
from llmhost.sources.narrowed_view import require_host_shm, sees_host_pids
from llmhost.sources.shm.files import File, FileListing, list_files, mount_points_below
from llmhost.sources.shm.holders import Claim, Holders
from llmhost.sources.shm.process import Inspector

MOST_FILES = 100_000
# Kept in memory: one superblock each, so that stat(2) and /proc/PID/maps have the same device and inode. Of btrfs or
# overlayfs they differ, and every file there would seem unmapped.
_MEMORY_FILESYSTEMS = frozenset({b"tmpfs", b"ramfs", b"devtmpfs"})
_SHARE_FOR_SCANNING = 0.9  # of the time there is; the rest is for what was found


class ShmSource:
    """Source of shared memory. `names` go before the table of names; `monotonic` is the clock of deadlines.

    Outside the host's PID namespace, unless it is trusted, there are processes that we do not see: then no file is
    claimed to be held by nobody.
    """

    def __init__(
        self,
        *,
        shm: Path,
        procfs: Path,
        names: tuple[NameRow, ...] = (),
        grace_seconds: float,
        trust_pid_namespace: bool,
        most_files: int = MOST_FILES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shm = str(shm)
        self._procfs = procfs
        self._configured = (names, grace_seconds)
        self._trust_pid_namespace = trust_pid_namespace
        self._most_files = most_files
        self._monotonic = monotonic
        self._inspector = Inspector(procfs)
        self._holders: Holders | None = None
        self._last_files: Mapping[int, File] = {}  # by inode, as last listed
        self._last_segments: dict[int, Segment] = {}  # the same, as last reported
        self._names = names
        self._doing = "idle"

    def configure(self, *, names: tuple[NameRow, ...], grace_seconds: float) -> None:
        """Take other names and another grace time from the next read on; may be called from another thread."""
        self._configured = (names, grace_seconds)

    def trust_pid_namespace(self, *, trusted: bool) -> None:
        """Trust ours, or not, from the next read on; called from another thread."""
        self._trust_pid_namespace = trusted

    def read(self, deadline: float) -> SharedMemory:
        """List all files and scan for their holders.

        Raises SourceError: NO_SHM where there is no such tmpfs, or it is not the host's, NO_PERMISSION where it may not
        be listed, NO_PROCFS,
        TIMEOUT when the deadline comes before the files are listed; past that, holders that were not inspected are
        unknown.
        """
        try:
            return self._read(deadline)
        finally:
            self._doing = "idle"

    def doing(self) -> str:
        holders = self._holders
        pid = holders.inspecting if holders is not None else None
        return self._doing if pid is None else f"looking at what process {pid} holds"

    def close(self) -> None:
        """Nothing is held open between reads."""

    def _read(self, deadline: float) -> SharedMemory:
        began = self._monotonic()
        names, grace_seconds = self._configured
        if names != self._names:
            self._names, self._last_segments = names, {}
        size = self._size()
        listing = self._list(deadline)
        holders = self._holders_of(listing.device)
        enough = began + _SHARE_FOR_SCANNING * (deadline - began)
        self._doing = f"listing {self._procfs}"
        try:
            claims = holders.scan(
                listing.files,
                now=began,
                grace_seconds=grace_seconds,
                overdue=lambda: self._monotonic() > enough,
            )
        except OSError as error:
            raise SourceError(Cause.NO_PROCFS, f"{self._procfs}: {error.strerror}") from error
        self._last_segments = {
            inode: self._segment(listing.device, file, claims[inode]) for inode, file in listing.files.items()
        }
        self._last_files = listing.files
        return SharedMemory(
            read_at=began,
            # mounted with size=0 or nr_inodes=0, a tmpfs says 0 of everything (tmpfs(5))
            size_bytes=size.f_blocks * size.f_frsize or None,
            used_bytes=(size.f_blocks - size.f_bfree) * size.f_frsize if size.f_blocks else None,
            inodes=size.f_files or None,
            inodes_used=size.f_files - size.f_ffree if size.f_files else None,
            segments=tuple(self._last_segments.values()),
            unlisted=listing.unlisted,
            uninspected=holders.uninspected,
        )

    def _size(self) -> os.statvfs_result:
        self._doing = f"asking for the size of {self._shm}"
        try:
            return os.statvfs(self._shm)
        except OSError as error:
            raise self._unlistable(error) from error

    def _list(self, deadline: float) -> FileListing:
        self._doing = f"listing {self._shm}"
        try:
            return list_files(
                self._shm,
                self._most_files,
                lambda: self._monotonic() > deadline,
                self._last_files,
                lambda path: kind_of(path, self._names)[0] is not SegmentKind.OTHER,
                mount_points=self._mount_points(),
            )
        except TimeoutError as error:
            raise SourceError(Cause.TIMEOUT, f"{self._shm}: {error}") from error
        except OSError as error:
            raise self._unlistable(error) from error

    def _mount_points(self) -> frozenset[str]:
        try:
            return mount_points_below(self._shm, (self._procfs / "self/mountinfo").read_bytes())
        except OSError:  # a reading that depends on it fails by itself
            return frozenset()

    def _unlistable(self, error: OSError) -> SourceError:
        detail = f"{self._shm}: {error.strerror}"
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return SourceError(Cause.NO_SHM, detail)
        return SourceError(Cause.NO_PERMISSION if isinstance(error, PermissionError) else Cause.UNKNOWN, detail)

    def _holders_of(self, device: int) -> Holders:
        if self._holders is None or self._holders.device != device:
            self._check_filesystem(device)
            self._holders = Holders(self._inspector, device, self._unseen)
            self._last_segments = {}
        return self._holders

    def _check_filesystem(self, device: int) -> None:
        self._doing = f"asking which filesystem {self._shm} is"
        path = self._procfs / "self/mountinfo"
        try:
            found = filesystem_of(path.read_bytes(), f"{os.major(device)}:{os.minor(device)}")
        except OSError as error:
            raise SourceError(Cause.NO_PROCFS, f"{path}: {error.strerror}") from error
        if found not in _MEMORY_FILESYSTEMS:
            kind = "no mount that we see" if found is None else f"of type {found.decode(errors='replace')}"
            raise SourceError(Cause.NO_SHM, f"{self._shm} is no tmpfs: its filesystem is {kind}")
        require_host_shm(str(self._procfs), self._shm, device, trusts_pids=self._trust_pid_namespace)

    def _unseen(self, pids: Collection[int]) -> int:
        """Count at least one process where there must be some that we do not see."""
        if 1 not in pids:  # every PID namespace has its pid 1; hidepid hides it
            return 1
        return int(not self._trust_pid_namespace and not sees_host_pids(str(self._procfs)))

    def _segment(self, device: int, file: File, claim: Claim) -> Segment:
        before = self._last_segments.get(file.inode)
        if before is not None and self._last_files[file.inode] is file:
            if before.holders == claim.holders and before.inspected_at == claim.inspected_at:
                return before
            identity, kind, creator_pid = before.id, before.kind, before.creator_pid
        else:
            identity = SegmentId(device, file.inode)
            kind, creator_pid = kind_of(file.path, self._names)
        return Segment(
            id=identity,
            path=file.path,
            kind=kind,
            creator_pid=creator_pid,
            size_bytes=file.size_bytes,
            allocated_bytes=file.allocated_bytes,
            changed_at=file.changed_ns / 1e9,
            uid=file.uid,
            holders=claim.holders,
            inspected_at=claim.inspected_at,
        )


def filesystem_of(mountinfo: bytes, device: str) -> bytes | None:
    """Find the type of the filesystem with a device "MAJOR:MINOR" in a /proc/PID/mountinfo (proc(5))."""
    wanted = device.encode()
    for line in mountinfo.splitlines():
        fields = line.split(b" ")
        if len(fields) > 2 and fields[2] == wanted and b"-" in fields:  # noqa: PLR2004 - the third field
            return fields[fields.index(b"-") + 1]
    return None
