"""One GET of one endpoint, by a deadline, within a size.

http.client reads the answer, over a stream that keeps one deadline for all of it: a socket's timeout starts anew with
every byte, so a server that trickles would hold us for as long as it likes. No proxy is looked for, and no name is
looked up but that of a configured URL.
"""

import errno
import http.client
import io
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from http import HTTPStatus
from pathlib import Path, PurePath
from typing import Any, Final, cast
from urllib.parse import urljoin

from llmhost import __version__
from llmhost.model.endpoint import DEFAULT_PATH, parse_metrics_url
from llmhost.model.reading import Cause
from llmhost.runtime.deadline import Deadline, DeadlineStream
from llmhost.sources.base import SourceError

LONGEST_TOKEN_BYTES: Final = 16 * 1024
_MOST_FRAMING_BYTES: Final = 256 * 1024  # beside a body: headers, chunk sizes, 100 Continue, trailers
_LAST_SAMPLE = re.compile(rb"(?:^|\n)(?:#[^\n]*|[^\n]+[ \t][-+]?(?:[0-9][0-9.eE+-]*|NaN|Inf))\Z")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.ENOENT, errno.ENOTDIR})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """An address to connect to, and the request to send there."""

    endpoint: str  # "http://127.0.0.1:8000", "unix:/run/vllm.sock": as it is reported
    address: tuple[str, int] | str  # host and port; the path of a socket
    authority: str  # of the Host header
    path: str = DEFAULT_PATH  # and query
    tls: bool = False
    configured: bool = False  # a name is looked up, and a certificate must be by an authority that we trust
    token_file: PurePath | None = None
    require: Callable[[socket.socket], None] | None = (
        None  # checks the peer before anything is sent; raises SourceError
    )


class StatusError(SourceError):
    """An answer with another status than 200."""

    def __init__(self, cause: Cause, detail: str, status: int) -> None:
        super().__init__(cause, detail)
        self.status = status


class NoHttpError(SourceError):
    """The peer speaks no HTTP, or speaks it with TLS instead of without, or the other way round."""


