"""The holders of a GPU's memory, for people. Pure."""

from dataclasses import dataclass

from llmhost.model.ids import UnitId


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenHolder:
    pid: int
    command: str  # "" where the process is gone
    kind: str
    unit: UnitId | None
    used_bytes: int | None
    since_at: float | None  # when the process started, in seconds since the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGpu:
    holders: tuple[SeenHolder, ...]  # the largest first
    nobodys_bytes: int | None  # with no visible owner; None where that is not known
