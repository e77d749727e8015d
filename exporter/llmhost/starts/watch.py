"""Acts on unit events as they come: has each start judged, logs each end, and has its memory release timed."""

import logging
import threading
import time

from llmhost.collect.history_keeper import HistoryKeeper
from llmhost.derive.history.events import Ended, MainStarted, Step
from llmhost.model.ids import UnitId
from llmhost.model.unit import Unit
from llmhost.model.unit_event import UnitEvent
from llmhost.runtime.mailbox import Mailbox
from llmhost.starts.judge import Judge
from llmhost.starts.memory_release import ReleaseTimer
from llmhost.starts.start_log import end_line

log = logging.getLogger(__name__)

_SAVE_SECONDS = 10.0  # between two savings while nobody scrapes
_MAX_UNITS = 2000  # kept in memory: users may have systemd run units of ever new names


class StartWatcher:
    """A thread of its own, so that the reader of the bus, which hands in the events, is never held up."""

    def __init__(
        self,
        *,
        keeper: HistoryKeeper,
        judge: Judge,
        release: ReleaseTimer,
    ) -> None:
        self._keeper = keeper
        self._judge = judge
        self._release = release
        self._mailbox = Mailbox[UnitEvent]()
        self._units: dict[UnitId, Unit] = {}
        self._units_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="llmhost-watch", daemon=True)

    def start(self) -> None:
        self._judge.start()
        self._release.start()
        self._thread.start()

    def put(self, event: UnitEvent) -> None:
        """Hand in an event; called from any thread, in the order of events."""
        self._mailbox.put(event)

    def units(self) -> tuple[Unit, ...]:
        """Give the watched units, each as of its last event that was acted on."""
        with self._units_lock:
            return tuple(self._units.values())

    def close(self, seconds: float) -> None:
        """Act on the events handed in by now, and end."""
        self._mailbox.close()
        if self._thread.is_alive():
            self._thread.join(seconds)
        self._judge.close()
        self._release.close()

    def _run(self) -> None:
        saved_at = time.monotonic()
        while True:
            events, closed = self._mailbox.take(max(0.0, saved_at + _SAVE_SECONDS - time.monotonic()))
            for event in events:
                try:
                    self._act_on(event)
                except Exception:
                    log.exception("a bug in acting on an event of %s", event.unit.id.name)
            if closed:
                return
            if time.monotonic() >= saved_at + _SAVE_SECONDS:
                self._keeper.save(0.0)
                saved_at = time.monotonic()

    def _act_on(self, event: UnitEvent) -> None:
        steps = self._keeper.add_event(event)
        with self._units_lock:
            self._units.pop(event.unit.id, None)
            self._units[event.unit.id] = event.unit
            if len(self._units) > _MAX_UNITS:
                del self._units[next(iter(self._units))]
        for step in steps:
            self._act_on_step(step)

    def _act_on_step(self, step: Step) -> None:
        match step:
            case MainStarted():
                self._judge.put(step)
            case Ended():
                self._judge.log_behind_start(step.unit.id, step.start, end_line(step))
                self._release.put(step)
