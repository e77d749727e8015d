"""The holders of a GPU's memory, as a guard knows and names them. Pure."""

from dataclasses import dataclass

from llmhost.model.ids import UnitId


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderSummary:
    """A process that holds memory of a GPU."""

    pid: int
    command: str  # "" where the process is gone
    kind: str
    unit: UnitId | None
    used_bytes: int | None
    since_at: float | None  # when the process started, in seconds since the epoch
    began_boottime_seconds: float | None = None  # the same on CLOCK_BOOTTIME


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHolders:
    """The holders of a GPU's memory."""

    holders: tuple[HolderSummary, ...]  # the largest first
    unattributed_bytes: int | None  # with no visible owner; None where that is not known
