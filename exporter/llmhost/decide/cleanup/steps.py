"""The values of a clean-up: its request, its plan, and the report on what was done. Pure."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Process
from llmhost.model.segment import Segment, SegmentKind


class Condition(StrEnum):
    """The reason to end a process. The values stand in the JSON output, and are kinds that --kind takes."""

    ORPHAN = "orphan"  # an engine process that outlived its parent
    LEFTOVER = "leftover"  # of an ended run of its unit
    TRACKER = "tracker"  # a resource tracker whose creator is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A step: end exactly this process, by pid and start time."""

    process: Process
    condition: Condition
    unit: UnitId | None  # in which it runs, or was seen to; None where that is not known
    gpu_bytes: int | None  # of GPU memory that it holds, over all GPUs; None where that is not known
    because: str  # for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A step: unlink exactly this segment, by device, inode and time of its last change."""

    segment: Segment
    unit: UnitId | None  # whose processes were seen to hold it; None where that is not known
    because: str  # for people
    after: frozenset[ProcessId] = frozenset()  # of the same plan: only once these have ended


Step: TypeAlias = Ending | Removal


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A process or segment that looks left over, and is not touched."""

    subject: Process | Segment
    unit: UnitId | None
    because: str  # for people: the reason, and what has to happen before it can go


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps in the order in which they are done: endings, trackers last among them, then removals."""

    refused: str = ""  # why nothing at all may be done here; then there is no step
    endings: tuple[Ending, ...] = ()
    removals: tuple[Removal, ...] = ()
    waiting: tuple[Step, ...] = ()  # candidates whose grace time is not over
    skipped: tuple[Skipped, ...] = ()
    unknowns: tuple[str, ...] = ()  # what could not be inspected, so that nothing follows about it
    gone: tuple[Step, ...] = ()  # of the first observation's plan: ended or removed by the second, not by us

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, in the order in which they are done."""
        return (*self.endings, *self.removals)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupRequest:
    """The selection of what to clean. An empty filter selects everything."""

    uid: int  # effective uid of the requester
    units: frozenset[UnitId] = frozenset()  # only what is known to belong to these
    kinds: frozenset[SegmentKind | Condition] = field(default_factory=frozenset)
    older_than_seconds: float = 0.0  # processes by start, segments by last change
    all_users: bool = False  # processes of other users too; for root alone


class Result(StrEnum):
    """The result of a step. The values stand in the JSON output."""

    DONE = "done"
    GONE = "gone"  # it ended or disappeared by itself before
    SPARED = "spared"  # it is in use, or another one by now: nothing was done
    DENIED = "denied"  # no permission
    FAILED = "failed"  # it could not be done, or not be checked: nothing was done
    STUCK = "stuck"  # it does not die: it hangs in the kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    step: Step
    result: Result
    detail: str  # one line for people, without a full stop
    seconds: float = 0.0  # that an ending took


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """The outcomes of a plan that was carried out."""

    plan: Plan
    outcomes: tuple[Outcome, ...] = ()
    interrupted_by: int = 0  # the number of the signal that ended it early; 0: it was carried out to its end

    @property
    def not_begun(self) -> tuple[Step, ...]:
        begun = {id(outcome.step) for outcome in self.outcomes}
        return tuple(step for step in self.plan.steps if id(step) not in begun)

    @property
    def complete(self) -> bool:
        """True if every step was done, or rightly spared: what is in use should stay."""
        failed = {Result.DENIED, Result.FAILED, Result.STUCK}
        return not self.not_begun and not any(outcome.result in failed for outcome in self.outcomes)

    @property
    def freed_gpu_bytes(self) -> int:
        """GPU memory of the processes that were ended, as far as the driver reported it."""
        return sum(step.gpu_bytes or 0 for step in self._steps_done() if isinstance(step, Ending))

    @property
    def freed_shm_bytes(self) -> int:
        return sum(step.segment.allocated_bytes for step in self._steps_done() if isinstance(step, Removal))

    def _steps_done(self) -> tuple[Step, ...]:
        return tuple(outcome.step for outcome in self.outcomes if outcome.result is Result.DONE)
