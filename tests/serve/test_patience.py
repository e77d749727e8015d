"""Clients that idle, trickle, do not read, or come in numbers: none of them delays another, or stop()."""

import contextlib
import os
import resource
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.http_peers import (
    WAIT_SECONDS,
    Gate,
    Starter,
    connect,
    exchanged,
    get,
    hello,
    large,
    received,
    serve,
    server_threads,
    until,
)
from tests.fakes.needs import needs

from llmhost.serve.http import HttpServer
from llmhost.serve.pool import ConnectionPool

__all__ = ["serve"]

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@contextlib.contextmanager
def idle_clients(server: HttpServer, number: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in range(number)]
        for client in clients:
            client.sendall(sent)
        yield clients


def refused(server: HttpServer) -> bool:
    try:
        connect(server).close()
    except ConnectionError:  # refused, or reset when the listener closed in between
        return True
    return False


@contextlib.contextmanager
def trickling(server: HttpServer) -> Iterator[threading.Event]:
    """Have a client that sends a header for ever, a byte each 20 ms; the event is set when it is cut off."""
    cut_off, done = threading.Event(), threading.Event()

    def trickle() -> None:
        with connect(server) as client, contextlib.suppress(OSError):
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
            client.settimeout(0.02)
            while not done.is_set():
                client.sendall(b"a")
                with contextlib.suppress(TimeoutError):
                    if client.recv(1000):
                        break
        cut_off.set()

    thread = threading.Thread(target=trickle)
    thread.start()
    yield cut_off
    done.set()
    thread.join()


def test_thirty_idle_clients_and_a_slow_one_delay_no_scrape(serve: Starter) -> None:
    server = serve(max_connections=64, timeout_seconds=60)
    with idle_clients(server, 30), trickling(server) as cut_off:
        until(lambda: server_threads() == 32)
        began = time.monotonic()
        assert get(server)[0] == 200
        assert time.monotonic() - began < WAIT_SECONDS, "and not 60 s"
        assert not cut_off.is_set()


def test_more_idle_clients_than_there_are_connections_delay_no_scrape(serve: Starter) -> None:
    server = serve(max_connections=4, timeout_seconds=60)
    with idle_clients(server, 30, b"GET / HT"), trickling(server):
        began = time.monotonic()
        assert [get(server)[0] for _ in range(5)] == [200] * 5
        assert time.monotonic() - began < WAIT_SECONDS, "and not 60 s"
        until(lambda: server_threads() <= 1 + 4)


def test_the_client_that_has_kept_us_waiting_longest_makes_room(serve: Starter) -> None:
    server = serve(max_connections=3, timeout_seconds=60)
    with idle_clients(server, 3) as clients:
        until(lambda: server_threads() == 4)
        clients[0].sendall(REQUEST)  # it waits anew, from its answer on
        assert clients[0].recv(1000).startswith(b"HTTP/1.1 200")
        assert get(server)[0] == 200
        assert clients[1].recv(1) == b""
        clients[0].sendall(REQUEST)
        assert clients[0].recv(1000).startswith(b"HTTP/1.1 200")
        clients[2].sendall(REQUEST)
        assert clients[2].recv(1000).startswith(b"HTTP/1.1 200")


def test_when_every_client_waits_for_us_the_next_is_answered_503_at_once(serve: Starter) -> None:
    gate = Gate()
    server = serve({"/": gate}, max_connections=2)
    with idle_clients(server, 2, REQUEST) as clients:
        for _ in clients:
            assert gate.entered.acquire(timeout=60)
        status, headers, body = get(server)
        assert (status, headers["connection"], body) == (503, "close", b"all connections are in use\n")
        gate.open.set()
        assert [client.recv(1000)[:15] for client in clients] == [b"HTTP/1.1 200 OK"] * 2
    assert get(server)[2] == b"through\n"


def test_refusals_are_bounded_too(serve: Starter) -> None:
    gate = Gate()
    server = serve({"/": gate}, max_connections=1)
    with idle_clients(server, 1, REQUEST):
        assert gate.entered.acquire(timeout=60)
        with idle_clients(server, 40) as refused:
            # Each is either told or cut off; a reset is a way of being cut off.
            for client in refused:
                with contextlib.suppress(ConnectionError):
                    assert client.recv(12) in {b"HTTP/1.1 503", b""}
                assert server_threads() <= 1 + 1 + 16
        gate.open.set()


