"""Pauses the use of the driver for as long as it is requested, also while nobody scrapes."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

_CHECK_SECONDS = 0.5  # of a file in memory; the command waits for it
_SAME_SECONDS = 1.0  # two times that are no further apart are one

log = logging.getLogger(__name__)


class Pausable(Protocol):
    def pause(self, why: str) -> tuple[int, ...]:
        """Close the driver until `resume`; give the pids of children that do not die. May be repeated."""
        ...

    def resume(self) -> None: ...


class DriverPause:
    """A thread of its own. It has checked once when `start` comes back, so that nothing is touched before."""

    def __init__(self, source: Pausable, requested_seconds: Callable[[], float]) -> None:
        """`requested_seconds` gives the rest of the pause, 0.0 where none is requested; it is called often."""
        self._source = source
        self._requested_seconds = requested_seconds
        self._paused_until: float | None = None  # on the monotonic clock
        self._hanging: tuple[int, ...] = ()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="llmhost-driver-pause", daemon=True)

    def start(self) -> None:
        self._check()
        self._thread.start()

    def close(self, seconds: float) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._end.wait(_CHECK_SECONDS):
            self._check()

    def _check(self) -> None:
        try:
            seconds = self._requested_seconds()
            if seconds > 0:
                self._pause(seconds)
            elif self._paused_until is not None:
                self._paused_until, self._hanging = None, ()
                self._source.resume()
                log.info("the driver is read again: the pause is over")
        except Exception:
            log.exception("a bug in the driver pause")

    def _pause(self, seconds: float) -> None:
        before, until = self._paused_until, time.monotonic() + seconds
        new = before is None or abs(until - before) > _SAME_SECONDS
        if not new and not self._hanging:
            return
        at = time.strftime("%H:%M:%S", time.localtime(time.time() + seconds))
        if new:
            self._paused_until = until
            log.info("the driver is paused until %s, as llmhost release asks", at)
        hung_before, self._hanging = self._hanging, self._source.pause(f"until {at}, as llmhost release asks")
        if self._hanging and self._hanging != hung_before:
            pids = ", ".join(map(str, self._hanging))
            log.warning("NVML child %s hangs in the driver and does not die: it has the driver open still", pids)
        elif hung_before and not self._hanging:
            log.info("the NVML children that hung are gone")
