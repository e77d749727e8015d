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
from llmhost.model.reading import Failed, NotApplicable, Reading
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
    need_unknown: str = ""  # why systemd has not said yet what the unit needs; "" where it has, or is not asked
    unseen: str = ""  # why the remedies cannot see yet what ended runs have left
    stuck: tuple[Process, ...] = ()  # of ended runs, and SIGKILL does not end them
    at: float = 0.0  # seconds since the epoch
    zone: tzinfo | None = None

    @property
    def is_about_to_end(self) -> bool:
        """True where enough is free, and nothing is known that would last."""
        decision = self.decision
        in_the_way = decision.failure is not None or decision.lacks or decision.shm is not None
        return not (in_the_way or self.need_unknown or self.unseen)

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
            bool(self.need_unknown),
            bool(self.unseen),
        )


class Topic(Enum):
    """The kinds of a guard's lines."""

    WAITS = auto()
    FREE = auto()  # from here on the last lines of a run
    GIVES_UP = auto()
    TERMINATED = auto()
    NEED_UNKNOWN = auto()
    NO_CONFIG_REFUSED = auto()
    NOT_LOADED = auto()  # from here on warnings
    NO_CONFIG = auto()
    NO_HISTORY = auto()
    FILE_CAME = auto()
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
    why: str = ""  # of GIVES_UP: the limit; of NOT_LOADED: the unit; of FILE_CAME: the file; of TERMINATED: by what;
    # of others: the fault


class Query(Enum):
    """A source that is read when asked. Memory is read before every step."""

    HOST = auto()
    UNITS = auto()
    LISTS = auto()  # of processes on each GPU
    PROCESSES = auto()


class File(Enum):
    """A file that a run begins with. Values are its names for people."""

    CONFIG = "config"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class FileFailure:
    """The last failure to read a file, and since when it fails like that."""

    failed: Failed
    since: float


@dataclass(frozen=True, slots=True)
class FailedLook:
    """A look of the remedies that has proven nothing: neither that there is somebody to end, nor that there is not."""

    why: str
    lasts: bool  # by its cause; else the next look may well succeed


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyProgress:
    began: float  # on the monotonic clock, as the next
    settled: bool = False  # a pass has looked, and has found nothing to end
    failed: FailedLook | None = None  # the last look, if it has failed
    acting_since: float | None = None  # processes are being ended
    stuck: tuple[Process, ...] = ()  # of ended runs, and SIGKILL does not end them


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything that has come since the step before. None: nothing has."""

    at: float = 0.0  # seconds since the epoch
    config: Reading[Config] | None = None
    history: Reading[History] | None = None
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
class Configure:
    """Have the sources go by this config from now on."""

    config: Config
    units: tuple[str, ...]  # that systemd reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Inform:
    """Let the remedies go by these readings of the host and the units, and by these files."""

    snapshot: Snapshot
    config: Config
    recorded: History

    def has_files_of(self, other: "Inform | None") -> bool:
        return other is not None and self.config is other.config and self.recorded is other.recorded


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


Action: TypeAlias = Ask | Watch | Configure | Extend | Inform | Say | Admit | Finish


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
    refuses_on_fault: bool = False
    watched: tuple[str, ...] = ()  # units that systemd reports
    # The files: defaults as long as they are unread.
    config: Config
    history: History  # with what was observed since
    recorded: History = field(default_factory=History)  # as the exporter has saved it
    unread: frozenset[File] = frozenset()
    file_failures: Mapping[File, FileFailure] = field(default_factory=dict)  # of those that are unread
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
    listed: frozenset[GpuUuid] = frozenset()  # GPUs
    no_systemd_since: float | None = None
    unseen_since: float | None = None  # that the remedies see nothing, for a cause that lasts
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
        unread = self.unread - self.file_failures.keys()
        return bool(unread) or (
            self.memory is None or self.units is None or self.listing.begun or self.terminated_at is not None
        )

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
