"""The one history of a running exporter: who looks or watches hands in what it saw, one at a time."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from llmhost.config.schema import Policy
from llmhost.derive.history.changes import with_verdict
from llmhost.derive.history.events import Step, advance_event
from llmhost.derive.history.observations import advance
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import InTheWay, Start, UnitHistory, Verdict
from llmhost.model.ids import UnitId
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit_event import UnitEvent

log = logging.getLogger(__name__)

KEEP_SECONDS = 1.0


class HistoryKeeper:
    """Safe to use from several threads. Nothing in here blocks but `keep`: a thread writes to disk, one at a time."""

    def __init__(
        self, history: History, *, policy: Callable[[], Policy], save: Callable[[History], None] | None
    ) -> None:
        """`save` is None where nothing outlives this process."""
        self._history = history
        self._policy = policy
        self._save = save
        self._latest_look = 0.0
        self._lock = threading.Lock()
        self._saved: History = history
        self._kept = threading.Condition()
        self._wanted = 0  # savings that were asked for
        self._done = 0
        self._slow = False
        if save is not None:
            threading.Thread(target=self._keep_on, args=(save,), name="llmhost-keep", daemon=True).start()

    @property
    def history(self) -> History:
        return self._history

    def look(self, snapshot: Snapshot) -> History:
        """Take a look in, unless somebody's later look is in already."""
        with self._lock:
            if snapshot.at_monotonic >= self._latest_look:
                self._latest_look = snapshot.at_monotonic
                self._history = advance(self._history, snapshot, self._policy())
            return self._history

    def event(self, event: UnitEvent) -> tuple[Step, ...]:
        with self._lock:
            self._history, steps = advance_event(self._history, event)
            return steps

    def judged(
        self,
        unit: UnitId,
        invocation_id: str,
        verdict: Verdict,
        *,
        in_the_way: tuple[InTheWay, ...] = (),
        unknown_because: str = "",
    ) -> Start | None:
        """Take a verdict in; gives the start with it, None where it is no longer remembered."""
        with self._lock:
            record = self._history.units.get(unit)
            if record is None:
                return None
            record = with_verdict(
                record, invocation_id, verdict, in_the_way=in_the_way, unknown_because=unknown_because
            )
            self._put(unit, record)
            return record.start_of(invocation_id)

    def released(self, unit: UnitId, seconds: float) -> None:
        with self._lock:
            record = self._history.units.get(unit)
            if record is not None:
                self._put(unit, replace(record, last_release_seconds=seconds))

    def keep(self, seconds: float = KEEP_SECONDS) -> None:
        """Have saved what is in here by now, so that nothing that a page shows can be lost with this process.

        Waits so long and no longer: a disk that hangs must not take the pages with it.
        """
        if self._save is None:
            return
        with self._kept:
            if self._history is self._saved:
                return
            self._wanted += 1
            mine = self._wanted
            self._kept.notify_all()
            in_time = self._kept.wait_for(lambda: self._done >= mine, seconds)
        if not in_time and seconds and not self._slow:
            log.warning("history is not saved yet after %g s: the disk is slow, or hangs", seconds)
        if seconds:
            self._slow = not in_time

    def _keep_on(self, save: Callable[[History], None]) -> None:
        while True:
            with self._kept:
                self._kept.wait_for(lambda: self._wanted > self._done)
                wanted = self._wanted
            history = self._history
            try:
                save(history)
            except Exception:
                log.exception("a bug in saving the history")
            with self._kept:
                self._done, self._saved = wanted, history
                self._kept.notify_all()

    def _put(self, unit: UnitId, record: UnitHistory) -> None:
        units: Mapping[UnitId, UnitHistory] = {**self._history.units, unit: record}
        self._history = replace(self._history, units=units)
