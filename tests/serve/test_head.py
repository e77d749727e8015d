from http import HTTPStatus

import pytest

from llmhost.serve.head import LONGEST_HEAD_BYTES, LONGEST_LINE_BYTES, BadRequestError, head_length, parse_head

SCRAPE = (
    b"GET /metrics?name%5B%5D=up HTTP/1.1\r\nHost: gpu1:10061\r\nUser-Agent: Prometheus/2.42.0\r\n"
    b"Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n"
    b"Accept-Encoding: gzip\r\nX-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n"
)


def status(sent: bytes) -> HTTPStatus:
    """Say what a connection would be refused with after these bytes."""
    with pytest.raises(BadRequestError) as caught:
        parse_head(sent[: head_length(sent)])
    return caught.value.status


def test_a_scrape_by_prometheus_is_understood() -> None:
    assert head_length(SCRAPE) == len(SCRAPE)
    head = parse_head(SCRAPE)
    assert (head.method, head.path, head.query, head.version) == ("GET", "/metrics", "name%5B%5D=up", (1, 1))
    assert head.headers["accept-encoding"] == "gzip"
    assert head.headers["x-prometheus-scrape-timeout-seconds"] == "10"
    assert head.keep_alive
    assert not head.has_body


def test_no_part_of_a_head_is_taken_for_a_whole_one() -> None:
    assert {head_length(SCRAPE[:n]) for n in range(len(SCRAPE))} == {0}


def test_what_follows_a_head_is_not_part_of_it() -> None:
    assert head_length(SCRAPE + SCRAPE) == len(SCRAPE)


def test_bare_line_feeds_end_lines_too() -> None:
    sent = b"GET / HTTP/1.0\nA: b\n\n"
    assert head_length(sent) == len(sent)
    assert parse_head(sent).headers == {"a": "b"}


def test_a_repeated_header_is_one_list() -> None:
    assert parse_head(b"GET / HTTP/1.0\r\nAccept: a\r\naccept:b \r\n\r\n").headers == {"accept": "a, b"}


@pytest.mark.parametrize(
    ("target", "path"),
    [(b"http://gpu1:10061/metrics", "/metrics"), (b"HTTP://gpu1", "/"), (b"http://gpu1?x", "/"), (b"//a/b", "//a/b")],
)
def test_a_target_in_absolute_form_is_its_path(target: bytes, path: str) -> None:
    assert parse_head(b"GET " + target + b" HTTP/1.0\r\n\r\n").path == path


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", True),
    ],
)
def test_a_connection_is_kept_for_http_1_1_without_a_body(head: bytes, kept: bool) -> None:
    assert parse_head(head).keep_alive is kept


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
        b"GET * HTTP/1.1\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n",
        b"GET /a\tb HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\n\r\n",  # no host
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nnocolon\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n",
    ],
)
def test_what_is_malformed_is_refused_as_soon_as_that_is_clear(sent: bytes) -> None:
    assert status(sent) is HTTPStatus.BAD_REQUEST


def test_http_2_with_prior_knowledge_is_refused_by_version() -> None:
    assert status(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") is HTTPStatus.HTTP_VERSION_NOT_SUPPORTED


def test_a_request_line_has_a_bound() -> None:
    start, end = b"GET /", b" HTTP/1.0\r\n"
    longest = start + b"a" * (LONGEST_LINE_BYTES - len(start) - len(end)) + end
    assert len(longest) == 8192
    assert head_length(longest) == 0
    assert status(b"GET /" + b"a" * 9000) is HTTPStatus.REQUEST_URI_TOO_LONG


def test_a_head_has_a_bound() -> None:
    start = b"GET / HTTP/1.0\r\nX: "
    assert head_length(start + b"a" * (LONGEST_HEAD_BYTES - len(start) - 1)) == 0
    assert status(start + b"a" * (LONGEST_HEAD_BYTES - len(start))) is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


def test_the_number_of_headers_has_a_bound() -> None:
    assert (
        len(parse_head(b"GET / HTTP/1.0\r\n" + b"".join(b"A%d: b\r\n" % n for n in range(100)) + b"\r\n").headers)
        == 100
    )
    assert status(b"GET / HTTP/1.0\r\n" + b"A: b\r\n" * 101 + b"\r\n") is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
