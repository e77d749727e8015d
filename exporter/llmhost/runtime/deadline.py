"""One deadline for all that comes over a socket, whose own timeout starts anew with every byte."""

import io
import socket
import time
from collections.abc import Callable
from typing import Any


class Deadline:
    """`at` is a time of the monotonic clock; it may be moved."""

    def __init__(self, at: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.at = at
        self._monotonic = monotonic

    def remaining(self) -> float:
        """Seconds. Raises TimeoutError when there are none."""
        remaining = self.at - self._monotonic()
        if remaining <= 0:
            raise TimeoutError
        return remaining


class DeadlineStream(io.RawIOBase):
    """The bytes that come over a socket. Raises TimeoutError from the deadline on."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        self._connection = connection
        self.deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        self._connection.settimeout(self.deadline.remaining())
        return self._connection.recv_into(buffer)
