"""The values that a guard's lines are made from. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from enum import Enum, auto

from llmhost.decide.guard.decision import Decision, GuardOptions, Rule
from llmhost.decide.guard.memory_stability import UsageTrends
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.ids import GpuUuid, UnitId
from llmhost.model.process import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderSummary:
    """A process that holds memory of a GPU."""

    pid: int
    command: str  # "" where the process is gone
    kind: str
    unit: UnitId | None
    used_bytes: int | None
    since_at: float | None  # when the process started, in seconds since the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHolders:
    """The holders of a GPU's memory."""

    holders: tuple[HolderSummary, ...]  # the largest first
    unattributed_bytes: int | None  # with no visible owner; None where that is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitStatus:
    """The last decision, and what explains it."""

    decision: Decision
    rule: Rule
    options: GuardOptions
    holders: Mapping[GpuUuid, GpuHolders] = field(default_factory=dict)  # as of the last lists
    trends: UsageTrends = field(default_factory=dict)
    stuck: tuple[Process, ...] = ()  # of ended runs, and SIGKILL does not end them
    at: float = 0.0  # seconds since the epoch
    zone: tzinfo | None = None

    @property
    def enough_is_free(self) -> bool:
        decision = self.decision
        return decision.failure is None and not decision.lacks and decision.shm is None

    @property
    def subjects(self) -> tuple[object, ...]:
        """The GPUs and holders waited for, without figures. A change is worth a line before its time."""
        decision = self.decision
        seen = [self.holders.get(lack.gpu.uuid) for lack in decision.lacks]
        return (
            decision.failure.cause if decision.failure is not None else None,
            tuple(lack.gpu.uuid for lack in decision.lacks),
            tuple(frozenset(holder.pid for holder in gpu.holders) if gpu is not None else None for gpu in seen),
            decision.shm is not None,
        )


class Topic(Enum):
    """The kinds of a guard's lines."""

    WAITS = auto()
    FREE = auto()  # from here on the last lines of a run
    GIVES_UP = auto()
    TERMINATED = auto()
    NEED_UNKNOWN = auto()
    NOT_LOADED = auto()  # from here on warnings
    REMEDIES_LATE = auto()
    REMEDIES_UNPROVEN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """A line for the log, and most also for `systemctl status`."""

    topic: Topic
    seconds: float = 0.0  # since the guard began
    limit_seconds: float = 0.0  # of WAITS
    verdict: GuardVerdict = GuardVerdict.UNKNOWN  # of GIVES_UP
    status: WaitStatus | None = None  # None before the first decision
    answered: bool = True  # of GIVES_UP: False where the driver or systemd never answered
    why: str = ""  # of GIVES_UP: the limit; of NEED_UNKNOWN: the fault; of NOT_LOADED: the unit
