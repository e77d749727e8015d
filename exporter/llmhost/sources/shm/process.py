"""The files of a filesystem that one process has open or mapped."""

import os
from dataclasses import dataclass
from pathlib import Path

from llmhost.model.ids import ProcessId
from llmhost.sources.procfs_files import ENDED_ERRNOS, KERNEL_THREAD_FLAG, parse_stat, small_file
from llmhost.sources.shm.descriptors import open_inodes
from llmhost.sources.shm.maps import NoQueryError, mapped_by_query, mapped_by_text

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class HeldInodes:
    """Inodes that a process holds: some of them by a quick inspection, all by a thorough one."""

    process: ProcessId
    inodes: frozenset[int]


class Inspector:
    """Inspects processes, through one open directory each: a pid that is reused meanwhile is not mixed up.

    The quick inspection takes shared mappings only, where the kernel can be asked for them: 30 µs, or 300 µs where
    there are 5,000 lines of maps, which take 2.5 ms to read. The thorough one takes everything, descriptors first: a
    file is opened, mapped and closed, in this order, and what was opened after the descriptors were read is still
    mapped, or open, when the maps are.
    """

    def __init__(self, procfs: Path, *, query: bool = True) -> None:
        self._procfs = str(procfs)
        self._query = query

    def pids(self) -> set[int]:
        """List all processes. Raises OSError."""
        return {int(name) for name in os.listdir(self._procfs) if name.isdecimal()}  # noqa: PTH208 - bare names

    def inspect(self, pid: int, device: int, *, thorough: bool) -> HeldInodes | None:
        """Inspect one process; None where there is none, or it is a kernel thread or dead and holds nothing.

        Raises OSError where it cannot be inspected.
        """
        try:
            directory = os.open(f"{self._procfs}/{pid}", _DIRECTORY)
            try:
                stat = parse_stat(small_file("stat", directory))
                if stat.flags & KERNEL_THREAD_FLAG:
                    return None
                if stat.state in "ZX":
                    inodes = self._of_threads(pid, directory, device)
                else:
                    inodes = self._inodes(directory, device, thorough=thorough)
            finally:
                os.close(directory)
        except OSError as error:
            if error.errno in ENDED_ERRNOS:
                return None
            raise
        return HeldInodes(ProcessId(pid, stat.start_ticks), frozenset(inodes)) if inodes is not None else None

    def _inodes(self, directory: int, device: int, *, thorough: bool) -> set[int]:
        inodes = open_inodes(directory, device) if thorough else set()
        maps = os.open("maps", os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
        try:
            if self._query:
                try:
                    return inodes | mapped_by_query(maps, device, shared_only=not thorough)
                except NoQueryError:
                    self._query = False
            return inodes | mapped_by_text(maps, device)
        finally:
            os.close(maps)

    def _of_threads(self, pid: int, directory: int, device: int) -> set[int] | None:
        """Inspect a process whose first thread has ended: another may live on, with all that the process holds."""
        for thread in os.listdir(f"{self._procfs}/{pid}/task"):  # noqa: PTH208 - bare names
            if int(thread) == pid:
                continue
            try:
                below = os.open(f"task/{thread}", _DIRECTORY, dir_fd=directory)
                try:
                    if parse_stat(small_file("stat", below)).state not in "ZX":
                        return self._inodes(below, device, thorough=True)
                finally:
                    os.close(below)
            except OSError as error:
                if error.errno not in ENDED_ERRNOS:
                    raise
        return None
