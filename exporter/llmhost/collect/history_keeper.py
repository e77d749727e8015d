"""The one history of a running exporter: observations, unit events and their outcomes are added, one at a time."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from llmhost.config.schema import Policy
from llmhost.derive.history.changes import with_verdict
from llmhost.derive.history.events import Step, with_event
from llmhost.derive.history.observations import with_observation
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import InTheWay, Short, Start, UnitHistory, Verdict
from llmhost.model.ids import UnitId
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit_event import UnitEvent

log = logging.getLogger(__name__)

SAVE_SECONDS = 1.0


class HistoryKeeper:
    """Safe to use from several threads. Only `save` waits, for a bounded time: a thread of its own writes to disk."""

    def __init__(
        self, history: History, *, policy: Callable[[], Policy], save: Callable[[History], None] | None
    ) -> None:
        """`save` is None where nothing outlives this process."""
        self._history = history
        self._policy = policy
        self._save = save
        self._observed_monotonic = 0.0
        self._lock = threading.Lock()
        self._saved: History = history
        self._changed = threading.Condition()
        self._requested = 0  # savings
        self._done = 0
        self._slow = False
        if save is not None:
            threading.Thread(target=self._write, args=(save,), name="llmhost-keep", daemon=True).start()

    @property
    def history(self) -> History:
        return self._history

    def add_observation(self, snapshot: Snapshot) -> History:
        """Take in a snapshot, unless a later one has been taken in already."""
        with self._lock:
            if snapshot.at_monotonic >= self._observed_monotonic:
                self._observed_monotonic = snapshot.at_monotonic
                self._history = with_observation(self._history, snapshot, self._policy())
            return self._history

    def add_event(self, event: UnitEvent) -> tuple[Step, ...]:
        with self._lock:
            self._history, steps = with_event(self._history, event)
            return steps

    def add_verdict(
        self,
        unit: UnitId,
        invocation_id: str,
        verdict: Verdict,
        *,
        in_the_way: tuple[InTheWay, ...] = (),
        short: tuple[Short, ...] = (),
        unknown_because: str = "",
    ) -> Start | None:
        """Add a start's verdict; gives the start with it, None where the history no longer has it."""
        with self._lock:
            unit_history = self._history.units.get(unit)
            if unit_history is None:
                return None
            unit_history = with_verdict(
                unit_history,
                invocation_id,
                verdict,
                in_the_way=in_the_way,
                short=short,
                unknown_because=unknown_because,
            )
            self._put(unit, unit_history)
            return unit_history.start_of(invocation_id)

    def add_release(self, unit: UnitId, seconds: float) -> None:
        with self._lock:
            unit_history = self._history.units.get(unit)
            if unit_history is not None:
                self._put(unit, replace(unit_history, last_release_seconds=seconds))

    def save(self, wait_seconds: float = SAVE_SECONDS) -> None:
        """Have the present history saved, so that nothing that a page shows is lost with this process.

        Waits for that no longer than given: a disk that hangs must not keep pages from being served.
        """
        if self._save is None:
            return
        with self._changed:
            if self._history is self._saved:
                return
            self._requested += 1
            request = self._requested
            self._changed.notify_all()
            in_time = self._changed.wait_for(lambda: self._done >= request, wait_seconds)
        if not in_time and wait_seconds and not self._slow:
            log.warning("history is not saved yet after %g s: the disk is slow, or hangs", wait_seconds)
        if wait_seconds:
            self._slow = not in_time

    def _write(self, save: Callable[[History], None]) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._requested > self._done)
                request = self._requested
            history = self._history
            try:
                save(history)
            except Exception:
                log.exception("a bug in saving the history")
            with self._changed:
                self._done, self._saved = request, history
                self._changed.notify_all()

    def _put(self, unit: UnitId, unit_history: UnitHistory) -> None:
        self._history = replace(self._history, units={**self._history.units, unit: unit_history})
