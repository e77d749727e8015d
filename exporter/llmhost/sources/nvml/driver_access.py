"""Whether the driver may be touched, and the descriptor that ends a wait for it once it may not be."""

import contextlib
import os
import threading

from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError


class Gate:
    """Open at first. From any thread."""

    def __init__(self) -> None:
        self.wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # readable: who waits is to wait no longer
        self._writing = threading.Lock()  # so that nothing is written to the descriptor once it is closed
        self._released = ""  # why, while the driver is let go of
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def release(self, why: str) -> None:
        with self._writing:
            if not self._closed:
                self._released = why
                os.eventfd_write(self.wake, 1)

    def calm(self) -> None:
        """Let waits be possible again; for whoever keeps others from waiting, and from closing `wake`."""
        with self._writing, contextlib.suppress(BlockingIOError):
            if not self._closed:
                os.eventfd_read(self.wake)

    def resume(self) -> None:
        self._released = ""

    def close(self) -> bool:
        """Close for good, but keep the descriptor; False where it was closed before."""
        with self._writing:
            first, self._closed = not self._closed, True
            if first:
                os.eventfd_write(self.wake, 1)
            return first

    def error(self) -> SourceError | None:
        """Say why there is nothing to be read, for ever or for a while, whatever the driver does."""
        if self._closed:
            return SourceError(Cause.UNKNOWN, "closed")
        why = self._released
        return SourceError(Cause.RELEASED, why) if why else None
