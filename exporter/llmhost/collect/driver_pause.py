"""Keeps off the driver for as long as somebody wishes it, also while nobody scrapes."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

_LOOK_SECONDS = 0.5  # at a file in memory; whoever wishes waits for it
_SAME_SECONDS = 1.0  # two times that are no further apart are one

log = logging.getLogger(__name__)


class Releasable(Protocol):
    def release(self, why: str) -> tuple[int, ...]:
        """Let go, and read nothing until `resume`; give the pids of children that do not die. May be repeated."""
        ...

    def resume(self) -> None: ...


class DriverPause:
    """A thread of its own. It has looked once when `start` comes back, so that nothing is touched before."""

    def __init__(self, source: Releasable, wished_seconds: Callable[[], float]) -> None:
        """`wished_seconds` says for how long the wish still holds, 0.0 where there is none; it is asked often."""
        self._source = source
        self._wished_seconds = wished_seconds
        self._let_go_until: float | None = None  # on the monotonic clock
        self._hanging: tuple[int, ...] = ()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="llmhost-letting-go", daemon=True)

    def start(self) -> None:
        self._look()
        self._thread.start()

    def close(self, seconds: float) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._end.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        try:
            seconds = self._wished_seconds()
            if seconds > 0:
                self._release(seconds)
            elif self._let_go_until is not None:
                self._let_go_until, self._hanging = None, ()
                self._source.resume()
                log.info("the driver may be read again: the release is over")
        except Exception:
            log.exception("a bug in letting go of the driver")

    def _release(self, seconds: float) -> None:
        before, until = self._let_go_until, time.monotonic() + seconds
        new = before is None or abs(until - before) > _SAME_SECONDS
        if not new and not self._hanging:
            return
        at = time.strftime("%H:%M:%S", time.localtime(time.time() + seconds))
        if new:
            self._let_go_until = until
            log.info("the driver is let go of until %s, as llmhost release asks", at)
        before_that, self._hanging = self._hanging, self._source.release(f"until {at}, as llmhost release asks")
        if self._hanging and self._hanging != before_that:
            pids = ", ".join(map(str, self._hanging))
            log.warning("NVML child %s hangs in the driver and does not die: it has the driver open still", pids)
        elif before_that and not self._hanging:
            log.info("the NVML children that hung are gone")
