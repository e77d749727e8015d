"""A server on loopback and raw clients for it: the misbehaving ones cannot be had from a library."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import pytest

from llmhost.serve.http import HttpServer, Timeouts
from llmhost.serve.routes import Handler, Request, Response, text

WAIT_SECONDS = 15.0  # what no test should come near


class Starter(Protocol):
    def __call__(
        self,
        routes: Mapping[str, Handler] | None = None,
        *,
        listen: str = "127.0.0.1:0",
        max_connections: int = 8,
        timeout_seconds: float = 5.0,
        keep_alive_seconds: float = 65.0,
        write_seconds: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> HttpServer: ...


def hello(_request: Request) -> Response:
    return text("hello\n")


@pytest.fixture
def serve() -> Iterator[Starter]:
    """Start servers that end with the test; at the end none of their threads may be left."""
    servers: list[HttpServer] = []

    def start(
        routes: Mapping[str, Handler] | None = None,
        *,
        listen: str = "127.0.0.1:0",
        max_connections: int = 8,
        timeout_seconds: float = 5.0,
        keep_alive_seconds: float = 65.0,
        write_seconds: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> HttpServer:
        server = HttpServer(
            listen,
            routes or {"/": hello},
            max_connections=max_connections,
            timeouts=Timeouts(
                head_seconds=timeout_seconds, keep_alive_seconds=keep_alive_seconds, write_seconds=write_seconds
            ),
            tls=tls,
        )
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.stop()
    until(lambda: server_threads() == 0)


def server_threads() -> int:
    return sum(thread.name.startswith("llmhost-http") for thread in threading.enumerate())


def until(true: Callable[[], bool]) -> None:
    """Wait for something that nothing announces."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)


def connect(server: HttpServer) -> socket.socket:
    return socket.create_connection(server.address, timeout=WAIT_SECONDS)


def received(client: socket.socket) -> bytes:
    """All that comes until the server closes."""
    parts = []
    while data := client.recv(65536):
        parts.append(data)
    return b"".join(parts)


def exchanged(server: HttpServer, sent: bytes) -> bytes:
    with connect(server) as client:
        client.sendall(sent)
        return received(client)


def get(server: HttpServer, path: str = "/", *headers: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    """One request on its own connection: status, headers in lower case, body as sent."""
    lines = [f"{method} {path} HTTP/1.1", "Host: test", "Connection: close", *headers, "", ""]
    head, _, body = exchanged(server, "\r\n".join(lines).encode("latin-1")).partition(b"\r\n\r\n")
    status_line, *fields = head.decode("latin-1").split("\r\n")
    pairs = [field.split(": ", 1) for field in fields]
    return int(status_line.split()[1]), {name.lower(): value for name, value in pairs}, body


def large(_request: Request) -> Response:
    """Respond with more than the sockets' buffers take."""
    return text("x" * 50_000_000)


class Gate:
    """A handler that says when it was entered and answers when the test lets it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self, _request: Request) -> Response:
        self.entered.release()
        assert self.open.wait(WAIT_SECONDS)
        return text("through\n")
