"""The values of a guard's run: readings, state, actions, and what its lines are made from. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from enum import Enum, auto
from typing import TypeAlias

from llmhost.config.schema import Config
from llmhost.decide.guard.decision import Decision, GuardOptions, Rule
from llmhost.decide.guard.holder_summary import GpuHolders
from llmhost.decide.guard.memory_stability import UsageTrends
from llmhost.decide.guard.target import Target, WaitLimit
from llmhost.model.admission import Admission
from llmhost.model.gpu import NvmlReport
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.history.history import History
from llmhost.model.host import Host
from llmhost.model.ids import GpuUuid
from llmhost.model.process import Process, ProcessTable
from llmhost.model.reading import NotApplicable, Reading
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import UnitsReport

NEVER = float("-inf")
_NOT_READ = NotApplicable("not asked by the guard")


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
        held = [self.holders.get(lack.gpu.uuid) for lack in decision.lacks]
        return (
            decision.failure.cause if decision.failure is not None else None,
            tuple((lack.gpu.uuid, *(awaited.name for awaited in lack.awaited)) for lack in decision.lacks),
            tuple(frozenset(holder.pid for holder in gpu.holders) if gpu is not None else None for gpu in held),
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
    why: str = ""  # of GIVES_UP: the limit; of NEED_UNKNOWN: the fault; of NOT_LOADED: the unit; of TERMINATED: by what


class Query(Enum):
    """A source that is read when asked. Memory is read before every step."""

    HOST = auto()
    UNITS = auto()
    LISTS = auto()  # of processes on each GPU
    PROCESSES = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyProgress:
    began: float  # on the monotonic clock, as the next
    settled: bool = False  # a pass has found nothing to end
    acting_since: float | None = None  # processes are being ended
    stuck: tuple[Process, ...] = ()  # of ended runs, and SIGKILL does not end them


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything that has come since the step before. None: nothing has."""

    at: float = 0.0  # seconds since the epoch
    memory: Reading[NvmlReport] | None = None
    host: Reading[Host] | None = None
    units: Reading[UnitsReport] | None = None
    lists: Reading[NvmlReport] | None = None
    processes: Reading[ProcessTable] | None = None
    command_began: float | None = None  # start of the process that TimeoutStartSec= counts for, on the monotonic clock
    shm_free_bytes: int | None = None  # None where it cannot be read
    remedies: RemedyProgress | None = None  # None where none are asked for
    admissions: tuple[Admission, ...] = ()  # of other guards
    ended_by: str = ""  # the name of the signal that came to end this run


@dataclass(frozen=True, slots=True)
class Ask:
    query: Query


@dataclass(frozen=True, slots=True)
class Watch:
    """Have systemd report these units from now on."""

    units: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Extend:
    """Ask systemd for this much time for the start, from now on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Inform:
    """Let the remedies go by these readings of the host and the units."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """Record this start, unless other guards' admissions are not those that were `seen`.

    Then nothing of what follows in the step is done, and the next goes by what has come.
    """

    needed: Mapping[GpuUuid, int | None]
    any_gpus: bool
    seen: tuple[Admission, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    verdict: GuardVerdict
    no_such_unit: bool = False
    terminated: bool = False
    unit_is_stopping: bool = False  # systemd is stopping the unit: nothing starts, whatever the exit code


Action: TypeAlias = Ask | Watch | Extend | Inform | Say | Admit | Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderListing:
    """Process lists and processes, which together name the holders."""

    lists: Reading[NvmlReport] | None = None
    processes: Reading[ProcessTable] | None = None
    begun: bool = False
    awaits_units: bool = False  # all is read, and systemd has yet to report the units of the holders
    read_at: float = NEVER
    used_bytes: Mapping[GpuUuid, int] = field(default_factory=dict)  # when lists were read last
    all_read: bool = False  # once at least


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    # The run. The first four never change.
    target: Target
    options: GuardOptions
    limit: WaitLimit
    config: Config
    history: History
    watched: tuple[str, ...] = ()  # units that systemd reports
    # The step's time, on the monotonic clock and since the epoch; the latest readings.
    now: float = NEVER
    at: float = 0.0
    memory: Reading[NvmlReport] | None = None
    host: Reading[Host] | None = None
    units: Reading[UnitsReport] | None = None
    units_at: float = NEVER
    command_began: float | None = None
    shm_free_bytes: int | None = None
    remedies: RemedyProgress | None = None
    admissions: tuple[Admission, ...] = ()
    pending: frozenset[Query] = frozenset()  # readings under way
    listing: HolderListing = field(default_factory=HolderListing)
    # What follows from them.
    trends: UsageTrends = field(default_factory=dict)
    holders: Mapping[GpuUuid, GpuHolders] = field(default_factory=dict)
    status: WaitStatus | None = None  # of the last decision
    hopeless_since: float | None = None
    no_systemd_since: float | None = None
    terminated_at: float | None = None
    # What was done.
    extended_at: float = NEVER
    said_at: float = NEVER
    said: tuple[object, ...] | None = None
    warned: frozenset[Topic] = frozenset()
    informed: bool = False  # the remedies

    @property
    def awaits_answers(self) -> bool:
        """True while a reading that a decision or a name needs is under way: the next step is due in a moment."""
        return self.memory is None or self.units is None or self.listing.begun or self.terminated_at is not None

    @property
    def verdict_so_far(self) -> GuardVerdict:
        """The verdict if the wait ends now without the start being let on."""
        if self.status is None or self.status.decision.verdict is GuardVerdict.UNKNOWN:
            return GuardVerdict.UNKNOWN
        return GuardVerdict.HELD

    @property
    def seconds(self) -> float:
        """The time since the guard began."""
        return self.now - self.limit.began

    @property
    def snapshot(self) -> Snapshot:
        """The latest readings, without process lists and processes."""
        return Snapshot(
            at=self.at,
            at_monotonic=self.now,
            host=self.host or _NOT_READ,
            nvml=self.memory or _NOT_READ,
            processes=_NOT_READ,
            units=self.units or _NOT_READ,
            shm=_NOT_READ,
            engines=_NOT_READ,
        )
