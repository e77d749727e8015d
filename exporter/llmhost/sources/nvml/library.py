"""Which NVML library a process has loaded, and which one the next process will load.

A driver package installs libnvidia-ml.so.VERSION and points the symlink libnvidia-ml.so.1 at it. An upgrade under a
running system changes the symlink while processes keep the old file and the kernel keeps the old module: what runs goes
on, and what starts next fails with LIB_RM_VERSION_MISMATCH.
"""

import re
from pathlib import Path

_LIBRARY = re.compile(r"/\S.*/libnvidia-ml\.so[.\d]*")
_VERSIONED = re.compile(r"libnvidia-ml\.so\.(\d+(?:\.\d+)+)")
_LINK = "libnvidia-ml.so.1"


def parse_mapped_library(maps: str) -> Path | None:
    """Find the library in the text of /proc/PID/maps (proc_pid_maps(5); a replaced file is marked "(deleted)")."""
    for line in maps.splitlines():
        found = _LIBRARY.search(line)
        if found:
            return Path(found.group())
    return None


def version_of(library: Path) -> str | None:
    """Take the version from the file's name; None for a plain libnvidia-ml.so.1, as WSL has it."""
    found = _VERSIONED.fullmatch(library.name)
    return found.group(1) if found else None


def read_library_versions(maps: Path = Path("/proc/self/maps")) -> tuple[str | None, str | None]:
    """Return the version of the library that is mapped, and of the one beside it that the next process will load."""
    try:
        mapped = parse_mapped_library(maps.read_text(errors="surrogateescape"))
    except OSError:
        return None, None
    if mapped is None:
        return None, None
    try:
        on_disk = (mapped.parent / _LINK).resolve(strict=True)
    except OSError:
        return version_of(mapped), None
    return version_of(mapped), version_of(on_disk)
