"""Permission to touch the driver, and the descriptor that ends a wait for it once there is none."""

import contextlib
import os
import threading

from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError


class DriverAccess:
    """Granted at first; withheld during a driver pause, and for good once closed. From any thread."""

    def __init__(self) -> None:
        self.wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # readable: no more waiting
        self._writing = threading.Lock()  # so that nothing is written to the descriptor once it is closed
        self._paused_why = ""
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def pause(self, why: str) -> None:
        with self._writing:
            if not self._closed:
                self._paused_why = why
                os.eventfd_write(self.wake, 1)

    def rearm(self) -> None:
        """Let waits be possible again; for a caller that keeps others from waiting, and from closing `wake`."""
        with self._writing, contextlib.suppress(BlockingIOError):
            if not self._closed:
                os.eventfd_read(self.wake)

    def resume(self) -> None:
        self._paused_why = ""

    def close(self) -> bool:
        """Close for good, but keep the descriptor; False where it was closed before."""
        with self._writing:
            first, self._closed = not self._closed, True
            if first:
                os.eventfd_write(self.wake, 1)
            return first

    def error(self) -> SourceError | None:
        """Give the reason why nothing can be read, whatever the driver does; None where access is granted."""
        if self._closed:
            return SourceError(Cause.UNKNOWN, "closed")
        why = self._paused_why
        return SourceError(Cause.RELEASED, why) if why else None
