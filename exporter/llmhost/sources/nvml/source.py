"""Source of the GPUs through NVML, which is asked in a child process (see the package).

The source is in one of three states: `_NoChild`, `_Idle` and `_Waiting`. While a driver call hangs, each read ends at
its deadline with TIMEOUT and the call (`_late`). After `kill_after_seconds` the child is killed (`_hung`); a later read
starts another, which leaves the GPU of that call out for a while (`suspects`).
"""

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from llmhost.model.gpu import NvmlReport, SeenGpus
from llmhost.model.reading import Cause, Failed, StuckCall
from llmhost.runtime.backoff import Backoff
from llmhost.runtime.line_child import ChildEndedError
from llmhost.sources.base import SourceError
from llmhost.sources.nvml.child_process import NvmlChild, NvmlChildren
from llmhost.sources.nvml.driver_access import DriverAccess
from llmhost.sources.nvml.known_gpus import KnownGpus
from llmhost.sources.nvml.report import ParsedReport, parse_answer
from llmhost.sources.nvml.suspects import GpuIndexes, SuspectGpu, Suspects
from llmhost.sources.nvml.wire import Extent, Question
from llmhost.sources.nvml.xid_counters import XidTotals

_LATE_WAIT_SECONDS = 0.5  # how long a read waits for an answer that is late already
_END_SECONDS = 0.5  # for a child that ends by itself
_PAUSE_SECONDS = 3.0  # for the read of another thread that is ending a child
_CLOSE_SECONDS = 0.8
_LISTS_READ_SECONDS = 0.5  # what a read of process lists takes at the worst; it is milliseconds a GPU


@dataclass(frozen=True, slots=True)
class _NoChild:
    """No child runs: none was wanted yet, or the last one failed; then none is started before `retry_at`."""

    failure: SourceError | None = None
    retry_at: float = -math.inf
    child: None = None


