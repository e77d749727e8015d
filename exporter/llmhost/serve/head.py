"""Read a request's head for http.server: bounded, and with a strict check where its parser is lenient (RFC 9112)."""

import io
import re
from http import HTTPStatus
from typing import Final

LONGEST_LINE_BYTES: Final = 8 << 10
LONGEST_HEAD_BYTES: Final = 32 << 10

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(_TOKEN + rb" ([\x21-\x7e]+) HTTP/([0-9])\.[0-9]\r?\n")
_HEADER_LINE = re.compile(rb"(?:" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*)?\r?\n")
# The absolute form is for proxies, but every server must take it (RFC 9112, 3.2.2).
_ABSOLUTE = re.compile(rb"^https?://[^/?#]*", re.IGNORECASE)


class RequestError(Exception):
    """The arguments are the status and the reason. Nothing more can be read from the connection."""


class HeadReader(io.BufferedReader):
    """Raises RequestError as soon as it is clear that no acceptable head comes, EOFError when a part of one came."""

    def wait(self) -> bool:
        """Wait for a request's first byte; False when none comes any more."""
        while (first := self.peek(1)[:1]) in {b"\r", b"\n"}:  # a line too many after the last request (RFC 9112, 2.2)
            self.read(1)
        if first and not first.isalpha():
            raise RequestError(HTTPStatus.BAD_REQUEST, "this is not HTTP")
        return bool(first)

    def read_request_line(self) -> bytes:
        self._left_bytes = LONGEST_LINE_BYTES
        line = self._line(HTTPStatus.REQUEST_URI_TOO_LONG, f"the request line exceeds {LONGEST_LINE_BYTES} bytes")
        self._left_bytes += LONGEST_HEAD_BYTES - LONGEST_LINE_BYTES
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

    def _line(self, too_long: HTTPStatus, reason: str) -> bytes:
        line = super().readline(self._left_bytes)
        self._left_bytes -= len(line)
        if line.endswith(b"\n"):
            return line
        raise EOFError if self._left_bytes else RequestError(too_long, reason)


def split_target(request_line: bytes) -> tuple[str, str]:
    """Return the path and the query of a request line that was read, both percent-encoded."""
    path, _, query = _ABSOLUTE.sub(b"", request_line.split()[1]).decode("ascii").partition("?")
    return path or "/", query
