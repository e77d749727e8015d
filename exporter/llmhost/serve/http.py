"""A small threaded HTTP server that no client can hold up: http.server's parsing, with bounds around it.

One thread per connection, and a bound on connections. When all are taken and another client comes, the one that has
kept us waiting longest is evicted; only when every client is waiting for us is the new one told 503. The TLS handshake
runs in the connection's thread, never in accept(). Names are never looked up, and no request is logged.
"""

import contextlib
import io
import logging
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Final, NoReturn
from urllib.parse import parse_qs, unquote

from llmhost.runtime.log_throttle import ThrottledLog
from llmhost.serve.head import HeadReader, RequestError
from llmhost.serve.listening import ListenError, open_listener
from llmhost.serve.pool import ConnectionPool, Slot, SlotState
from llmhost.serve.routes import Handler, Request, Response, finished, respond, text

__all__ = ["HttpServer", "ListenError", "Timeouts"]

LINGER_SECONDS: Final = 1.0
LINGER_BYTES: Final = 256 << 10
MOST_QUERY_FIELDS: Final = 1000
STOP_GRACE_SECONDS: Final = 0.5
POLL_SECONDS: Final = 3600.0  # stop() does not wait for it

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Each is for a whole step, not from byte to byte: a trickle gains no time."""

    # For the TLS handshake, and again for a request's head, from the connection's start or the head's first byte.
    head_seconds: float = 5.0
    # From a response to the first byte of the next request. Above the usual scrape intervals of up to a minute: a
    # scraper keeps its connection, and never sends a request just as we close it.
    keep_alive_seconds: float = 65.0
    write_seconds: float = 30.0


class Connection(BaseHTTPRequestHandler):
    """One client's connection: its requests, one after the other, each answered whole."""

    protocol_version = "HTTP/1.1"
    request: Slot
    server: "HttpServer"
    rfile: HeadReader
    wfile: io.BytesIO

    def setup(self) -> None:
        threading.current_thread().name = "llmhost-http-connection"
        self.connection = self.request.socket
        self.rfile = HeadReader(self.connection)
        self.wfile = io.BytesIO()  # one response at a time
        self._wait_seconds = self.server.timeouts.head_seconds

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # gone, evicted, too slow, or no TLS: the client's business, and its log's
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if isinstance(self.connection, ssl.SSLSocket):
                self.connection.settimeout(self.server.timeouts.head_seconds)  # of the whole handshake
                self.connection.do_handshake()
            if self.request.refused:
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "all connections are in use")
            else:
                super().handle()

    def handle_one_request(self) -> None:
        self._change(SlotState.READING)
        self.rfile.wait(self._wait_seconds)
        try:
            self.raw_requestline = self.rfile.read_request_line(self.server.timeouts.head_seconds)
            self.parse_request()
        except RequestError as error:
            self._refuse(*error.args)
        except TimeoutError:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive")
        else:
            self._change(SlotState.ANSWERING)
            self._send(self._respond())
            self._wait_seconds = self.server.timeouts.keep_alive_seconds

    def parse_request(self) -> bool:
        super().parse_request()
        for name in ("host", "content-length"):
            if len(self._header_values(name)) > 1:
                self.send_error(HTTPStatus.BAD_REQUEST, f"more than one {name} header")
        is_1_0 = self.request_version == "HTTP/1.0"
        if not is_1_0 and "host" not in self.headers:
            self.send_error(HTTPStatus.BAD_REQUEST, "no host header")
        # Nothing here reads bodies, so no request may follow one.
        has_body = "transfer-encoding" in self.headers or self._header_values("content-length") not in ([], ["0"])
        options = {option.strip() for option in ",".join(self._header_values("connection")).lower().split(",")}
        self.close_connection = is_1_0 or has_body or "close" in options
        return True

    def _header_values(self, name: str) -> list[str]:
        return [value.strip(" \t") for value in self.headers.get_all(name, ())]

    def handle_expect_100(self) -> bool:
        return True  # no body is wanted: the response is enough

    def send_error(self, code: int, message: str | None = None, _explain: str | None = None) -> NoReturn:
        raise RequestError(HTTPStatus(code), message)

    def _respond(self) -> Response:
        path, _, query = self.rfile.target.partition("?")
        headers = {name.lower(): ", ".join(self._header_values(name)) for name in self.headers}
        try:
            fields = parse_qs(query, keep_blank_values=True, max_num_fields=MOST_QUERY_FIELDS)
        except ValueError:  # more fields than that
            fields = {}
        client = str(self.client_address)
        request = Request(method=self.command, path=unquote(path), query=fields, headers=headers, client=client)
        try:
            return respond(self.server.routes, request)
        except Exception as error:  # noqa: BLE001 - a bug in one page must not cost the others
            kind = f"{request.path} {type(error)}"
            self.server.throttled.log(logging.ERROR, kind, f"no answer to {request.path}", exception=error)
            fault = "an error of this program; its log says more\n"
            return finished(text(fault, status=HTTPStatus.INTERNAL_SERVER_ERROR))

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        self.close_connection, self.command, self.request_version = True, "", ""
        self._send(finished(text(f"{reason}\n", status=status)))

    def _send(self, response: Response) -> None:
        self.send_response_only(response.status)
        connection = ("Connection", "close" if self.close_connection else "keep-alive")
        for name, value in (*response.headers, ("Date", self.date_time_string()), connection):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)
        self._change(SlotState.WRITING)
        self.connection.settimeout(self.server.timeouts.write_seconds)  # of the whole response, also over TLS
        self.connection.sendall(self.wfile.getvalue())
        self.wfile = io.BytesIO()
        if self.close_connection:
            # Closing with unread data resets the connection, response and all.
            socket.socket.shutdown(self.connection, socket.SHUT_WR)
            self.rfile.drain(LINGER_SECONDS, LINGER_BYTES)

    def _change(self, state: SlotState) -> None:
        self.server.pool.change(self.request, state)


