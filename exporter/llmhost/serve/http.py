"""A small threaded HTTP server that no client can hold up.

One thread per connection, and a bound on connections. When all are taken and somebody new comes, the client that has
kept us waiting longest is shut out; only when every client is waiting for us is the new one told 503. The TLS handshake
runs in the connection's thread, never in accept(). Names are never looked up, and no request is logged.
"""

import logging
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Final
from wsgiref.types import WSGIApplication

from llmhost.serve.connection import Connection, Patience
from llmhost.serve.listening import ListenError, open_listener
from llmhost.serve.seats import Seat, Seats
from llmhost.serve.throttle import ThrottledLog

__all__ = ["HttpServer", "ListenError"]

MOST_REFUSALS: Final = 16  # at a time, each in a thread; who comes on top is cut off without a word
STOP_GRACE_SECONDS: Final = 0.5
# Above the usual scrape intervals of up to a minute: a scraper keeps its connection, and never sends a request just as
# we close it.
KEEP_ALIVE_SECONDS: Final = 65.0
WRITE_SECONDS: Final = 30.0

_log = logging.getLogger(__name__)


class HttpServer:
    """Listens from the start; connections wait in the kernel until start().

    `tls` is asked for a context with every connection, so that renewed certificates need no restart.
    Raises ListenError.
    """

    def __init__(
        self,
        listen: str,
        app: WSGIApplication,
        *,
        max_connections: int,
        timeout_seconds: float = 5.0,
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
        write_seconds: float = WRITE_SECONDS,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._app = app
        self._patience = Patience(
            head_seconds=timeout_seconds, keep_alive_seconds=keep_alive_seconds, write_seconds=write_seconds
        )
        self._tls = tls
        self._seats = Seats(max_connections)
        self._refusals = threading.BoundedSemaphore(MOST_REFUSALS)
        self._throttled = ThrottledLog(_log)
        self._stopping = threading.Event()
        self._listener = open_listener(listen)
        host, port = self._listener.getsockname()[:2]
        self._address = (str(host), int(port))
        self._waker, self._wake = socket.socketpair()
        self._acceptor = threading.Thread(target=self._accept_all, name="llmhost-http", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are bound; the port is the real one also where 0 was asked for."""
        return self._address

    def start(self) -> None:
        self._acceptor.start()

    def stop(self) -> None:
        """Stop within a second. Answers under way have half of it; a handler that hangs is left behind."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._waker.send(b"x")
        if self._acceptor.ident is not None:
            self._acceptor.join(timeout=STOP_GRACE_SECONDS / 2)
        self._listener.close()
        self._seats.dismiss_all(grace_seconds=STOP_GRACE_SECONDS)
        self._waker.close()
        self._wake.close()

    def _accept_all(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while not self._stopping.is_set():
                selector.select()
                if self._stopping.is_set():
                    return
                try:
                    self._accept()
                except BlockingIOError:
                    continue  # the client gave up in between
                except (OSError, RuntimeError) as error:
                    # No descriptors or threads left, or accept() passes on a network error (accept(2)): go on, gently.
                    self._throttled.log(logging.WARNING, f"accept {error}", f"cannot take a connection: {error}")
                    self._seats.make_room()
                    self._stopping.wait(0.1)

    def _accept(self) -> None:
        sock, peer = self._listener.accept()
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock = self._tls().wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            client = str(peer[0]).removeprefix("::ffff:")  # an IPv4 client on a socket for both
            connection = Connection(sock, client, self._app, patience=self._patience, log=self._throttled)
            seat = self._seats.take(sock)
            if seat is not None:
                self._run(connection, seat)
            elif self._refusals.acquire(blocking=False):
                self._run(connection, None)
            else:
                sock.close()
        except BaseException:
            sock.close()
            raise

    def _run(self, connection: Connection, seat: Seat | None) -> None:
        def serve() -> None:
            if seat is not None:
                connection.serve(seat, self._seats)
                return
            try:
                connection.refuse()
            finally:
                self._refusals.release()

        thread = threading.Thread(target=serve, name="llmhost-http-connection", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # can't start new thread
            if seat is not None:
                self._seats.leave(seat)
            else:
                self._refusals.release()
            raise
        if seat is None:
            self._throttled.log(logging.WARNING, "busy", "all connections are busy; a client was told 503")