@dataclass(frozen=True, slots=True)
class _Idle:
    """A child that owes no answer."""

    child: NvmlChild


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A child that owes an answer. Past the deadline of the read that asked, the answer is late."""

    child: NvmlChild
    question: Question
    skipped: Collection[SuspectGpu]
    requested_at: float


_State: TypeAlias = _NoChild | _Idle | _Waiting


class NvmlSource:
    """Source[NvmlReport]. Raises SourceError with the causes that cause_of maps, TIMEOUT (with `stuck`) and UNKNOWN.

    NO_GPU when the driver lists no GPU and has listed none since boot. Reads from several threads take turns.
    """

    def __init__(
        self,
        *,
        procfs: Path,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        kill_after_seconds: float = 120.0,
        reap_seconds: float = 2.0,
        list_interval_seconds: float = 1.0,
        unsupported_seconds: float = 600.0,
        failure_backoff: tuple[float, float] = (1.0, 60.0),
        hang_backoff: tuple[float, float] = (5.0, 300.0),
        seen: SeenGpus | None = None,
        is_needless: Callable[[], bool] = lambda: False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start nothing yet. `seen` are the GPUs that an earlier exporter saw in this boot.

        `environment` is added to our own for the child. A child that has not answered for `kill_after_seconds` is
        killed; the default is more than two of the driver's own time limits of 45 s. Process lists take the driver's
        exclusive lock on all GPUs, so they are read at most once in `list_interval_seconds`. What a GPU does not
        support is asked again after `unsupported_seconds`. The backoffs, first and most seconds, are for a child that
        ended (no driver, say) and for one that hung. Where `is_needless`, there is nothing that a driver is for: that
        none is installed is NO_DEVICE.
        """
        self._children = NvmlChildren(
            lambda: NvmlChild(
                python=python,
                procfs=procfs,
                environment=environment,
                unsupported_seconds=unsupported_seconds,
                monotonic=monotonic,
            )
        )
        self._kill_after = kill_after_seconds
        self._reap_seconds = reap_seconds
        self._list_interval = list_interval_seconds
        self._failures = Backoff(*failure_backoff)
        self._hangs = Backoff(*hang_backoff)
        self._suspects = Suspects(skip_seconds=hang_backoff[1])
        self._is_needless = is_needless
        self._monotonic = monotonic
        self._indexes = GpuIndexes()
        self._known_gpus = KnownGpus(seen)
        self._xids = XidTotals()
        self._reading = threading.Lock()  # guards the state; `doing`, `stuck` and `close` read it without
        self._access = DriverAccess()
        self._state: _State = _NoChild()
        self._question_number = 0
        self._lists_due_at = -math.inf

    def read(self, deadline: float) -> NvmlReport:
        """Read everything, process lists once in their time.

        Where a GPU's memory or processes have moved since the last lists, as with two that read in turn, this waits for
        the next ones, unless they are due too late for the deadline.
        """
        report = self._read(deadline, memory_alone=False)
        wait_seconds = self.lists_due_in_seconds()
        if _is_changing(report) and self._monotonic() + wait_seconds + _LISTS_READ_SECONDS <= deadline:
            time.sleep(wait_seconds)
            report = self._read(deadline, memory_alone=False)
        return report

    def read_memory(self, deadline: float) -> NvmlReport:
        """Read memory and no process list, which takes microseconds a GPU.

        Holders are those of the last list where the memory is what it was then and all its processes live; they are
        Failed(CHANGING) elsewhere. The rest is as of the last full read, and absent for a GPU that is new.
        """
        return self._read(deadline, memory_alone=True)

    def lists_due_in_seconds(self) -> float:
        """Say how long a full read would still give process lists again; 0.0 when the next takes them anew.

        From any thread. Lists that a read is taking at this moment count as taken when it asked for them.
        """
        return max(0.0, self._lists_due_at - self._monotonic())

    def doing(self) -> str:
        child = self._state.child
        return "no NVML child runs" if child is None else child.doing()

    def stuck(self) -> StuckCall | None:
        child = self._state.child
        return None if child is None else child.stuck()

    def pause(self, why: str) -> tuple[int, ...]:
        """End the child, and have every read raise SourceError(RELEASED, why) until `resume`; from any thread.

        A read that waits for the child ends at once. Gives the pids of children that hang in the driver and do not
        die of SIGKILL: as long as there are any, call it again.
        """
        self._access.pause(why)
        if not self._reading.acquire(timeout=_PAUSE_SECONDS):
            child = self._state.child
            return () if child is None else (child.pid,)
        try:
            if self._access.closed:
                return ()
            self._access.rearm()
            self._drop_child(self._reap_seconds)
            return self._children.undead()
        finally:
            self._reading.release()

    def resume(self) -> None:
        """Read again, and start as if nothing had failed before: a reset or a new driver may have fixed it."""
        with self._reading:
            if isinstance(self._state, _NoChild):
                self._state = _NoChild()
            self._failures.reset()
            self._hangs.reset()
            self._suspects.forget()
            self._access.resume()

    def close(self) -> None:
        if not self._access.close():
            return
        child = self._state.child
        if child is not None:
            child.kill()
        if not self._reading.acquire(timeout=_CLOSE_SECONDS / 2):
            return  # a read that does not end: its child is killed, and the rest ends with us
        try:
            self._drop_child(_CLOSE_SECONDS / 2)
            self._children.abandon_all()
            os.close(self._access.wake)
        finally:
            self._reading.release()

    def _read(self, deadline: float, *, memory_alone: bool) -> NvmlReport:
        with self._turn(deadline):
            child = self._running_child()
            try:
                if isinstance(self._state, _Waiting):
                    self._take_late_answer(self._state, deadline)
                return self._ask(child, deadline, memory_alone=memory_alone)
            except ChildEndedError as error:
                failed = SourceError(Cause.UNKNOWN, f"the NVML child: {error}")
                raise self._access.error() or self._failed(failed) from None

    @contextlib.contextmanager
    def _turn(self, deadline: float) -> Iterator[None]:
        """Wait for the reads of other threads, at most until the deadline: one of them may hang."""
        if not self._reading.acquire(timeout=max(0.0, deadline - self._monotonic())):
            late = SourceError(Cause.TIMEOUT, f"waits for another read: {self.doing()}", self.stuck())
            raise self._access.error() or late
        try:
            yield
        finally:
            self._reading.release()

    def _running_child(self) -> NvmlChild:
        """Return the child; start one if there is none and it is time to. Raises SourceError if it is not."""
        if (error := self._access.error()) is not None:
            raise error
        self._children.undead()
        state = self._state
        if isinstance(state, _Idle) and state.child.has_answered and not state.child.alive():
            self._drop_child(0.0)  # ended between two reads, after it had worked: this is no loop, start another
            state = self._state
        if not isinstance(state, _NoChild):
            return state.child
        if state.failure is not None and self._monotonic() < state.retry_at:
            raise SourceError(state.failure.cause, state.failure.detail, state.failure.stuck)
        try:
            child = self._children.start()
        except OSError as error:
            raise self._failed(SourceError(Cause.UNKNOWN, f"cannot start the NVML child: {error}")) from error
        self._state = _Idle(child)
        return child

    def _take_late_answer(self, waiting: _Waiting, deadline: float) -> None:
        """Get rid of an answer that is late: it is as old as its question. Raises SourceError while there is none."""
        line = waiting.child.answer(min(deadline, self._monotonic() + _LATE_WAIT_SECONDS), self._access.wake)
        if line is not None:
            self._parsed(line, waiting)
            return
        if self._access.error() is None and self._monotonic() - waiting.requested_at >= self._kill_after:
            raise self._hung(waiting.child, deadline)
        raise self._late(waiting.child)

    def _ask(self, child: NvmlChild, deadline: float, *, memory_alone: bool) -> NvmlReport:
        now = self._monotonic()
        self._question_number += 1
        extent: Extent = "memory_alone" if memory_alone else "everything" if now >= self._lists_due_at else "memory"
        skipped = self._suspects.to_skip(now)
        question = Question(
            id=self._question_number,
            extent=extent,
            skip=[self._indexes.to_wire(gpu) for gpu in skipped],
            listed=self._indexes.listed,
        )
        waiting = self._state = _Waiting(child, question, skipped, now)
        if extent == "everything":
            self._lists_due_at = now + self._list_interval
        try:
            report = self._known_gpus.apply(self._parsed(self._answer(child, question, deadline), waiting))
        except BaseException:
            if extent == "everything":
                self._lists_due_at = -math.inf
            raise
        self._xids.update(child.xids())
        xids = self._xids.by_gpu()
        return replace(report, gpus=tuple(replace(gpu, xids=xids.get(gpu.uuid, ())) for gpu in report.gpus))

    def _answer(self, child: NvmlChild, question: Question, deadline: float) -> bytes:
        child.ask(question)
        line = child.answer(deadline, self._access.wake)
        if line is None:
            raise self._late(child)
        return line

    def _parsed(self, line: bytes, waiting: _Waiting) -> ParsedReport:
        """Parse an answer, which shows that the child works. If it shows otherwise: drop it, and raise SourceError."""
        self._state = _Idle(waiting.child)
        try:
            parsed = parse_answer(line, waiting.question["id"])
        except SourceError as error:
            raise self._failed(error) from error.__cause__
        if parsed.report.listed == 0 and self._known_gpus.listed_most == 0:
            detail = f"the driver {parsed.report.driver_version} lists no GPU"
            raise self._failed(SourceError(Cause.NO_GPU, detail))
        if waiting.question["extent"] != "memory_alone":  # which says nothing of a GPU that hung in another call
            self._suspects.answered(waiting.skipped)
        self._indexes.answered(parsed.report.listed, parsed.uuids)
        self._failures.reset()
        self._hangs.reset()
        return parsed

    def _late(self, child: NvmlChild) -> SourceError:
        return self._access.error() or SourceError(Cause.TIMEOUT, child.doing(), child.stuck())

    def _hung(self, child: NvmlChild, deadline: float) -> SourceError:
        """Kill a child that hung for too long; a later read starts another."""
        late = self._late(child)
        call = child.current_call()
        now = self._monotonic()
        if call is not None and call.gpu is not None:
            uuid = call.uuid or (self._indexes.uuid_of(call.gpu) if child.has_answered else None)
            self._suspects.accuse(SuspectGpu(uuid) if uuid else SuspectGpu(None, call.gpu), now)
        failure = SourceError(Cause.TIMEOUT, f"killed its child: {late.detail}", late.stuck)
        self._drop_child(
            min(self._reap_seconds, max(0.0, deadline - now)), _NoChild(failure, now + self._hangs.next_seconds())
        )
        return failure

    def _failed(self, error: SourceError) -> SourceError:
        """Drop a child that cannot go on; a later read starts another."""
        self._drop_child(_END_SECONDS)
        if error.cause is Cause.NO_LIBRARY and self._is_needless():
            error = SourceError(Cause.NO_DEVICE, "no NVIDIA device is on the PCI bus, and no driver installed")
        self._state = _NoChild(error, self._monotonic() + self._failures.next_seconds())
        return error

    def _drop_child(self, within_seconds: float, then: _NoChild | None = None) -> None:
        child, self._state = self._state.child, then or _NoChild()
        self._lists_due_at = -math.inf
        if child is None:
            return
        self._children.end(child, within_seconds)
        self._xids.update(child.xids())
        self._xids.child_ended()
        child.close()


class NvmlMemorySource:
    """Source[NvmlReport] by NvmlSource.read_memory: memory at once, from a thread that is in no full read."""

    def __init__(self, nvml: NvmlSource) -> None:
        self._nvml = nvml
        self.read = nvml.read_memory
        self.doing = nvml.doing
        self.stuck = nvml.stuck

    def close(self) -> None:
        """Do nothing: the child is the other source's."""


def _is_changing(report: NvmlReport) -> bool:
    return any(isinstance(gpu.holders, Failed) and gpu.holders.cause is Cause.CHANGING for gpu in report.gpus)
