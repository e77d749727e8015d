"""Readings for a thread that has other things to do meanwhile: pending ones, and the processes that were read last."""

from typing import Generic, TypeVar

from llmhost.collect.worker import Clock, Ticket, Worker
from llmhost.model.gpu import NvmlReport
from llmhost.model.process import ProcessTable
from llmhost.model.reading import NotApplicable, Ok, Reading

T = TypeVar("T")

_FRESH_SECONDS = 5.0  # processes that are older are read again in time
_KEPT_SECONDS = 10.0  # and those that are older are not used


class PendingReading(Generic[T]):
    """A worker's next reading, within so many seconds of each request. For use by one thread."""

    def __init__(self, worker: Worker[T], clock: Clock, *, seconds: float) -> None:
        self._worker = worker
        self._clock = clock
        self._seconds = seconds
        self._ticket: Ticket[T] | None = None

    def take(self) -> Reading[T] | None:
        """Return the reading that was requested, None while it is under way; request one where none was."""
        if self._ticket is None:
            self._ticket = self._worker.ask(self._clock.monotonic() + self._seconds)
        late = self._clock.monotonic() >= self._ticket.deadline
        reading = self._worker.answer(self._ticket, self._ticket.deadline) if late else self._ticket.wait(0.0)
        if reading is not None:
            self._ticket = None
        return reading


class KnownProcesses:
    """The processes that were read last, for as long as they are those that hold GPU memory. For use by one thread.

    Reading all processes of a host takes far longer than reading memory in use.
    """

    def __init__(self, worker: Worker[ProcessTable], clock: Clock, *, seconds: float) -> None:
        self._clock = clock
        self._tables = PendingReading(worker, clock, seconds=seconds)
        self._table: Reading[ProcessTable] = NotApplicable("not read yet")

    def read(self) -> Reading[ProcessTable] | None:
        """Read them anew; None while that is under way."""
        table = self._tables.take()
        if table is not None:
            self._table = table
        return table

    def fitting(self, report: NvmlReport) -> Ok[ProcessTable] | None:
        """Give the processes read last if they are those of these lists: all that lived then, and no others."""
        known = self._table
        if not isinstance(known, Ok):
            return None
        if self._age_seconds(known.value) > _FRESH_SECONDS:
            newer = self._tables.take()  # so that it is there before this is too old
            if isinstance(newer, Ok):
                known = self._table = newer
        if self._age_seconds(known.value) > _KEPT_SECONDS:
            return None
        table = known.value
        fits = all(
            holder.process is None or (table.of(holder.process) is not None) == holder.alive
            for gpu in report.gpus
            if isinstance(gpu.holders, Ok)
            for holder in gpu.holders.value
        )
        return known if fits else None

    def _age_seconds(self, table: ProcessTable) -> float:
        return self._clock.monotonic() - (table.read_at_monotonic or 0.0)
