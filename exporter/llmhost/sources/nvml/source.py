"""GPUs through NVML, which is asked in a child process.

A call into a sick driver can hang for minutes, in a state in which nothing but the end of the call ends it. So NVML
runs in a process of its own (worker): a hang costs the GPUs' values, and the child can be killed and replaced.
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

from llmhost.model.gpu import NvmlReport
from llmhost.model.reading import Cause, StuckCall
from llmhost.sources.base import SourceError
from llmhost.sources.nvml.child.asking import UNSUPPORTED_SECONDS
from llmhost.sources.nvml.child_process import Child, ChildEndedError
from llmhost.sources.nvml.child_processes import Children
from llmhost.sources.nvml.driver_access import Gate
from llmhost.sources.nvml.history import History
from llmhost.sources.nvml.patience import Accused, Backoff, Suspects, Whereabouts
from llmhost.sources.nvml.report import ParsedReport, parse_answer
from llmhost.sources.nvml.wire import Extent, Question
from llmhost.sources.nvml.xids import XidCounts

_STUCK_WAIT_SECONDS = 0.5  # how long a read waits for an answer that is late already
_END_SECONDS = 0.5  # for a child that ends by itself
_RELEASE_SECONDS = 3.0  # for the read of another thread that is ending a child
_CLOSE_SECONDS = 0.8


@dataclass(frozen=True, slots=True)
class _Pending:
    question: Question
    skipped: Collection[Accused]
    asked_at: float


class NvmlSource:
    """Source[NvmlReport]. Raises SourceError with the causes that cause_of maps, TIMEOUT (with `stuck`) and UNKNOWN.

    NO_GPU when the driver lists no GPU and has listed none since the start. Reads from several threads take turns.
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
        unsupported_seconds: float = UNSUPPORTED_SECONDS,
        failure_backoff: tuple[float, float] = (1.0, 60.0),
        hang_backoff: tuple[float, float] = (5.0, 300.0),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start nothing yet.

        `environment` is added to our own for the child. A child that has not answered for `kill_after_seconds` is
        killed; the default is more than two of the driver's own time limits of 45 s. Process lists take the driver's
        exclusive lock on all GPUs, so they are read at most once in `list_interval_seconds`. What a GPU does not
        support is asked again after `unsupported_seconds`. The backoffs, first and most seconds, are for a child that
        ended (no driver, say) and for one that hung.
        """
        self._children = Children(
            python=python,
            procfs=procfs,
            environment=environment,
            unsupported_seconds=unsupported_seconds,
            monotonic=monotonic,
        )
        self._kill_after = kill_after_seconds
        self._reap_seconds = reap_seconds
        self._list_interval = list_interval_seconds
        self._failures = Backoff(*failure_backoff)
        self._hangs = Backoff(*hang_backoff)
        self._suspects = Suspects(skip_seconds=hang_backoff[1])
        self._monotonic = monotonic
        self._whereabouts = Whereabouts()
        self._history = History()
        self._xids = XidCounts()
        self._reading = threading.Lock()
        self._gate = Gate()
        self._child: Child | None = None
        self._pending: _Pending | None = None
        self._question_number = 0
        self._lists_due_at = -math.inf
        self._failure: SourceError | None = None  # why there is no child
        self._retry_at = 0.0

    def read(self, deadline: float) -> NvmlReport:
        return self._read(deadline, alone=False)

    def read_memory(self, deadline: float) -> NvmlReport:
        """Read memory and no process list, which takes microseconds a GPU.

        Holders are those of the last list where the memory is what it was then and all its processes live; they are
        Failed(CHANGING) elsewhere. The rest is as the last full read said it, and absent of a GPU that is new.
        """
        return self._read(deadline, alone=True)

    def lists_due_in_seconds(self) -> float:
        """Say how long a full read would still give process lists again; 0.0 when the next takes them anew.

        From any thread. Lists that a read is taking at this moment count as taken when it asked for them.
        """
        return max(0.0, self._lists_due_at - self._monotonic())

    def doing(self) -> str:
        child = self._child
        return "no NVML child runs" if child is None else child.doing()

    def stuck(self) -> StuckCall | None:
        child = self._child
        return None if child is None else child.stuck()

    def release(self, why: str) -> tuple[int, ...]:
        """End the child, and have every read raise SourceError(RELEASED, why) until `resume`; from any thread.

        A read that waits for the child ends at once. Gives the pids of children that hang in the driver and do not
        die of SIGKILL: as long as there are any, call it again.
        """
        self._gate.release(why)
        if not self._reading.acquire(timeout=_RELEASE_SECONDS):
            child = self._child
            return () if child is None else (child.pid,)
        try:
            if self._gate.closed:
                return ()
            self._gate.calm()
            self._drop_child(self._reap_seconds)
            return self._children.abandoned()
        finally:
            self._reading.release()

    def resume(self) -> None:
        """Read again, and start as if nothing had failed before: a reset or a new driver may have mended it."""
        with self._reading:
            self._failure = None
            self._failures.reset()
            self._hangs.reset()
            self._suspects.forget()
            self._gate.resume()

    def close(self) -> None:
        if not self._gate.close():
            return
        child = self._child
        if child is not None:
            child.kill()
        if not self._reading.acquire(timeout=_CLOSE_SECONDS / 2):
            return  # a read that does not end: its child is killed, and the rest ends with us
        try:
            self._drop_child(_CLOSE_SECONDS / 2)
            self._children.give_up()
            os.close(self._gate.wake)
        finally:
            self._reading.release()

    def _read(self, deadline: float, *, alone: bool) -> NvmlReport:
        with self._turn(deadline):
            child = self._living_child()
            try:
                if self._pending is not None:
                    self._settle(child, self._pending, deadline)
                return self._fresh(child, deadline, alone=alone)
            except ChildEndedError as error:
                raise self._gate.error() or self._failed(
                    SourceError(Cause.UNKNOWN, f"the NVML child: {error}")
                ) from None

    @contextlib.contextmanager
    def _turn(self, deadline: float) -> Iterator[None]:
        """Wait for the reads of other threads, at most until the deadline: one of them may hang."""
        if not self._reading.acquire(timeout=max(0.0, deadline - self._monotonic())):
            late = SourceError(Cause.TIMEOUT, f"waits for another read: {self.doing()}", self.stuck())
            raise self._gate.error() or late
        try:
            yield
        finally:
            self._reading.release()

    def _living_child(self) -> Child:
        """Return the child; start one if there is none and it is time to. Raises SourceError if it is not."""
        if (error := self._gate.error()) is not None:
            raise error
        self._children.abandoned()
        child = self._child
        if child is not None and not child.alive() and child.has_answered and self._pending is None:
            self._drop_child(0.0)  # ended between two reads, after it had worked: this is no loop, start another
        if self._child is not None:
            return self._child
        now = self._monotonic()
        if self._failure is not None and now < self._retry_at:
            raise SourceError(self._failure.cause, self._failure.detail, self._failure.stuck)
        try:
            self._child = self._children.start(self._gate.wake)
        except OSError as error:
            raise self._failed(SourceError(Cause.UNKNOWN, f"cannot start the NVML child: {error}")) from error
        return self._child

    def _settle(self, child: Child, pending: _Pending, deadline: float) -> None:
        """Get rid of an answer that is late: it is as old as its question. Raises SourceError while there is none."""
        line = child.answer(min(deadline, self._monotonic() + _STUCK_WAIT_SECONDS))
        if line is not None:
            self._parsed(line, pending)
            return
        if self._gate.error() is None and self._monotonic() - pending.asked_at >= self._kill_after:
            raise self._replaced(child, deadline)
        raise self._late(child)

    def _fresh(self, child: Child, deadline: float, *, alone: bool) -> NvmlReport:
        now = self._monotonic()
        self._question_number += 1
        extent: Extent = "memory_alone" if alone else "everything" if now >= self._lists_due_at else "memory"
        skipped = self._suspects.to_skip(now)
        question = Question(
            id=self._question_number,
            extent=extent,
            skip=[self._whereabouts.described(gpu) for gpu in skipped],
            listed=self._whereabouts.listed,
        )
        pending = self._pending = _Pending(question, skipped, now)
        if extent == "everything":
            self._lists_due_at = now + self._list_interval
        try:
            report = self._history.apply(self._parsed(self._line(child, question, deadline), pending))
        except BaseException:
            if extent == "everything":
                self._lists_due_at = -math.inf
            raise
        self._xids.told(child.xids())
        xids = self._xids.by_gpu()
        return replace(report, gpus=tuple(replace(gpu, xids=xids.get(gpu.uuid, ())) for gpu in report.gpus))

    def _line(self, child: Child, question: Question, deadline: float) -> bytes:
        child.ask(question)
        line = child.answer(deadline)
        if line is None:
            raise self._late(child)
        return line

    def _parsed(self, line: bytes, pending: _Pending) -> ParsedReport:
        """Parse an answer, which shows that the child works. If it shows otherwise: drop it, and raise SourceError."""
        self._pending = None
        try:
            parsed = parse_answer(line, pending.question["id"])
        except SourceError as error:
            raise self._failed(error) from error.__cause__
        if parsed.report.listed == 0 and self._history.listed_most == 0:
            told = f"the driver {parsed.report.driver_version} lists no GPU"
            raise self._failed(SourceError(Cause.NO_GPU, told))
        if pending.question["extent"] != "memory_alone":  # which says nothing of a GPU that hung in another call
            self._suspects.answered(pending.skipped)
        self._whereabouts.answered(parsed.report.listed, parsed.uuids)
        self._failures.reset()
        self._hangs.reset()
        self._failure = None
        return parsed

    def _late(self, child: Child) -> SourceError:
        return self._gate.error() or SourceError(Cause.TIMEOUT, child.doing(), child.stuck())

    def _replaced(self, child: Child, deadline: float) -> SourceError:
        """Kill a child that hung for too long; a later read starts another."""
        error = self._late(child)
        crumb = child.crumb()
        now = self._monotonic()
        if crumb is not None and crumb.gpu is not None:
            uuid = crumb.uuid or (self._whereabouts.uuid_of(crumb.gpu) if child.has_answered else None)
            self._suspects.accuse(Accused(uuid) if uuid else Accused(None, crumb.gpu), now)
        self._drop_child(min(self._reap_seconds, max(0.0, deadline - now)))
        self._retry_at = now + self._hangs.next_seconds()
        self._failure = SourceError(Cause.TIMEOUT, f"killed its child: {error.detail}", error.stuck)
        return self._failure

    def _failed(self, error: SourceError) -> SourceError:
        """Drop a child that cannot go on; a later read starts another."""
        self._drop_child(_END_SECONDS)
        self._retry_at = self._monotonic() + self._failures.next_seconds()
        self._failure = error
        return error

    def _drop_child(self, reap_seconds: float) -> None:
        child, self._child = self._child, None
        self._pending = None
        self._lists_due_at = -math.inf
        if child is None:
            return
        self._children.end(child, reap_seconds)
        self._xids.told(child.xids())
        self._xids.child_ended()
        child.let_go()
