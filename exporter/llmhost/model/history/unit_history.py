"""The history of one unit. Times in seconds: `_at` since the epoch, `_monotonic` on CLOCK_MONOTONIC."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llmhost.model.ids import GpuUuid

STARTS_KEPT = 50


class Trigger(StrEnum):
    """The origin of a start. The values are label values."""

    AUTO = "auto"  # systemd scheduled it after the run before, by Restart=
    # systemd made it for another unit: Upholds=, OnFailure=, OnSuccess=, a timer, path or socket, a restart
    UNIT = "unit"
    MANUAL = "manual"  # a person, a script, the boot, the start of another unit


class Verdict(StrEnum):
    """The verdict on a start, by the memory on the unit's GPUs. The values are label values."""

    CLEAN = "clean"
    RESIDENT = "resident"  # more than policy.resident of memory was in the way
    UNKNOWN = "unknown"  # there were not enough readings in time
    NOT_STARTED = "not_started"  # the attempt ended before its main process


UNWATCHED = "nobody watched how far it got"
UNATTRIBUTED = "unattributed"  # in the way, beside the kinds of holders: memory that no visible process holds


@dataclass(frozen=True, slots=True, kw_only=True)
class InTheWay:
    """Memory that a start found on one GPU of its set, by kind."""

    uuid: GpuUuid
    gpu: str  # NVML's index then; informative
    kind: str  # a HolderKind, or UNATTRIBUTED
    used_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """Memory that a start lacked on one GPU of its set: 0 where enough was free."""

    uuid: GpuUuid
    gpu: str  # NVML's index then; informative
    short_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of a run, or of an attempt at one."""

    at: float
    result: str  # Result, as systemd spells it; "" where the end was not observed
    exec_main_status: int | None
    asked: bool | None  # a job of systemd's asked for it; None where the unit was not watched
    seconds: float  # from the start of the attempt
    ended_with: str = ""  # the unit with whose end or restart systemd stopped this one


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start attempt.

    `trigger` is None for a run that was under way when the history of the unit began: it is counted nowhere. `verdict`
    is None until it is known. `main_monotonic` is the start of its main process; None before that.
    """

    invocation_id: str
    trigger: Trigger | None
    attempt: int  # 1 for a manual start, and one more for each automatic one after it
    at: float
    began_monotonic: float
    main_monotonic: float | None = None
    verdict: Verdict | None = None
    unknown_because: str = ""
    in_the_way: tuple[InTheWay, ...] = ()
    short: tuple[Short, ...] = ()  # of GPUs on which need and free memory were known
    ready_seconds: float | None = None  # until its engine's first answer
    end: End | None = None
    # systemd first shows a start's InvocationID in the state of before; these two fields distinguish that from an end.
    seen_in_state_before: bool = False
    state_before_monotonic: float | None = None
    # systemd's job that led to the state it is in, and asks for no end: of the start, or of a reload
    start_job: int = 0
    other_job: int = 0  # another one that was seen with it while it was up, or as it began to end
    asked_to_end: bool = False  # such a job was there as it began to end
    started_by: str = ""  # of trigger `unit`: that unit
    ended_with: str = ""  # as End has it, from when it began to end


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitHistory:
    """Counters never go back. The fields from `invocation_id` to `loaded` are systemd's, of this boot."""

    last_seen_at: float
    invocation_id: str = ""  # the latest; "" while it has not been started in this boot
    nrestarts: int = 0  # NRestarts as of the latest start
    restart_job: int = 0  # systemd's job that is queued to restart it; 0: none
    loaded: bool = True
    should_run: bool = False  # and has a unit file, or had one when it was seen so last
    vanished_at: float | None = None  # its unit file, while it should run
    stopped: bool = False  # a job of systemd's brought it to rest, and it has not been started since
    state: str = ""  # as state_label says; "" where it is not known
    state_since_monotonic: float = 0.0  # up to then, time is in state_seconds
    starts: tuple[Start, ...] = ()  # the latest, oldest first
    starts_total: Mapping[tuple[Trigger, Verdict], int] = field(default_factory=dict)
    failures_total: Mapping[str, int] = field(default_factory=dict)  # by Result
    unexpected_stops_total: int = 0
    state_seconds: Mapping[str, float] = field(default_factory=dict)
    last_start_at: float | None = None
    last_resident_start_at: float | None = None
    last_failure_at: float | None = None
    last_release_seconds: float | None = None

    @property
    def latest(self) -> Start | None:
        return self.starts[-1] if self.starts else None

    @property
    def last_judged(self) -> Start | None:
        """The last start whose verdict is not unknown."""
        known = (Verdict.CLEAN, Verdict.RESIDENT)
        return next((start for start in reversed(self.starts) if start.verdict in known), None)

    def start_of(self, invocation_id: str) -> Start | None:
        return next((start for start in reversed(self.starts) if start.invocation_id == invocation_id), None)