class CancellableConnection:
    """The connection that a fetch has open, for another thread to cancel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._cancelled = False

    def hold(self, connection: socket.socket | None) -> None:
        with self._lock:
            self._socket = connection
            if self._cancelled and connection is not None:
                _shut(connection)

    def cancel(self) -> None:
        """End the fetch that is under way, and let none start any more."""
        with self._lock:
            self._cancelled = True
            if self._socket is not None:
                _shut(self._socket)


class _Stream(DeadlineStream):
    """The bytes that come over a socket, counted; http.client wants them from makefile().

    http.client itself bounds nothing: it takes a chunk of -1 bytes for "all that comes", and skips as many
    "100 Continue" as there are. Raises TimeoutError, and SourceError with TOO_LARGE.
    """

    def __init__(self, connection: socket.socket, deadline: Deadline, max_bytes: int) -> None:
        super().__init__(connection, deadline)
        self._max_bytes = max_bytes
        self._remaining = max_bytes + _MOST_FRAMING_BYTES

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        count = super().readinto(buffer)
        self._remaining -= count
        if self._remaining < 0:
            raise SourceError(Cause.TOO_LARGE, f"more than {self._max_bytes} bytes")
        return count

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)


def fetch(
    target: HttpTarget,
    *,
    deadline: float,
    max_bytes: int,
    cancellable: CancellableConnection,
    monotonic: Callable[[], float] = time.monotonic,
) -> bytes:
    """Get the body; follow at most one redirect, to the same scheme, host and port.

    A last line that lacks its end gets one where the body is framed, and so whole, and the line is a sample or comment.

    Raises SourceError: REFUSED, TIMEOUT, TLS, UNAUTHORIZED, NOT_FOUND, HTTP_STATUS, TOO_LARGE, MALFORMED,
    NO_PERMISSION or UNKNOWN; StatusError where there was an answer, NoHttpError where the other scheme may be spoken.
    """
    by = Deadline(deadline, monotonic)
    try:
        authorization = authorization_by(target.token_file)
        location, body = _exchange(target, authorization, by, max_bytes, cancellable)
        if location is not None:
            moved = replace(target, path=_same_place(target, location))
            location, body = _exchange(moved, authorization, by, max_bytes, cancellable)
            if location is not None:
                raise StatusError(Cause.HTTP_STATUS, "redirects more than once", HTTPStatus.FOUND)
    except TimeoutError:
        raise SourceError(Cause.TIMEOUT, f"{target.endpoint} did not answer in time") from None
    except ssl.SSLError as error:
        raise NoHttpError(Cause.TLS, f"{target.endpoint}: {error.reason or error}") from error
    except (http.client.BadStatusLine, ConnectionResetError, BrokenPipeError) as error:
        raise NoHttpError(Cause.MALFORMED, f"{target.endpoint}: {type(error).__name__}") from error
    except http.client.HTTPException as error:
        raise SourceError(Cause.MALFORMED, f"{target.endpoint}: {type(error).__name__}") from error
    except socket.gaierror as error:
        raise SourceError(Cause.UNKNOWN, f"{target.endpoint}: {error.strerror}") from error
    except OSError as error:
        raise SourceError(_cause_of(error), f"{target.endpoint}: {error.strerror or error}") from error
    return body


def _cause_of(error: OSError) -> Cause:
    if isinstance(error, ConnectionRefusedError) or error.errno in _UNREACHABLE:
        return Cause.REFUSED
    if isinstance(error, PermissionError):
        return Cause.NO_PERMISSION
    return Cause.UNKNOWN


def _exchange(
    target: HttpTarget, authorization: str, deadline: Deadline, max_bytes: int, cancellable: CancellableConnection
) -> tuple[str | None, bytes]:
    """Ask and read: (where it is instead, b"") or (None, body)."""
    connection: socket.socket = _connected(target, deadline, cancellable)
    try:
        if target.require is not None:
            target.require(connection)
        if target.tls:
            connection = _wrapped(connection, target)
            cancellable.hold(connection)
            connection.settimeout(deadline.remaining())
            connection.do_handshake()
        connection.settimeout(deadline.remaining())
        connection.sendall(_request(target, authorization))
        stream = cast("socket.socket", _Stream(connection, deadline, max_bytes))
        with http.client.HTTPResponse(stream, method="GET") as answer:
            answer.begin()
            return _body_or_redirect(answer, target, max_bytes)
    except OSError:  # of which some are ValueErrors: a certificate's
        raise
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        # http.client believes what it reads: a chunk of -5 bytes is a ValueError of read()
        raise SourceError(Cause.MALFORMED, f"{target.endpoint}: {type(error).__name__}") from error
    finally:
        cancellable.hold(None)
        connection.close()


def _connected(target: HttpTarget, deadline: Deadline, cancellable: CancellableConnection) -> socket.socket:
    if isinstance(target.address, str):
        return _connect(socket.AF_UNIX, target.address, deadline, cancellable)
    failure: OSError = ConnectionRefusedError(errno.ECONNREFUSED, "no address to connect to")
    flags = 0 if target.configured else socket.AI_NUMERICHOST
    for family, _, _, _, address in socket.getaddrinfo(*target.address, type=socket.SOCK_STREAM, flags=flags):
        try:
            return _connect(family, address, deadline, cancellable)
        except TimeoutError:
            raise
        except OSError as error:
            failure = error
    raise failure


def _connect(
    family: int,
    address: Any,  # noqa: ANN401 - by family
    deadline: Deadline,
    cancellable: CancellableConnection,
) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        cancellable.hold(connection)
        connection.settimeout(deadline.remaining())
        connection.connect(address)
    except BaseException:
        cancellable.hold(None)
        connection.close()
        raise
    return connection


def _wrapped(plain: socket.socket, target: HttpTarget) -> ssl.SSLSocket:
    name = target.address[0] if target.configured else None
    return _tls(verified=target.configured).wrap_socket(plain, server_hostname=name, do_handshake_on_connect=False)


class _TlsSocket(ssl.SSLSocket):
    """Closed where the peer has gone before it is made: wrap_socket() would leave it open (Python 3.11 to 3.13)."""

    def getpeername(self) -> Any:  # noqa: ANN401 - by family
        try:
            return super().getpeername()
        except OSError as error:
            self.close()
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)) from error


@cache
def _tls(*, verified: bool) -> ssl.SSLContext:
    """Make a context that verifies the certificate of a configured URL, and of no discovered server.

    A discovered server's certificate is for the name that clients use, not for 127.0.0.1, and the
    process that holds the socket proves that it is the right server.
    """
    context = ssl.create_default_context() if verified else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = _TlsSocket
    if not verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _request(target: HttpTarget, authorization: str) -> bytes:
    lines = (
        f"GET {target.path} HTTP/1.1",
        f"Host: {target.authority}",
        f"User-Agent: llmhost/{__version__}",
        "Accept: text/plain;version=0.0.4, */*;q=0.1",
        "Accept-Encoding: identity",
        "Connection: close",
        *((authorization,) if authorization else ()),
        "",
        "",
    )
    return "\r\n".join(lines).encode("ascii")


def _body_or_redirect(answer: http.client.HTTPResponse, target: HttpTarget, max_bytes: int) -> tuple[str | None, bytes]:
    status = answer.status
    if status in _REDIRECTS:
        return answer.getheader("Location", ""), b""
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise StatusError(Cause.UNAUTHORIZED, f"{target.endpoint} answers {status}", status)
    if status == HTTPStatus.NOT_IMPLEMENTED or HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        # a configured path may have a secret in it
        where = "the configured path" if target.configured else target.path
        nothing = "has nothing" if status == HTTPStatus.NOT_FOUND else f"answers {status}, without metrics,"
        raise StatusError(Cause.NOT_FOUND, f"{target.endpoint} {nothing} at {where}", status)
    if status != HTTPStatus.OK:
        raise StatusError(Cause.HTTP_STATUS, f"{target.endpoint} answers {status}", status)
    encoding = answer.getheader("Content-Encoding", "identity").lower()
    if encoding != "identity":
        raise SourceError(Cause.MALFORMED, f"{target.endpoint} answers compressed ({encoding}), without being asked to")
    framed = answer.chunked or answer.length is not None
    body = answer.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise SourceError(Cause.TOO_LARGE, f"{target.endpoint}: more than {max_bytes} bytes")
    if answer.length:  # announced and not received
        raise SourceError(Cause.MALFORMED, f"{target.endpoint}: closed {answer.length} bytes before the end")
    return None, body + b"\n" if framed and _LAST_SAMPLE.search(body) else body


def _same_place(target: HttpTarget, location: str) -> str:
    base = f"{'https' if target.tls else 'http'}://{target.authority}{target.path}"
    try:
        there = parse_metrics_url(urljoin(base, location))
        if there.endpoint == parse_metrics_url(base).endpoint:
            return there.target
    except ValueError:
        pass
    raise StatusError(Cause.HTTP_STATUS, f"{target.endpoint} redirects to another place", HTTPStatus.FOUND)


def authorization_by(token_file: PurePath | None) -> str:
    """Read the token anew each time, as it may be rotated. It never goes into a message. Raises SourceError."""
    if token_file is None:
        return ""
    try:
        with Path(token_file).open("rb") as opened:
            token = opened.read(LONGEST_TOKEN_BYTES + 1)
    except OSError as error:
        raise SourceError(Cause.UNAUTHORIZED, f"no token to send: {token_file}: {error.strerror}") from None
    text = token.strip().decode("latin-1")
    if not text or len(token) > LONGEST_TOKEN_BYTES or not text.isascii() or not text.isprintable():
        raise SourceError(Cause.UNAUTHORIZED, f"no token to send: {token_file} has something else in it")
    return f"Authorization: Bearer {text}"


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
