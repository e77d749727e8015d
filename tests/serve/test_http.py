"""The server on loopback: requests good and bad, and clients that leave."""

import contextlib
import http.client
import logging
import socket
import time

import pytest
from tests.fakes.http_peers import Starter, connect, exchanged, get, large, received, serve, server_threads, until

from llmhost.serve.routes import Request, Response

__all__ = ["serve"]

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def test_a_page_is_served(serve: Starter) -> None:
    status, headers, body = get(serve())
    assert (status, body) == (200, b"hello\n")
    assert headers["content-length"] == "6"
    assert headers["connection"] == "close"
    assert headers["date"].endswith(" GMT")
    assert "server" not in headers


def test_a_connection_is_kept_for_more_requests(serve: Starter) -> None:
    server = serve()
    connection = http.client.HTTPConnection(*server.address, timeout=60)
    with contextlib.closing(connection):
        for _ in range(3):
            connection.request("GET", "/")
            response = connection.getresponse()
            assert (response.status, response.read()) == (200, b"hello\n")
            assert response.version == 11
        assert server_threads() == 2


def test_a_kept_connection_ends_after_its_idle_time(serve: Starter) -> None:
    server = serve(timeout_seconds=5, keep_alive_seconds=0.1)
    began = time.monotonic()
    assert exchanged(server, REQUEST).endswith(b"hello\n")
    assert 0.1 <= time.monotonic() - began < 4, "and not 5 s, nor 65"


def test_requests_sent_ahead_are_answered_in_turn(serve: Starter) -> None:
    sent = REQUEST + b"\r\n" + REQUEST + b"GET /none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    answer = exchanged(serve(), sent)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"404"]


def test_a_client_of_http_1_0_is_served_and_closed(serve: Starter) -> None:
    answer = exchanged(serve(), b"GET / HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nConnection: close\r\n" in answer


def test_head_has_the_headers_of_get_and_no_body(serve: Starter) -> None:
    server = serve()
    status, headers, body = get(server, method="HEAD")
    assert (status, body) == (200, b"")
    assert headers["content-length"] == "6"
    assert headers.keys() == get(server)[1].keys()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
def test_other_methods_are_not_allowed(serve: Starter, method: str) -> None:
    status, headers, _ = get(serve(), method=method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_a_body_is_not_taken_for_the_next_request(serve: Starter) -> None:
    smuggled = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(REQUEST) + REQUEST
    answer = exchanged(serve(), smuggled)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 405 ")


def test_a_client_that_goes_on_sending_still_gets_its_refusal(serve: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmhost.serve.http.LINGER_SECONDS", 60.0)
    with connect(serve()) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000)
        assert received(client).startswith(b"HTTP/1.1 431 ")
        for _ in range(10):
            client.sendall(b"a")  # and no reset comes, which would cost other clients the answer
            time.sleep(0.005)


def test_a_large_body_does_not_cost_the_client_its_answer(serve: Starter) -> None:
    sent = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200_000
    assert exchanged(serve(), sent).startswith(b"HTTP/1.1 405 ")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 60_000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431"),
        (bytes(range(256)) * 20, b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400"),
        (b"GET /\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"505"),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(serve: Starter, sent: bytes, status: bytes) -> None:
    server = serve(timeout_seconds=60)
    with connect(server) as client:  # which does not wait for 60 s
        client.sendall(sent)
        assert client.recv(12) == b"HTTP/1.1 " + status


def test_a_client_that_leaves_in_the_middle_of_an_answer_leaves_no_trace(
    serve: Starter, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    server = serve({"/": large})
    with connect(server) as client:
        client.sendall(REQUEST)
        assert client.recv(15) == b"HTTP/1.1 200 OK"
    until(lambda: server_threads() == 1)
    with connect(server) as client:  # and one that resets the connection
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.sendall(REQUEST)
        assert client.recv(15) == b"HTTP/1.1 200 OK"
    until(lambda: server_threads() == 1)
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_nothing_is_printed_or_logged_for_a_request(
    serve: Starter, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    server = serve()
    get(server)
    get(server, "/none")
    exchanged(server, b"\x00")
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("status", "header"),
    [(200, ("X", "a\r\nSet-Cookie: b")), (200, ("X Y", "a")), (200, ("X", "€")), (999, ("X", "a"))],
)
def test_a_response_that_would_break_the_protocol_is_not_sent(
    serve: Starter, status: int, header: tuple[str, str]
) -> None:
    def handler(_request: Request) -> Response:
        return Response(status=status, headers=(header,), body=b"")

    assert get(serve({"/": handler}))[0] == 500