class HttpServer(socketserver.ThreadingMixIn, socketserver.BaseServer):
    """Listens from the start; connections wait in the kernel until start(). Raises ListenError.

    A renewed certificate is loaded into the context that was given as `tls`.
    """

    daemon_threads = True

    def __init__(
        self,
        listen: str,
        routes: Mapping[str, Handler],
        *,
        max_connections: int,
        timeouts: Timeouts = Timeouts(),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._listener = open_listener(listen)
        host, port = self._listener.getsockname()[:2]
        self.address = (str(host), int(port))  # the port is the real one also where 0 was asked for
        super().__init__(self.address, Connection)
        self.routes, self.timeouts, self._tls = routes, timeouts, tls
        self.pool = ConnectionPool(max_connections)
        self.throttled = ThrottledLog(_log)
        self._stopping = False
        self._acceptor = threading.Thread(
            target=self.serve_forever, args=(POLL_SECONDS,), name="llmhost-http", daemon=True
        )

    def start(self) -> None:
        self._acceptor.start()

    def stop(self) -> None:
        """Stop within a second. Answers under way have half of it; a handler that hangs is left behind."""
        self._stopping = True
        if self._acceptor.is_alive():
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes serve_forever()
            self.shutdown()
        self._listener.close()
        self.pool.close(grace_seconds=STOP_GRACE_SECONDS)

    def fileno(self) -> int:
        return self._listener.fileno()

    def get_request(self) -> tuple[Slot, str]:
        """Accept a connection: its slot, and the client's address."""
        try:
            sock, peer = self._listener.accept()
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError as error:  # no descriptors left, or a network error (accept(2))
            if not self._stopping and not isinstance(error, BlockingIOError):  # of a client that gave up meanwhile
                self._pause(error)
            raise
        slot = self.pool.take(sock)
        if slot is None:
            sock.close()
            raise ConnectionAbortedError
        if slot.refused:
            self.throttled.log(logging.WARNING, "busy", "all connections are busy; a client was told 503")
        return slot, str(peer[0]).removeprefix("::ffff:")  # an IPv4 client on a socket for both

    def close_request(self, request: object) -> None:
        if isinstance(request, Slot):
            self.pool.leave(request)
            request.socket.close()

    def handle_error(self, _request: object, _client_address: object) -> None:
        """Log what ended a connection's thread, or why it could not be started."""
        error = sys.exception()
        if threading.current_thread() is self._acceptor:
            self._pause(error)
        else:
            self.throttled.log(logging.ERROR, f"connection {type(error)}", "a connection failed", exception=error)

    def _pause(self, error: BaseException | None) -> None:
        """Wait for descriptors or threads; the client that has kept us waiting longest gives back its own."""
        self.throttled.log(logging.WARNING, f"accept {error}", f"cannot take a connection: {error}")
        self.pool.make_room()
        time.sleep(0.1)
