"""Heads of requests, as a real server takes them: what it understands, what it refuses, and how early."""

import socket

import pytest
from tests.fakes.http_peers import Starter, connect, hello, received, serve

from llmhost.serve.http import HttpServer
from llmhost.serve.routes import Request, Response, text

__all__ = ["serve"]

SCRAPE = (
    b"GET /metrics?name%5B%5D=up HTTP/1.1\r\nHost: gpu1:10061\r\nUser-Agent: Prometheus/2.42.0\r\n"
    b"Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n"
    b"Accept-Encoding: gzip\r\nX-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n"
)


class Recorder:
    """Takes every path of a test, and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Response:
        self.requests.append(request)
        return text("taken\n")


def taken(serve: Starter, head: bytes, path: str = "/") -> Request:
    recorder = Recorder()
    assert exchanged(serve({path: recorder}), head).startswith(b"HTTP/1.1 200 OK\r\n")
    (request,) = recorder.requests
    return request


def exchanged(server: HttpServer, sent: bytes) -> bytes:
    """All that a client gets that sends nothing more."""
    with connect(server) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        return received(client)


def status(server: HttpServer, sent: bytes) -> int:
    """Give the status that a client gets which goes on waiting after these bytes."""
    with connect(server) as client:
        client.sendall(sent)
        return int(client.recv(12).removeprefix(b"HTTP/1.1 "))


def test_a_scrape_by_prometheus_is_understood(serve: Starter) -> None:
    request = taken(serve, SCRAPE, "/metrics")
    assert (request.method, request.path, request.query) == ("GET", "/metrics", {"name[]": ["up"]})
    assert request.headers["accept-encoding"] == "gzip"
    assert request.headers["x-prometheus-scrape-timeout-seconds"] == "10"


def test_no_part_of_a_head_is_taken_for_a_whole_one(serve: Starter) -> None:
    recorder = Recorder()
    server = serve({"/metrics": recorder})
    with connect(server) as client:
        for end in range(len(SCRAPE) - 1):
            client.sendall(SCRAPE[end : end + 1])
        client.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.recv(1)
        assert recorder.requests == []
        client.settimeout(5)
        client.sendall(SCRAPE[-1:])
        assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")


def test_what_follows_a_head_is_not_part_of_it(serve: Starter) -> None:
    recorder = Recorder()
    assert exchanged(serve({"/metrics": recorder}), SCRAPE + SCRAPE).count(b"HTTP/1.1 200 OK") == 2
    assert recorder.requests[0] == recorder.requests[1]


def test_bare_line_feeds_end_lines_too(serve: Starter) -> None:
    assert taken(serve, b"GET / HTTP/1.0\nA: b\n\n").headers == {"a": "b"}


def test_a_repeated_header_is_one_list(serve: Starter) -> None:
    assert taken(serve, b"GET / HTTP/1.0\r\nAccept: a\r\naccept:b \t\r\n\r\n").headers == {"accept": "a, b"}


@pytest.mark.parametrize(
    ("target", "path"),
    [(b"http://gpu1:10061/metrics", "/metrics"), (b"HTTP://gpu1", "/"), (b"http://gpu1?x", "/"), (b"//a/b", "//a/b")],
)
def test_a_target_in_absolute_form_is_its_path(serve: Starter, target: bytes, path: str) -> None:
    assert taken(serve, b"GET " + target + b" HTTP/1.0\r\n\r\n", path).path == path


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +0\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\nContent-Length: 0\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", True),
    ],
)
def test_a_connection_is_kept_for_http_1_1_without_a_body(serve: Starter, head: bytes, kept: bool) -> None:
    answers = exchanged(serve(), head + b"GET / HTTP/1.0\r\n\r\n").split(b"HTTP/1.1 ")[1:]
    assert [b"\r\nConnection: keep-alive\r\n" in answer for answer in answers] == ([True, False] if kept else [False])


def test_a_client_that_asks_leave_to_send_a_body_is_answered_at_once(serve: Starter) -> None:
    sent = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    assert status(serve(), sent) == 405


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",  # a TLS client, at its first bytes
        b"\x00",
        b"hello\n",
        b"GET /\r\n",  # HTTP/0.9
        b"GET  / HTTP/1.1\r\n",
        b"GET / HTTP/1.1 \r\n",
        b"GET / http/1.1\r\n",
        b"GET / HTTP/1.1.1\r\n",
        b"GET / HTTP/01.1\r\n",
        b"GET * HTTP/1.1\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n",
        b"GET /a\tb HTTP/1.1\r\n",
        b"GET /\xc3\xa9 HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\n\r\n",  # no host
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nnocolon\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n",
    ],
)
def test_what_is_malformed_is_refused_as_soon_as_that_is_clear(serve: Starter, sent: bytes) -> None:
    assert status(serve(timeout_seconds=60), sent) == 400


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"GET / HT", b"GET / HTTP/1.1\r\nHos"])
def test_a_client_that_sends_no_more_of_its_head_is_closed_without_a_word(serve: Starter, sent: bytes) -> None:
    assert exchanged(serve(), sent) == b""


@pytest.mark.parametrize("sent", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/0.9\r\n", b"GET / HTTP/3.0\r\n"])
def test_another_version_is_refused_as_such(serve: Starter, sent: bytes) -> None:
    assert status(serve(timeout_seconds=60), sent) == 505


def test_a_refusal_of_a_head_request_says_why(serve: Starter) -> None:
    sent = b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.1\r\n\r\n"
    assert exchanged(serve(), sent).endswith(b"\r\n\r\nno host header\n")


def test_a_request_line_has_a_bound(serve: Starter) -> None:
    start, end = b"GET /", b" HTTP/1.0\r\n"
    longest = start + b"a" * (8192 - len(start) - len(end)) + end
    assert len(longest) == 8192
    server = serve({"/": hello}, timeout_seconds=60)
    assert status(server, longest + b"\r\n") == 404
    assert status(server, start + b"a" + longest[len(start) :]) == 414
    assert status(server, b"GET /" + b"a" * 9000) == 414


def test_a_head_has_a_bound(serve: Starter) -> None:
    start, end = b"GET / HTTP/1.0\r\nX: ", b"\r\n\r\n"
    server = serve(timeout_seconds=60)
    assert status(server, start + b"a" * (32768 - len(start) - len(end)) + end) == 200
    assert status(server, start + b"a" * (32768 - len(start))) == 431
    assert status(server, b"GET / HTTP/1.0\r\n" + (b"X: " + b"a" * 1000 + b"\r\n") * 33) == 431


def test_the_number_of_headers_has_a_bound(serve: Starter) -> None:
    sent = b"GET / HTTP/1.0\r\n" + b"".join(b"A%d: b\r\n" % n for n in range(99)) + b"\r\n"
    assert len(taken(serve, sent).headers) == 99
    assert status(serve(timeout_seconds=60), b"GET / HTTP/1.0\r\n" + b"A: b\r\n" * 101 + b"\r\n") == 431
