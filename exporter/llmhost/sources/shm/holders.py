"""The holders of each file, kept from scan to scan.

A scan is one call of `Holders.scan`. Its claims, and why they hold:

- *Held by these*: each of them was seen to hold the file at this scan. It takes an inspection of the processes that
  held anything at the last scan, not of all processes. One that was there all along and took hold only now, of a file
  that others hold too, may be missing until the next full scan.
- *Held by nobody, as of T*: a full scan, which began at T and inspected every process there was, did not find it; nor
  did any scan since. The file was there, with the ctime it has now, when the full scan began; no process refused to be
  inspected; none that was started meanwhile was left out, as the list of processes is read again until it has nothing
  new. A file that has another ctime (it was written to or renamed, or it is a new one with a recycled inode number) was
  in somebody's hands since, and nothing is claimed.
- *Unknown* in all other cases.

A full scan is made when a file has no holder that is known, and then at most once in a grace time, counted from the
scan at which the last one ended: so, to within what a scan takes, each process was inspected a grace time apart. Where
the deadline comes first it goes on at the next scan, and what it has found is reported already. Between full scans
these are inspected each time, the quick way: the holders of the last scan, and processes that were first seen less than
two minutes ago (engines make their files while they load). Where a file is left over that nobody is known to hold, and
no full scan has found unheld, they are inspected thoroughly.

Limits. Descriptors on their way through a socket (SCM_RIGHTS), in an io_uring, or in a table that one thread has for
itself (unshare(CLONE_FILES)) are no process's in /proc; nor is what the kernel holds, a loop device say. A handover
from a process not yet inspected to one that was already can be missed by one scan, as by any; hence the grace time.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from llmhost.model.ids import ProcessId
from llmhost.sources.shm.files import File
from llmhost.sources.shm.process import HeldInodes, Inspector

RECENT_SECONDS: Final = 120.0
NO_HOLDERS: Final[frozenset[ProcessId]] = frozenset()
NOTHING: Final[frozenset[int]] = frozenset()
REFUSED: Final = (OSError, ValueError, IndexError)  # raised by an Inspector for a process that cannot be inspected


@dataclass(frozen=True, slots=True)
class Claim:
    holders: frozenset[ProcessId] | None  # None: unknown
    inspected_at: float


@dataclass(frozen=True, slots=True)
class _Unheld:
    changed_ns: int
    as_of: float  # when the full scan began that did not find it


@dataclass(slots=True, kw_only=True)
class _FullScan:
    """An inspection of all processes, maybe over several scans."""

    began: float
    files: Mapping[int, int]  # inode → ctime of what was there
    todo: list[int] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    found: set[int] = field(default_factory=set)  # held at any time since it began
    uninspected: int = 0


class Holders:
    """Holders of the files of one device. `unseen` counts processes that are not listed, given the pids that are."""

    def __init__(self, inspector: Inspector, device: int, unseen: Callable[[Collection[int]], int]) -> None:
        self.device: Final = device
        self.uninspected = 0  # at the last full scan
        self.full_scans = 0
        self.inspecting: int | None = None
        self._inspector = inspector
        self._unseen = unseen
        self._pids: set[int] | None = None
        self._recent: dict[int, float] = {}  # pid → when it was first seen
        self._held: dict[int, HeldInodes] = {}  # by pid, as of this scan
        self._due: dict[int, HeldInodes] = {}  # the same, of an earlier scan, when the deadline came before its turn
        self._thorough: set[int] = set()  # at this scan
        self._unheld: dict[int, _Unheld] = {}  # by inode
        self._full_scan: _FullScan | None = None
        self._scanned_at: float | None = None  # when the last full scan ended
        self._now = 0.0

    def scan(
        self, files: Mapping[int, File], *, now: float, grace_seconds: float, overdue: Callable[[], bool]
    ) -> Mapping[int, Claim]:
        """Scan once; return what can be claimed of each of these files, by inode. Raises OSError without a procfs."""
        self._now = now
        self._forget_changed(files)
        try:
            self._scan_likely(files, overdue)
            if not self._without_holder(files):
                self._full_scan = None
            elif self._full_scan is not None or self._scanned_at is None or now >= self._scanned_at + grace_seconds:
                self._continue_full_scan(self._full_scan or self._begin_full_scan(files), files, overdue)
        finally:
            self.inspecting = None
        return self._claims(files)

    def _forget_changed(self, files: Mapping[int, File]) -> None:
        self._unheld = {
            inode: unheld
            for inode, unheld in self._unheld.items()
            if (file := files.get(inode)) is not None and file.changed_ns == unheld.changed_ns
        }

    def _scan_likely(self, files: Mapping[int, File], overdue: Callable[[], bool]) -> None:
        """Inspect the likely holders: quickly, and thoroughly where a file is left without one."""
        pids = self._inspector.pids()
        if self._pids is not None:
            self._recent.update(dict.fromkeys(pids - self._pids, self._now))
        self._pids = pids
        until = self._now - RECENT_SECONDS
        self._recent = {pid: first for pid, first in self._recent.items() if first > until and pid in pids}
        before = self._due | self._held
        self._held, self._due, self._thorough = {}, dict(before), set()
        alive = []
        for pid in dict.fromkeys((*before, *self._recent)):
            if overdue():
                return
            held = self._inspect_or_none(pid, thorough=False)
            if pid in before and not files.keys().isdisjoint(before[pid].inodes - (held.inodes if held else NOTHING)):
                held = self._inspect_or_none(pid, thorough=True)
            self._due.pop(pid, None)
            if held is not None:
                alive.append(pid)
        if all(inode in self._unheld for inode in self._without_holder(files)):
            return
        for pid in alive:
            if overdue():
                return
            if pid not in self._thorough:
                self._inspect_or_none(pid, thorough=True)

    def _begin_full_scan(self, files: Mapping[int, File]) -> _FullScan:
        return _FullScan(
            began=self._now,
            files={inode: file.changed_ns for inode, file in files.items()},
            done=set(self._thorough),
            found={inode for held in self._held.values() for inode in held.inodes},
        )

    def _continue_full_scan(self, scan: _FullScan, files: Mapping[int, File], overdue: Callable[[], bool]) -> None:
        self._full_scan = scan
        while True:
            while scan.todo:
                if overdue():
                    return
                pid = scan.todo.pop()
                scan.done.add(pid)
                try:
                    self._inspect(pid, thorough=True)
                except REFUSED:
                    scan.uninspected += 1
            pids = self._inspector.pids()
            scan.todo = sorted(pids - scan.done, reverse=True)
            if not scan.todo:
                break
        self._full_scan = None
        self._scanned_at = self._now
        self.full_scans += 1
        self.uninspected = scan.uninspected + self._unseen(pids)
        if self.uninspected:
            self._unheld.clear()
            return
        for inode, changed_ns in scan.files.items():
            file = files.get(inode)
            if file is not None and file.changed_ns == changed_ns and inode not in scan.found:
                self._unheld[inode] = _Unheld(changed_ns, scan.began)

    def _inspect_or_none(self, pid: int, *, thorough: bool) -> HeldInodes | None:
        try:
            return self._inspect(pid, thorough=thorough)
        except REFUSED:  # the next full scan counts it
            return None

    def _inspect(self, pid: int, *, thorough: bool) -> HeldInodes | None:
        """Inspect a process and keep what is found; None when it has ended. Raises one of REFUSED."""
        self.inspecting = pid
        held = self._inspector.inspect(pid, self.device, thorough=thorough)
        if thorough:
            self._thorough.add(pid)
        if held is None:
            self._recent.pop(pid, None)
        if held is None or not held.inodes:
            self._held.pop(pid, None)
            return held
        self._held[pid] = held
        for inode in held.inodes:
            self._unheld.pop(inode, None)
        if self._full_scan is not None:
            self._full_scan.found |= held.inodes
        return held

    def _without_holder(self, files: Mapping[int, File]) -> list[int]:
        held_inodes = set().union(*(held.inodes for held in self._held.values()))
        return [inode for inode in files if inode not in held_inodes]

    def _claims(self, files: Mapping[int, File]) -> Mapping[int, Claim]:
        """Make few objects: there may be 100,000 files, and a handful of holders."""
        by_inode: dict[int, Claim] = {}
        shared: dict[tuple[Claim, ProcessId], Claim] = {}
        for held in self._held.values():
            alone = Claim(frozenset({held.process}), self._now)
            for inode in held.inodes:
                before = by_inode.get(inode)
                if before is None or before.holders is None:
                    by_inode[inode] = alone
                    continue
                both = shared.get((before, held.process))
                if both is None:
                    both = shared[before, held.process] = Claim(before.holders | {held.process}, self._now)
                by_inode[inode] = both
        unknown = Claim(None, self._now)
        unheld = {found.as_of: Claim(NO_HOLDERS, found.as_of) for found in self._unheld.values()}
        return {
            inode: by_inode.get(inode) or (unheld[self._unheld[inode].as_of] if inode in self._unheld else unknown)
            for inode in files
        }
