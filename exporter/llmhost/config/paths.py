"""Where things are on the host, unless an option says otherwise."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Roots of the world, as node_exporter names them, and the directory of guard records."""

    procfs: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    cgroup: Path = Path("/sys/fs/cgroup")
    shm: Path = Path("/dev/shm")  # noqa: S108 - the tmpfs that is looked at
    run: Path = Path("/run/llmhost")
