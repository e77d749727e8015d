"""One client's connection: its requests, one after the other, each step with its time."""

import contextlib
import logging
import socket
import ssl
import time
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Final
from wsgiref.types import WSGIApplication

from llmhost.serve import wsgi
from llmhost.serve.head import BadRequestError, Head, head_length, parse_head
from llmhost.serve.seats import Seat, Seats, State
from llmhost.serve.throttle import ThrottledLog

RECEIVE_BYTES: Final = 16 << 10
LINGER_SECONDS: Final = 1.0
LINGER_BYTES: Final = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a client may take, each in all and not from byte to byte, so that a trickle gains nothing."""

    head_seconds: float  # TLS handshake; and again a request's head, from the connection's start or its first byte
    keep_alive_seconds: float  # from an answer to the first byte of the next request
    write_seconds: float  # to receive an answer


class Connection:
    def __init__(
        self, sock: socket.socket, client: str, app: WSGIApplication, *, patience: Patience, log: ThrottledLog
    ) -> None:
        self._socket = sock
        self._client = client
        self._app = app
        self._patience = patience
        self._log = log
        self._received = bytearray()

    def serve(self, seat: Seat, seats: Seats) -> None:
        """Answer requests until either side has enough, then close. Raises nothing."""
        try:
            self._handshake()
            self._serve_all(seat, seats)
        except (OSError, ssl.SSLError):
            pass  # gone, too slow, or no TLS: the client's business, and its own log's
        except Exception as error:  # noqa: BLE001 - one connection's end must not be printed by the thread that ran it
            self._log.log(logging.ERROR, f"connection {type(error)}", "a connection failed", exception=error)
        finally:
            seats.leave(seat)
            self._socket.close()

    def refuse(self) -> None:
        """Say that the server is busy, then close. Raises nothing."""
        with contextlib.suppress(OSError), contextlib.closing(self._socket):
            self._handshake()
            self._send_error(HTTPStatus.SERVICE_UNAVAILABLE, "all connections are in use")
            self._linger()

    def _serve_all(self, seat: Seat, seats: Seats) -> None:
        wait_seconds = self._patience.head_seconds
        while seats.change(seat, State.READING):
            try:
                head = self._read_head(wait_seconds)
            except BadRequestError as error:
                self._send_error(error.status, str(error))
                self._linger()
                return
            if head is None or not seats.change(seat, State.ANSWERING):
                return
            answer = self._answer(head)
            if not seats.change(seat, State.WRITING):
                return
            self._send(answer, keep_alive=head.keep_alive, with_body=head.method != "HEAD")
            if not head.keep_alive:
                if head.has_body:
                    self._linger()
                return
            wait_seconds = self._patience.keep_alive_seconds

    def _handshake(self) -> None:
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket.settimeout(self._patience.head_seconds)  # of the whole handshake
            self._socket.do_handshake()

    def _read_head(self, wait_seconds: float) -> Head | None:
        """Receive the next request's head; None when the client is done."""
        deadline = time.monotonic() + (self._patience.head_seconds if self._received else wait_seconds)
        while not (length := head_length(self._received)):
            try:
                data = self._receive(deadline)
            except TimeoutError:
                if not self._received:
                    return None
                raise BadRequestError(HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive") from None
            if not data:
                return None
            if not self._received:
                deadline = min(deadline, time.monotonic() + self._patience.head_seconds)
            self._received += data
            self._skip_empty_lines()
        head = parse_head(bytes(self._received[:length]))
        del self._received[:length]
        self._skip_empty_lines()
        return head

    def _receive(self, deadline: float) -> bytes:
        left_seconds = deadline - time.monotonic()
        if left_seconds <= 0:
            raise TimeoutError
        self._socket.settimeout(left_seconds)
        return self._socket.recv(RECEIVE_BYTES)

    def _skip_empty_lines(self) -> None:
        """Drop what some clients send after a request: a line too many (RFC 9112, 2.2)."""
        if self._received.startswith((b"\r", b"\n")):
            self._received = self._received.lstrip(b"\r\n")

    def _answer(self, head: Head) -> wsgi.Answer:
        try:
            server = self._socket.getsockname()[:2]
            scheme = "https" if isinstance(self._socket, ssl.SSLSocket) else "http"
            return wsgi.call(self._app, wsgi.environment(head, client=self._client, server=server, scheme=scheme))
        except Exception as error:  # noqa: BLE001 - the application's fault costs its answer, not the server
            self._log.log(logging.ERROR, f"application {type(error)}", "no answer to a request", exception=error)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR, "an error of this program; its log says more")

    def _send_error(self, status: HTTPStatus, reason: str) -> None:
        self._send(_plain(status, reason), keep_alive=False, with_body=True)

    def _send(self, answer: wsgi.Answer, *, keep_alive: bool, with_body: bool) -> None:
        headers = list(answer.headers)
        names = {name.lower() for name, _ in headers}
        if "content-length" not in names:
            headers.append(("Content-Length", str(len(answer.body))))
        headers += [("Date", formatdate(usegmt=True)), ("Connection", "keep-alive" if keep_alive else "close")]
        lines = [f"HTTP/1.1 {answer.status}", *(f"{name}: {value}" for name, value in headers), "", ""]
        left = memoryview("\r\n".join(lines).encode("latin-1") + (answer.body if with_body else b""))
        deadline = time.monotonic() + self._patience.write_seconds
        while left:
            # settimeout(0) would mean not to block.
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            left = left[self._socket.send(left) :]
            if left and time.monotonic() > deadline:
                raise TimeoutError

    def _linger(self) -> None:
        """Take in what still comes, for a moment: closing with unread data resets the connection, answer and all."""
        socket.socket.shutdown(self._socket, socket.SHUT_WR)
        deadline = time.monotonic() + LINGER_SECONDS
        left_bytes = LINGER_BYTES
        while left_bytes > 0 and (data := self._receive(deadline)):
            left_bytes -= len(data)


def _plain(status: HTTPStatus, text: str) -> wsgi.Answer:
    headers = (("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff"))
    return wsgi.Answer(status=f"{status.value} {status.phrase}", headers=headers, body=f"{text}\n".encode())
