"""HistorySaver while the exporter runs: when, and what is said of it."""

import logging
import time
from collections.abc import Callable
from threading import Thread

from llmhost.model.history.history import History
from llmhost.state.directory import StoreError
from llmhost.state.history_file import HistoryFile

_TRIFLES_SECONDS = 60.0
_SECURE_SECONDS = 300.0

log = logging.getLogger(__name__)


class HistorySaver:
    """Saves, and says in the log when that fails and when it works again: once each, not each time.

    What outlives a boot is saved whenever it has changed: counters are in it. The rest, which changes with each look
    and is seen again by the next, is saved along with it, and by itself once a minute.

    A history that cannot be saved is no reason not to serve. The next call tries again. No call waits for the disk but
    a durable one: every five minutes a thread does, so that a power failure costs no more than those.
    """

    def __init__(self, store: HistoryFile, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._saved: History | None = None
        self._saved_at = 0.0
        self._fault = ""
        self._secured_at: float | None = None
        self._insecure = ""
        self._securing: Thread | None = None

    def __call__(self, history: History, *, durable: bool = False) -> None:
        now = self._monotonic()
        if not durable and self._is_saved(history, now):
            return
        try:
            self._store.save(history, durable=durable)
        except StoreError as error:
            self._saved = None
            if str(error) != self._fault:
                self._fault = str(error)
                log.warning("history is not saved: %s; it is tried again", error)
            return
        self._saved, self._saved_at = history, now
        if self._fault:
            self._fault = ""
            log.info("history is saved again in %s", self._store.path)
        if not durable and (self._secured_at is None or now - self._secured_at >= _SECURE_SECONDS):
            self._start_securing(now)

    def wait_until_secure(self) -> None:
        """Wait for the copy that is being made, if one is."""
        if self._securing is not None:
            self._securing.join()

    def _is_saved(self, history: History, now: float) -> bool:
        if self._saved is None or now - self._saved_at >= _TRIFLES_SECONDS:
            return False
        return _lasting(history) == _lasting(self._saved)

    def _start_securing(self, now: float) -> None:
        if self._securing is not None and self._securing.is_alive():
            return  # on a disk as slow as that
        self._secured_at = now
        self._securing = Thread(target=self._secure, name="llmhost-secure", daemon=True)
        self._securing.start()

    def _secure(self) -> None:
        try:
            self._store.secure()
        except StoreError as error:
            if not self._insecure:
                self._insecure = str(error)
                log.info("history may be lost if the power fails: %s", error)


def _lasting(history: History) -> tuple[object, ...]:
    """Take what outlives a boot (derive.history.resume)."""
    return history.units, history.gpu_sets, history.readiness
