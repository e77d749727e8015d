"""What a clean-up would do, what it leaves, and what became of it. `decide/cleanup` plans, `act/` does it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Process
from llmhost.model.segment import Segment, SegmentKind


class Condition(StrEnum):
    """Why a process is one too many. The values stand in the JSON output, and are kinds that --kind takes."""

    ORPHAN = "orphan"  # an engine's process that has outlived what it belongs to
    LEFTOVER = "leftover"  # of an ended activation of its unit
    TRACKER = "tracker"  # a resource tracker whose creator is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """End this process: exactly this one, by pid and start time."""

    process: Process
    condition: Condition
    unit: UnitId | None  # in which it runs, or was seen to; None where that is not known
    gpu_bytes: int | None  # of GPU memory that it holds, over all GPUs; None where that is not known
    because: str  # for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Unlink this file of shared memory: exactly this one, by device, inode and time of its last change."""

    segment: Segment
    unit: UnitId | None  # whose processes were seen to hold it; None where that is not known
    because: str  # for people
    after: frozenset[ProcessId] = frozenset()  # of the same plan: only once these have ended


Step: TypeAlias = Ending | Removal


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Something that looks left over, and is left alone."""

    subject: Process | Segment
    unit: UnitId | None
    because: str  # for people: what keeps it, and what would let it go


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps in the order in which they are done: endings, trackers last among them, then removals."""

    refused: str = ""  # why nothing at all may be done here; then there is no step
    endings: tuple[Ending, ...] = ()
    removals: tuple[Removal, ...] = ()
    waiting: tuple[Step, ...] = ()  # what lacks nothing but the time for which it has to be watched
    left: tuple[Left, ...] = ()
    unknowns: tuple[str, ...] = ()  # what could not be looked at, so that nothing follows about it

    @property
    def steps(self) -> tuple[Step, ...]:
        """In the order in which they are done."""
        return (*self.endings, *self.removals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What somebody asked to have cleaned. Nothing given is everything."""

    uid: int  # who asks: effective uid
    units: frozenset[UnitId] = frozenset()  # known to be theirs
    kinds: frozenset[SegmentKind | Condition] = field(default_factory=frozenset)
    older_than_seconds: float = 0.0  # processes by start, files by last change
    all_users: bool = False  # processes of other users too; for root alone


class Result(StrEnum):
    """What became of a step. The values stand in the JSON output."""

    DONE = "done"
    GONE = "gone"  # it went by itself before
    SPARED = "spared"  # it is in use, or another by now: nothing was done
    DENIED = "denied"  # we may not
    STUCK = "stuck"  # it does not die: it hangs in the kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    step: Step
    result: Result
    detail: str  # one line for people, without a full stop
    seconds: float = 0.0  # that an ending took
