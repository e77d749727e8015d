"""Default places on the host. An option, or systemd's environment, may name others."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEFAULT_CONFIG: Final = Path("/etc/llmhost/llmhost.yml")
DEFAULT_STATE: Final = Path("/var/lib/llmhost")  # the history


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The roots of what is read, as node_exporter names them, and the run directory."""

    procfs: Path = Path("/proc")
    shm: Path = Path("/dev/shm")  # noqa: S108 - the tmpfs that is looked at
    sysfs: Path = Path("/sys")  # no option names another: containers have the host's PCI bus in their own
    run: Path = Path("/run/llmhost")  # records of guard runs, the driver pause, the lock of clean-ups