def test_when_descriptors_run_out_an_idle_client_gives_back_its_own(
    serve: Starter, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(timeout_seconds=60)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with idle_clients(server, 1) as (idle,), socket.socket() as client:
        until(lambda: server_threads() == 2)
        free = os.dup(client.fileno())  # the lowest number that is free
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            client.settimeout(WAIT_SECONDS)
            client.connect(server.address)
            client.sendall(REQUEST)
            assert client.recv(15) == b"HTTP/1.1 200 OK"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert idle.recv(1) == b""
    assert [record.getMessage() for record in caplog.records] == [
        "cannot take a connection: [Errno 24] Too many open files"
    ]


def test_a_connection_that_gets_no_thread_is_closed_and_costs_no_slot(
    serve: Starter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    server = serve(max_connections=1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        for _ in range(3):
            assert exchanged(server, b"") == b""
    assert get(server)[0] == 200
    assert [record.getMessage() for record in caplog.records] == ["cannot take a connection: can't start new thread"]


def test_an_idle_client_is_closed_without_a_word(serve: Starter) -> None:
    server = serve(timeout_seconds=0.2)
    began = time.monotonic()
    assert exchanged(server, b"") == b""
    assert 0.2 <= time.monotonic() - began < 4, "and not the 65 s of a kept connection"


def test_a_head_that_trickles_in_has_no_more_time_than_any_other(serve: Starter) -> None:
    server = serve(timeout_seconds=0.3)
    began = time.monotonic()
    with trickling(server) as cut_off:
        assert cut_off.wait(5)
    assert time.monotonic() - began >= 0.3


def test_a_further_head_has_no_more_time_than_the_first(serve: Starter) -> None:
    server = serve(timeout_seconds=0.2, keep_alive_seconds=60)
    began = time.monotonic()
    assert b"HTTP/1.1 408 " in exchanged(server, REQUEST + b"GET / HT")
    with connect(server) as client:
        client.sendall(REQUEST)
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET / HT")
        assert received(client).startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - began < 2 * WAIT_SECONDS, "and not 60 s"


def test_a_head_that_does_not_end_is_answered_408(serve: Starter) -> None:
    assert exchanged(serve(timeout_seconds=0.1), b"GET / HTTP/1.1\r\nHost:").startswith(b"HTTP/1.1 408 ")


def test_a_client_that_does_not_read_its_answer_is_cut_off_in_time(serve: Starter) -> None:
    server = serve({"/": large}, write_seconds=0.3)
    with connect(server) as client:
        client.sendall(REQUEST)
        until(lambda: server_threads() == 2)
        until(lambda: server_threads() == 1)


def test_a_client_that_does_not_read_its_answer_makes_room(serve: Starter) -> None:
    server = serve({"/": large}, max_connections=1, write_seconds=60)
    with connect(server) as client:
        client.sendall(REQUEST)
        assert client.recv(15) == b"HTTP/1.1 200 OK"
        with connect(server) as second:
            second.sendall(REQUEST)
            assert second.recv(15) == b"HTTP/1.1 200 OK"


@pytest.fixture
def grace(monkeypatch: pytest.MonkeyPatch) -> float:
    """Have a stop wait for long where it waits, so that a busy machine looks like nothing of that sort."""
    monkeypatch.setattr("llmhost.serve.http.STOP_GRACE_SECONDS", 4 * WAIT_SECONDS)
    return 4 * WAIT_SECONDS


@pytest.mark.parametrize("sent", [b"", b"GET / HT", REQUEST])
def test_stop_waits_for_no_client(serve: Starter, sent: bytes, grace: float) -> None:
    server = serve(max_connections=20, timeout_seconds=60)
    with idle_clients(server, 20, sent):
        until(lambda: server_threads() == 21)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < grace / 4
        until(lambda: server_threads() == 0)
    with pytest.raises(ConnectionRefusedError):
        connect(server)


def test_stop_lets_an_answer_under_way_finish(serve: Starter, grace: float) -> None:
    gate = Gate()
    server = serve({"/": gate})
    with connect(server) as client:
        client.sendall(REQUEST)
        assert gate.entered.acquire(timeout=60)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        until(lambda: refused(server))
        began = time.monotonic()
        gate.open.set()
        assert received(client).endswith(b"through\n")
        stopping.join()
        assert time.monotonic() - began < grace / 4, "and the kept connection is not waited for"


def test_stop_does_not_wait_for_a_handler_that_hangs(serve: Starter) -> None:
    gate = Gate()
    server = serve({"/": gate})
    with connect(server) as client:
        client.sendall(REQUEST)
        assert gate.entered.acquire(timeout=60)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < WAIT_SECONDS
        assert received(client) == b""
        gate.open.set()


def test_a_server_may_be_stopped_twice_and_without_a_start() -> None:
    server = HttpServer("127.0.0.1:0", {"/": hello}, max_connections=1)
    server.stop()
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        connect(server)


def test_no_connection_is_taken_after_the_end() -> None:
    pool = ConnectionPool(2)
    pool.close(grace_seconds=0)
    with socket.socket() as late:
        assert pool.take(late) is None


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [needs("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-out", str(cert), "-keyout", str(key)], check=True, capture_output=True, timeout=120)
    return cert, key


def test_over_tls_idle_clients_delay_no_scrape_either(serve: Starter, certificate: tuple[Path, Path]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = serve(max_connections=4, timeout_seconds=60, tls=context)
    trusting = ssl.create_default_context(cafile=certificate[0])
    with idle_clients(server, 20):
        began = time.monotonic()
        with connect(server) as raw, trusting.wrap_socket(raw, server_hostname="127.0.0.1") as client:
            client.sendall(REQUEST)
            assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")
        assert time.monotonic() - began < WAIT_SECONDS, "and not 60 s"


def test_over_tls_slow_clients_have_no_more_time(serve: Starter, certificate: tuple[Path, Path]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = serve(timeout_seconds=0.3, tls=context)
    trusting = ssl.create_default_context(cafile=certificate[0])
    with connect(server) as silent, connect(server) as raw:
        with trusting.wrap_socket(raw, server_hostname="127.0.0.1") as client:
            client.sendall(b"GET / HT")
            assert client.recv(12) == b"HTTP/1.1 408"
        assert silent.recv(1) == b"", "in the middle of its handshake"


def test_a_client_that_speaks_plain_http_to_tls_is_closed(serve: Starter, certificate: tuple[Path, Path]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = serve(tls=context)
    with connect(server) as client, contextlib.suppress(ConnectionError):
        client.sendall(REQUEST)
        assert not received(client).startswith(b"HTTP")
    until(lambda: server_threads() == 1)
