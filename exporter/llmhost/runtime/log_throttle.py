"""Log lines that clients, peers or units can provoke: each text once, or each kind once a minute."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

INTERVAL_SECONDS: Final = 60.0
MOST_KINDS: Final = 200
MOST_TEXTS: Final = 1000


class ThrottledLog:
    """A logger that writes each kind of line once a minute, with the number held back. Safe from several threads."""

    def __init__(self, logger: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._logged: dict[str, tuple[float, int]] = {}  # kind: when last logged, how many held back since

    def log(self, level: int, kind: str, message: str, *, exception: BaseException | None = None) -> None:
        with self._lock:
            now = self._clock()
            last, held_back = self._logged.get(kind, (-INTERVAL_SECONDS, 0))
            if now - last < INTERVAL_SECONDS:
                self._logged[kind] = (last, held_back + 1)
                return
            if len(self._logged) >= MOST_KINDS:
                self._logged.clear()
            self._logged[kind] = (now, 0)
        again = f" ({held_back} more like this since the last such line)" if held_back else ""
        self._logger.log(level, "%s%s", message, again, exc_info=exception)


class OnceLog:
    """A logger that writes each text once, and no more than MOST_TEXTS texts."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._logged: set[str] = set()

    def warning(self, text: str) -> None:
        if text not in self._logged and len(self._logged) < MOST_TEXTS:
            self._logged.add(text)
            self._logger.warning("%s", text)
