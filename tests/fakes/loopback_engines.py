"""Engines of a written host: real servers on loopback, shown in its procfs as sockets of the processes that it has."""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BODIES = Path(__file__).parents[1] / "hosts" / "bodies"
_FIRST_INODE = 900_000
_FIRST_DESCRIPTOR = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """One engine: the processes that have its socket, the port it was written with, and the one it really has."""

    pids: tuple[int, ...]
    written_port: int
    port: int
    inode: int


@dataclass(frozen=True, slots=True)
class LoopbackEngines:
    listening: Sequence[Listening]

    def sockets(self, pid: int) -> Mapping[int, int]:
        """Descriptors of a process → inodes of the sockets."""
        own = [listening for listening in self.listening if pid in listening.pids]
        return {_FIRST_DESCRIPTOR + number: listening.inode for number, listening in enumerate(own)}

    def table(self) -> Mapping[int, int]:
        """Ports of 127.0.0.1 that are listened on → inodes."""
        return {listening.port: listening.inode for listening in self.listening}

    def as_written(self, page: str) -> str:
        for listening in self.listening:
            page = page.replace(f"http://127.0.0.1:{listening.port}", f"http://127.0.0.1:{listening.written_port}")
        return page


@contextlib.contextmanager
def listen(written: Sequence[Mapping[str, Any]]) -> Iterator[LoopbackEngines]:
    """Serve for each of {pids: […], port, body: a file in tests/hosts/bodies or text: what it says, status: 200}.

    Real ports are in the order of the written ones, so that a page is too.
    """
    by_port = sorted(written, key=lambda engine: str(engine["port"]))
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) for _ in by_port]
    servers.sort(key=lambda server: str(server.server_address[1]))
    for server, engine in zip(servers, by_port, strict=True):
        server.RequestHandlerClass = _answering(engine)
    threads = [threading.Thread(target=server.serve_forever, args=(0.02,)) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield LoopbackEngines(
            [
                Listening(
                    pids=tuple(engine["pids"]),
                    written_port=engine["port"],
                    port=int(server.server_address[1]),
                    inode=_FIRST_INODE + number,
                )
                for number, (server, engine) in enumerate(zip(servers, by_port, strict=True))
            ]
        )
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()


def _answering(engine: Mapping[str, Any]) -> type[BaseHTTPRequestHandler]:
    body = (BODIES / engine["body"]).read_bytes() if "body" in engine else engine.get("text", "").encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(engine.get("status", 200))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - http.server's signature
            """Say nothing."""

    return Handler
