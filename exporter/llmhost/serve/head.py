"""Read a request's head for http.server: bounded, and with a strict check where its parser is lenient (RFC 9112)."""

import io
import re
import socket
import time
from http import HTTPStatus
from typing import Final

LONGEST_LINE_BYTES: Final = 8 << 10
LONGEST_HEAD_BYTES: Final = 32 << 10
RECEIVE_BYTES: Final = 16 << 10

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(_TOKEN + rb" ([\x21-\x7e]+) HTTP/([0-9])\.[0-9]\r?\n")
_HEADER_LINE = re.compile(rb"(?:" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*)?\r?\n")
# The absolute form is for proxies, but every server must take it (RFC 9112, 3.2.2).
_ABSOLUTE = re.compile(rb"^https?://[^/?#]*", re.IGNORECASE)


class RequestError(Exception):
    """The arguments are the status and the reason. Nothing more can be read from the connection."""


class HeadReader(io.BufferedIOBase):
    """Reads the heads of a client's requests, each until a deadline.

    Raises RequestError as soon as it is clear that no acceptable head comes, ConnectionError when none comes any more.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._received = b""
        self._deadline = 0.0

    def wait(self, seconds: float) -> None:
        """Wait for a request's first byte."""
        self._deadline = time.monotonic() + seconds
        while not self._received.strip(b"\r\n"):  # some clients send an empty line after a request (RFC 9112, 2.2)
            self._received = b""
            self._receive()
        self._received = self._received.lstrip(b"\r\n")

    def read_request_line(self, head_seconds: float) -> bytes:
        if not self._received[:1].isalpha():
            raise RequestError(HTTPStatus.BAD_REQUEST, "this is not HTTP")
        self._deadline = min(self._deadline, time.monotonic() + head_seconds)
        self._remaining_bytes = LONGEST_LINE_BYTES
        line = self._line(HTTPStatus.REQUEST_URI_TOO_LONG, f"the request line exceeds {LONGEST_LINE_BYTES} bytes")
        self._remaining_bytes += LONGEST_HEAD_BYTES - LONGEST_LINE_BYTES
        match = _REQUEST_LINE.fullmatch(line)
        if match is None:
            raise RequestError(HTTPStatus.BAD_REQUEST, "a malformed request line")
        if match[2] != b"1":
            raise RequestError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "this server speaks HTTP/1.0 and HTTP/1.1")
        if not match[1].startswith(b"/") and not _ABSOLUTE.match(match[1]):
            raise RequestError(HTTPStatus.BAD_REQUEST, "the request's target is no path")
        return line

    def readline(self, _size: int | None = -1, /) -> bytes:
        """Read a line after the first one."""
        reason = f"the request's head exceeds {LONGEST_HEAD_BYTES} bytes"
        line = self._line(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)
        if not _HEADER_LINE.fullmatch(line):
            raise RequestError(HTTPStatus.BAD_REQUEST, "a malformed header")
        return line

    def drain(self, seconds: float, most_bytes: int) -> None:
        """Take in what still comes."""
        self._deadline = time.monotonic() + seconds
        while len(self._received) < most_bytes:
            self._receive()

    def _line(self, too_long: HTTPStatus, reason: str) -> bytes:
        while not (length := self._received.find(b"\n", 0, self._remaining_bytes) + 1):
            if len(self._received) >= self._remaining_bytes:
                raise RequestError(too_long, reason)
            self._receive()
        line, self._received = self._received[:length], self._received[length:]
        self._remaining_bytes -= length
        return line

    def _receive(self) -> None:
        limit(self._socket, self._deadline)
        data = self._socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionAbortedError
        self._received += data


def limit(sock: socket.socket, deadline: float) -> None:
    """Let the next call take until the deadline. Raises TimeoutError after it."""
    remaining_seconds = deadline - time.monotonic()
    if remaining_seconds <= 0:
        raise TimeoutError
    sock.settimeout(remaining_seconds)


def split_target(request_line: bytes) -> tuple[str, str]:
    """Return the path and the query of a request line that was read, both percent-encoded."""
    path, _, query = _ABSOLUTE.sub(b"", request_line.split()[1]).decode("ascii").partition("?")
    return path or "/", query
