"""Saving the history while the exporter runs: when to do it, and what to log."""

import logging
import time
from collections.abc import Callable
from threading import Thread

from llmhost.model.history.history import History
from llmhost.state.directory import StoreError
from llmhost.state.history_file import HistoryFile

_VOLATILE_SECONDS = 60.0  # between savings of what another observation shows again
_SYNC_SECONDS = 300.0  # between synced copies

log = logging.getLogger(__name__)


class HistorySaver:
    """Saves, and logs once when that fails and once when it works again.

    What outlives a boot, with its counters and the boot's GPUs, is saved whenever it has changed. The rest changes with
    each observation, and the next shows it again: it is saved along with that, and by itself once a minute.

    A history that cannot be saved does not stop the exporter from serving; the next call tries again. Only a durable
    call waits for the disk. Else a thread makes a synced copy every five minutes, so that a power failure costs no more
    than that.
    """

    def __init__(self, store: HistoryFile, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._saved: History | None = None
        self._saved_at = 0.0
        self._fault = ""
        self._synced_at: float | None = None
        self._sync_fault = ""
        self._syncing: Thread | None = None

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
        if not durable and (self._synced_at is None or now - self._synced_at >= _SYNC_SECONDS):
            self._start_sync(now)

    def wait_until_synced(self) -> None:
        """Wait for the copy that is being made, if one is."""
        if self._syncing is not None:
            self._syncing.join()

    def _is_saved(self, history: History, now: float) -> bool:
        if self._saved is None or now - self._saved_at >= _VOLATILE_SECONDS:
            return False
        return _lasting(history) == _lasting(self._saved)

    def _start_sync(self, now: float) -> None:
        if self._syncing is not None and self._syncing.is_alive():
            return  # on a slow disk
        self._synced_at = now
        self._syncing = Thread(target=self._sync, name="llmhost-secure", daemon=True)
        self._syncing.start()

    def _sync(self) -> None:
        try:
            self._store.sync()
        except StoreError as error:
            if not self._sync_fault:
                self._sync_fault = str(error)
                log.info("history may be lost if the power fails: %s", error)


def _lasting(history: History) -> tuple[object, ...]:
    """Give what outlives a boot (derive.history.resume), and what the next observation may not show again."""
    return history.units, history.gpu_sets, history.readiness, history.last_servers, history.gpus
