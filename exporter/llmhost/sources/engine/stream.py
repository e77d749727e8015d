"""What a server sends, by one deadline and within one size, whatever reads it."""

import io
import socket
from collections.abc import Callable
from typing import Any, Final

from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError

MOST_FRAMING_BYTES: Final = 256 * 1024  # what may come beside a body: headers, chunk sizes, 100 Continue, trailers


class Deadline:
    def __init__(self, at: float, monotonic: Callable[[], float]) -> None:
        self._at = at
        self._monotonic = monotonic

    def left(self) -> float:
        """Seconds. Raises TimeoutError when there are none."""
        left = self._at - self._monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class Stream(io.RawIOBase):
    """What comes over a socket; http.client wants it from makefile().

    What is asked of http.client bounds nothing: it takes a chunk of -1 bytes for "all that comes", and skips as many
    "100 Continue" as there are. So the bytes are counted here. Raises TimeoutError, and SourceError with TOO_LARGE.
    """

    def __init__(self, connection: socket.socket, deadline: Deadline, max_bytes: int) -> None:
        self._connection = connection
        self._deadline = deadline
        self._max_bytes = max_bytes
        self._left = max_bytes + MOST_FRAMING_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        self._connection.settimeout(self._deadline.left())
        count = self._connection.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise SourceError(Cause.TOO_LARGE, f"more than {self._max_bytes} bytes")
        return count

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)
