"""Read a request's head for http.server: bounded, and with a strict check where its parser is lenient (RFC 9112)."""

import io
import re
import socket
import time
from http import HTTPStatus
from typing import Any, Final

from llmhost.runtime.deadline import Deadline, DeadlineStream

LONGEST_LINE_BYTES: Final = 8 << 10
LONGEST_HEAD_BYTES: Final = 32 << 10
RECEIVE_BYTES: Final = 16 << 10

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(_TOKEN + rb" ([\x21-\x7e]+) HTTP/([0-9])\.[0-9]\r?\n")
_HEADER_LINE = re.compile(rb"(?:" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*)?\r?\n")
# The absolute form is for proxies, but every server must take it (RFC 9112, 3.2.2).
_ABSOLUTE = re.compile(rb"^https?://[^/?#]*/?", re.IGNORECASE)


class RequestError(Exception):
    """The arguments are the status and the reason. Nothing more can be read from the connection."""


class _Stream(DeadlineStream):
    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        if received_bytes := super().readinto(buffer):
            return received_bytes
        raise ConnectionAbortedError


class HeadReader(io.BufferedReader):
    """Reads the heads of a client's requests, each until a deadline.

    Raises RequestError as soon as it is clear that no acceptable head comes, ConnectionError when none comes any more,
    TimeoutError after the deadline.
    """

    raw: _Stream
    target: str  # of the last request line: path and query, percent-encoded

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(_Stream(sock, Deadline(0.0)), RECEIVE_BYTES)

    def wait(self, seconds: float) -> None:
        """Wait for a request's first byte."""
        self.raw.deadline.at = time.monotonic() + seconds
        # Some clients send an empty line after a request (RFC 9112, 2.2).
        while blank := len(received := self.peek(1)) - len(received.lstrip(b"\r\n")):
            self.read(blank)

    def read_request_line(self, head_seconds: float) -> bytes:
        if not self.peek(1)[:1].isalpha():
            raise RequestError(HTTPStatus.BAD_REQUEST, "this is not HTTP")
        self.raw.deadline.at = min(self.raw.deadline.at, time.monotonic() + head_seconds)
        line = super().readline(LONGEST_LINE_BYTES)
        self._remaining_bytes = LONGEST_HEAD_BYTES - len(line)
        if not line.endswith(b"\n"):
            reason = f"the request line exceeds {LONGEST_LINE_BYTES} bytes"
            raise RequestError(HTTPStatus.REQUEST_URI_TOO_LONG, reason)
        match = _REQUEST_LINE.fullmatch(line)
        if match is None:
            raise RequestError(HTTPStatus.BAD_REQUEST, "a malformed request line")
        if match[2] != b"1":
            raise RequestError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "this server speaks HTTP/1.0 and HTTP/1.1")
        self.target = _ABSOLUTE.sub(b"/", match[1]).decode("ascii")
        if not self.target.startswith("/"):
            raise RequestError(HTTPStatus.BAD_REQUEST, "the request's target is no path")
        return line

    def readline(self, _size: int | None = -1, /) -> bytes:
        """Read a line after the first one."""
        line = super().readline(self._remaining_bytes)
        self._remaining_bytes -= len(line)
        if not line.endswith(b"\n"):
            reason = f"the request's head exceeds {LONGEST_HEAD_BYTES} bytes"
            raise RequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)
        if not _HEADER_LINE.fullmatch(line):
            raise RequestError(HTTPStatus.BAD_REQUEST, "a malformed header")
        return line

    def drain(self, seconds: float, most_bytes: int) -> None:
        """Take in what still comes."""
        self.raw.deadline.at = time.monotonic() + seconds
        self.read(most_bytes)
