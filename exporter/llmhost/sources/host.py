"""The host itself: boot, clocks, memory."""

import os
import time
from pathlib import Path

import psutil

from llmhost.model.host import Host
from llmhost.model.reading import Cause
from llmhost.runtime.clock_pair import read_together
from llmhost.sources.base import SourceError


class HostSource:
    """Reads <procfs>/sys/kernel/random/boot_id, <procfs>/meminfo (by psutil) and this kernel's clocks."""

    def __init__(self, *, procfs: Path) -> None:
        self._procfs = procfs

    def read(self, deadline: float) -> Host:  # noqa: ARG002  # nothing in here can wait
        """Read once; raises SourceError(NO_PROCFS) where there is no meminfo."""
        total_bytes, available_bytes = self._memory()
        monotonic, boottime = read_together(time.monotonic, lambda: time.clock_gettime(time.CLOCK_BOOTTIME))
        return Host(
            boot_id=read_boot_id(self._procfs),
            ticks_per_second=os.sysconf("SC_CLK_TCK"),
            boottime_ahead_seconds=boottime - monotonic,
            memory_total_bytes=total_bytes,
            memory_available_bytes=available_bytes,
        )

    def doing(self) -> str:
        return f"reading {self._procfs}/meminfo"

    def close(self) -> None:
        """Nothing is held open."""

    def _memory(self) -> tuple[int, int]:
        """MemTotal and MemAvailable; psutil knows what to do on kernels and in containers that lack the latter."""
        before = psutil.PROCFS_PATH
        psutil.PROCFS_PATH = str(self._procfs)  # a global of the module is the only way to set it
        try:
            memory = psutil.virtual_memory()
        except (OSError, KeyError, ValueError, IndexError) as error:
            raise SourceError(Cause.NO_PROCFS, f"{self._procfs}/meminfo: {error}") from error
        finally:
            psutil.PROCFS_PATH = before
        return memory.total, memory.available


def read_free_bytes(mount: Path) -> int | None:
    """Space that is free on a file system; None where that cannot be read."""
    try:
        found = os.statvfs(mount)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def read_boot_id(procfs: Path) -> str:
    """Return "" in a procfs without sys/ (ProcSubset=pid): then runs before a boot cannot be told from later ones."""
    try:
        return (procfs / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
