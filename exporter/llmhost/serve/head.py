"""The head of an HTTP/1 request (RFC 9112): pure, bounded, and strict where leniency would let two readers disagree."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

LONGEST_LINE_BYTES: Final = 8 << 10
LONGEST_HEAD_BYTES: Final = 32 << 10
MOST_HEADERS: Final = 100

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_METHOD_START = re.compile(rb"[A-Za-z]")
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e\x80-\xff]+) HTTP/([0-9])\.([0-9])")
_HEADER = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_ABSOLUTE = re.compile(r"(?i:https?)://[^/?#]*")


class BadRequestError(Exception):
    """The request cannot be served; the connection is of no use after it."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    method: str
    path: str  # as sent, percent-encoded
    query: str  # as sent, without the "?"
    version: tuple[int, int]
    headers: Mapping[str, str]  # names in lower case; the values of a repeated one joined by ", "

    @property
    def has_body(self) -> bool:
        return "transfer-encoding" in self.headers or self.headers.get("content-length", "0") != "0"

    @property
    def keep_alive(self) -> bool:
        """Whether another request may follow; not after a body, since nobody here reads bodies."""
        tokens = {token.strip().lower() for token in self.headers.get("connection", "").split(",")}
        return self.version >= (1, 1) and "close" not in tokens and not self.has_body


def head_length(received: bytes | bytearray) -> int:
    """How many bytes of `received` are a whole head; 0 when more must come.

    Raises BadRequestError as soon as it is clear that no acceptable head can come of it.
    """
    if received and not _METHOD_START.match(received):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "this is not HTTP")
    line_end = received.find(b"\n", 0, LONGEST_LINE_BYTES)
    if line_end < 0 and len(received) >= LONGEST_LINE_BYTES:
        raise BadRequestError(HTTPStatus.REQUEST_URI_TOO_LONG, f"the request line exceeds {LONGEST_LINE_BYTES} bytes")
    if line_end >= 0:
        _request_line(bytes(received[:line_end]).removesuffix(b"\r"))
    ends = [
        end + len(mark) for mark in (b"\n\r\n", b"\n\n") if (end := received.find(mark, 0, LONGEST_HEAD_BYTES)) >= 0
    ]
    if not ends and len(received) >= LONGEST_HEAD_BYTES:
        raise BadRequestError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the request's head exceeds {LONGEST_HEAD_BYTES} bytes"
        )
    return min(ends, default=0)


def parse_head(head: bytes) -> Head:
    """Read what head_length() found to be whole. Raises BadRequestError."""
    first, *lines = (line.removesuffix(b"\r") for line in head.split(b"\n"))
    method, target, version = _request_line(first)
    headers: dict[str, str] = {}
    lines = [line for line in lines if line]  # the two after the last header
    if len(lines) > MOST_HEADERS:
        raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {MOST_HEADERS} headers")
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            raise BadRequestError(HTTPStatus.BAD_REQUEST, "a malformed header")
        name, value = match[1].decode("ascii").lower(), match[2].decode("latin-1").rstrip(" \t")
        if name in headers and name in {"host", "content-length"}:
            raise BadRequestError(HTTPStatus.BAD_REQUEST, f"more than one {name} header")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if version >= (1, 1) and "host" not in headers:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "no host header")
    path, _, query = target.partition("?")
    return Head(method=method, path=path, query=query, version=version, headers=headers)


def _request_line(line: bytes) -> tuple[str, str, tuple[int, int]]:
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "a malformed request line")
    if match[3] != b"1":
        raise BadRequestError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "this server speaks HTTP/1.0 and HTTP/1.1")
    target = match[2].decode("latin-1")
    # The absolute form is for proxies, but every server must take it (RFC 9112, 3.2.2).
    if absolute := _ABSOLUTE.match(target):
        target = target[absolute.end() :]
        target = target if target.startswith("/") else f"/{target}"
    if not target.startswith("/"):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "the request's target is no path")
    return match[1].decode("ascii"), target, (1, int(match[4]))
