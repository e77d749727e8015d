"""Log lines that others can provoke: each once, or one of a kind in a minute."""

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

PAUSE_SECONDS = 60.0
MAX_WARNINGS = 1000


class Seldom:
    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_at: dict[str, float] = {}

    def due(self, kind: str) -> bool:
        """Whether a line of this kind may be logged now. Kinds are few, and none is made of what others say."""
        now = self._clock()
        if now < self._due_at.get(kind, now):
            return False
        self._due_at[kind] = now + PAUSE_SECONDS
        return True


class Once:
    def __init__(self) -> None:
        self._warned: set[str] = set()

    def warn(self, text: str) -> None:
        """Log it the first time, and nothing more after MAX_WARNINGS."""
        if text not in self._warned and len(self._warned) < MAX_WARNINGS:
            self._warned.add(text)
            log.warning("%s", text)
