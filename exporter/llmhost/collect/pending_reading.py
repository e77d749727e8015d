"""Readings that are waited for while other things are done."""

from typing import Generic, TypeVar

from llmhost.collect.worker import Clock, Ticket, Worker
from llmhost.model.reading import Reading

T = TypeVar("T")


class Asked(Generic[T]):
    """What one worker is asked for, each time within so many seconds. For use by one thread."""

    def __init__(self, worker: Worker[T], clock: Clock, *, seconds: float) -> None:
        self._worker = worker
        self._clock = clock
        self._seconds = seconds
        self._ticket: Ticket[T] | None = None

    def take(self) -> Reading[T] | None:
        """Give what was asked for, and None while it is under way; ask where nothing was."""
        if self._ticket is None:
            self._ticket = self._worker.ask(self._clock.monotonic() + self._seconds)
        late = self._clock.monotonic() >= self._ticket.deadline
        reading = self._worker.answer(self._ticket, self._ticket.deadline) if late else self._ticket.wait(0.0)
        if reading is not None:
            self._ticket = None
        return reading
