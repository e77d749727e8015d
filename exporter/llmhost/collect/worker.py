"""One long-lived daemon thread per source, which hands out tickets for its readings.

A plain daemon thread and not an executor: a thread that hangs in a read keeps no executor from being shut down, and the
process can end (docs/architecture.md, rule 1).
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.sources.base import ReportsStuckCall, Source, SourceError

T = TypeVar("T")

DISABLED = NotApplicable("disabled by the config")  # in place of a worker's reading

# A source that keeps its own deadline gives a better reason than "late": give it the time to.
_SOURCE_FIRST_SECONDS = 0.1
# An attempt that was waited for in vain may hang for long: the next page does not wait as long again.
_KNOWN_LATE_SECONDS = 0.5

log = logging.getLogger(__name__)


class Clock(Protocol):
    def time(self) -> float: ...  # seconds since the epoch
    def monotonic(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorHealth:
    """The health of a collector. It is kept apart from data: it is never inferred from values."""

    collector: str
    fault: Failed | None  # of the last attempt, or of one that has not come back in time
    duration_seconds: float | None  # of the last attempt that came back
    last_success_at: float | None
    failures: Mapping[Cause, int]


class Ticket(Generic[T]):
    """One attempt, for which several callers may wait."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.late = False  # a caller stopped waiting for it
        self._done = threading.Event()
        self._reading: Reading[T] | None = None

    def resolve(self, reading: Reading[T]) -> None:
        self._reading = reading
        self._done.set()

    def wait(self, seconds: float) -> Reading[T] | None:
        """Wait for the attempt's reading; None if it has not come back in that time."""
        self._done.wait(max(0.0, seconds))
        return self._reading


class Worker(Generic[T]):
    """Reads one source, one attempt at a time, which all callers share."""

    def __init__(self, collector: str, source: Source[T], clock: Clock) -> None:
        self.collector = collector
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._ticket: Ticket[T] | None = None
        self._taken = False
        self._closed = False
        self._fault: Failed | None = Failed(Cause.STARTING)
        self._duration: float | None = None
        self._last_success: float | None = None
        self._failures: dict[Cause, int] = {}
        self._logged: Cause | None = None
        self._thread = threading.Thread(target=self._run, name=f"llmhost-{collector}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self, deadline: float) -> Ticket[T]:
        """Ask for a reading by `deadline` on the monotonic clock; joins the attempt under way if there is one."""
        with self._lock:
            if self._ticket is None:
                self._ticket = Ticket(deadline)
                self._taken = False
                self._wake.notify()
            return self._ticket

    def answer(self, ticket: Ticket[T], deadline: float) -> Reading[T]:
        """Wait for the reading until `deadline`; after that it is a timeout, with the call that the source is in."""
        seconds = deadline + _SOURCE_FIRST_SECONDS - self._clock.monotonic()
        reading = ticket.wait(min(seconds, _KNOWN_LATE_SECONDS) if ticket.late else seconds)
        if reading is not None:
            return reading
        stuck = self._source.stuck() if isinstance(self._source, ReportsStuckCall) else None
        late = Failed(Cause.TIMEOUT, self._source.doing(), stuck)
        if not ticket.late:
            ticket.late = True
            self._note(late)
        return late

    def health(self) -> CollectorHealth | None:
        with self._lock:
            return CollectorHealth(
                collector=self.collector,
                fault=self._fault,
                duration_seconds=self._duration,
                last_success_at=self._last_success,
                failures=dict(self._failures),
            )

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._wake.notify()
        self._source.close()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._closed and (self._ticket is None or self._taken):
                    self._wake.wait()
                if self._closed:
                    return
                ticket = self._ticket
                self._taken = True
            if ticket is not None:
                self._attempt(ticket)

    def _attempt(self, ticket: Ticket[T]) -> None:
        began = self._clock.monotonic()
        reading: Reading[T]
        try:
            reading = Ok(self._source.read(ticket.deadline))
        except SourceError as error:
            reading = Failed(error.cause, error.detail, error.stuck)
        except Exception as error:
            log.exception("collector %s: a bug in its source", self.collector)
            reading = Failed(Cause.UNKNOWN, f"{type(error).__name__}: {error}")
        with self._lock:
            self._duration = self._clock.monotonic() - began
            self._ticket = None
        if not (ticket.late and isinstance(reading, Failed) and reading.cause is Cause.TIMEOUT):  # counted already
            self._note(reading)
        ticket.resolve(reading)

    def _note(self, reading: Reading[T]) -> None:
        """Update the health, and log its changes: once per fault, not once per scrape."""
        with self._lock:
            if not isinstance(reading, Failed):
                self._fault = None
                self._last_success = self._clock.time()
                if self._logged is not None:
                    log.info("collector %s works again", self.collector)
                self._logged = None
                return
            if self._closed:
                return  # it failed because it was closed
            self._fault = reading
            self._failures[reading.cause] = self._failures.get(reading.cause, 0) + 1
            if self._logged != reading.cause:
                self._logged = reading.cause
                log.warning(
                    "collector %s failed: %s%s",
                    self.collector,
                    reading.cause,
                    f" ({reading.detail})" if reading.detail else "",
                )


class DisabledWorker(Worker[T]):
    """In place of the worker of a collector that is switched off: each reading is DISABLED, and it has no health."""

    def __init__(self, collector: str) -> None:
        self.collector = collector

    def start(self) -> None:
        """Nothing is to be read."""

    def ask(self, deadline: float) -> Ticket[T]:
        ticket: Ticket[T] = Ticket(deadline)
        ticket.resolve(DISABLED)
        return ticket

    def answer(self, ticket: Ticket[T], deadline: float) -> Reading[T]:  # noqa: ARG002 - as a Worker has it
        return DISABLED

    def health(self) -> None:
        return None

    def close(self) -> None:
        """Nothing is held open."""
