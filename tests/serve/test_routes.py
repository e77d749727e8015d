import gzip
import http.client
import logging

import pytest
from tests.fakes.http_peers import Starter, get, hello, serve

from llmhost.runtime.log_throttle import ThrottledLog
from llmhost.serve.routes import Request, Response, accepts_gzip, html, text

__all__ = ["serve"]

PAGE = b"llmhost_gpu_memory_used_bytes 1\n" * 100  # 3200 bytes


def metrics(_request: Request) -> Response:
    return Response(headers=(("Content-Type", "text/plain; version=0.0.4"),), body=PAGE)


def scrape(timeout: str | None) -> Request:
    headers = {} if timeout is None else {"x-prometheus-scrape-timeout-seconds": timeout}
    return Request(method="GET", path="/metrics", query={}, headers=headers, client="127.0.0.1")


def test_a_handler_gets_its_whole_request(serve: Starter) -> None:
    requests: list[Request] = []

    def handler(request: Request) -> Response:
        requests.append(request)
        return text("ok")

    get(
        serve({"/metrics": handler}),
        "/metrics?name[]=up&name%5B%5D=a%20b&empty=",
        "Accept: text/plain",
        "Accept-Encoding: gzip",
        "X-Prometheus-Scrape-Timeout-Seconds: 9.5",
        "X_Prometheus_Scrape_Timeout_Seconds: 1",
        "Cookie: a=b",
    )
    (request,) = requests
    assert request.path == "/metrics"
    assert request.query == {"name[]": ["up", "a b"], "empty": [""]}
    assert (request.headers["accept"], request.headers["accept-encoding"]) == ("text/plain", "gzip")
    assert request.scrape_timeout_seconds == 9.5
    assert request.headers["cookie"] == "a=b"
    assert request.client == "127.0.0.1"
    assert request.method == "GET"


def test_an_ipv4_client_of_a_socket_for_both_has_its_ipv4_address(serve: Starter) -> None:
    def who(request: Request) -> Response:
        return text(request.client)

    server = serve({"/": who}, listen=":0")
    connection = http.client.HTTPConnection("127.0.0.1", server.address[1], timeout=60)
    connection.request("GET", "/", headers={"Connection": "close"})
    assert connection.getresponse().read() == b"127.0.0.1"
    connection.close()


@pytest.mark.parametrize("path", ["/metrics/", "//metrics", "/metric", "/METRICS", "/", "/metrics/../metrics"])
def test_a_path_is_its_exact_spelling_and_the_404_lists_the_others(serve: Starter, path: str) -> None:
    status, headers, body = get(serve({"/metrics": metrics, "/healthz": hello}), path)
    assert status == 404
    assert body == b"no such page; there are:\n/healthz\n/metrics\n"
    assert headers["content-type"] == "text/plain; charset=utf-8"


def test_a_percent_encoded_path_is_decoded(serve: Starter) -> None:
    assert get(serve({"/metrics": hello}), "/%6detrics")[0] == 200


def test_a_handler_that_raises_costs_a_500_and_one_traceback(serve: Starter, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_request: Request) -> Response:
        raise KeyError("secret")

    server = serve({"/metrics": broken, "/healthz": hello})
    for _ in range(3):
        status, _, body = get(server, "/metrics")
        assert (status, body) == (500, b"an error of this program; its log says more\n")
    assert get(server, "/healthz")[0] == 200
    assert [record.getMessage() for record in caplog.records] == ["no answer to /metrics"]
    assert "KeyError: 'secret'" in caplog.text


def test_a_page_is_compressed_on_request(serve: Starter) -> None:
    server = serve({"/metrics": metrics})
    status, headers, body = get(server, "/metrics", "Accept-Encoding: gzip")
    assert (status, headers["content-encoding"], headers["vary"]) == (200, "gzip", "Accept-Encoding")
    assert int(headers["content-length"]) == len(body) < len(PAGE)
    assert gzip.decompress(body) == PAGE


def test_head_gives_the_length_that_get_would_send(serve: Starter) -> None:
    server = serve({"/metrics": metrics})
    for header in ("Accept-Encoding: gzip", "Accept-Encoding: identity"):
        _, of_get, body = get(server, "/metrics", header)
        _, of_head, nothing = get(server, "/metrics", header, method="HEAD")
        assert nothing == b""
        assert of_head["content-length"] == of_get["content-length"] == str(len(body))


def test_a_handler_gets_the_method_head(serve: Starter) -> None:
    def handler(request: Request) -> Response:
        return text("", status=200 if request.method == "HEAD" else 418)

    assert get(serve({"/": handler}), method="HEAD")[0] == 200


def test_a_page_is_sent_as_it_is_without_a_request_for_compression(serve: Starter) -> None:
    _, headers, body = get(serve({"/metrics": metrics}), "/metrics", "Accept-Encoding: gzip;q=0, br")
    assert body == PAGE
    assert "content-encoding" not in headers
    assert headers["vary"] == "Accept-Encoding"


def test_a_small_page_is_not_compressed(serve: Starter) -> None:
    sizes = {"/1024": 1024, "/1025": 1025}
    server = serve({path: lambda r: text("x" * sizes[r.path]) for path in sizes})
    assert "content-encoding" not in get(server, "/1024", "Accept-Encoding: gzip")[1]
    assert get(server, "/1025", "Accept-Encoding: gzip")[1]["content-encoding"] == "gzip"


def test_what_a_handler_compressed_itself_is_left_alone(serve: Starter) -> None:
    def handler(_request: Request) -> Response:
        return Response(headers=(("Content-Type", "text/plain"), ("Content-Encoding", "gzip")), body=PAGE)

    _, headers, body = get(serve({"/": handler}), "/", "Accept-Encoding: gzip")
    assert (headers["content-encoding"], body) == ("gzip", PAGE)


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("br, gzip;q=0.5", True),
        ("*", True),
        ("gzip; q=1.000", True),
        ("*;q=0, gzip", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("gzip;q=0, *", False),
        ("*;q=0", False),
        ("gzip;q=x", False),
        ("gzipped", False),
    ],
)
def test_gzip_is_accepted_by_name_or_star_unless_with_q_0(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


@pytest.mark.parametrize(("header", "seconds"), [("10", 10.0), ("9.5", 9.5), ("0.001", 0.001), ("10.", 10.0)])
def test_the_scrape_timeout_is_read(header: str, seconds: float) -> None:
    assert scrape(header).scrape_timeout_seconds == seconds


@pytest.mark.parametrize("header", [None, "", "0", "-1", "nan", "inf", "1e9", "ten", " 10", "9" * 400, "10s", "²"])
def test_a_scrape_timeout_that_is_no_positive_number_is_none(header: str | None) -> None:
    assert scrape(header).scrape_timeout_seconds is None


def test_every_answer_forbids_guessing_its_type_and_a_page_forbids_scripts(serve: Starter) -> None:
    server = serve({"/": lambda _: html("<p>hello</p>"), "/text": hello})
    _, headers, _ = get(server)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("default-src 'none';")
    for path, status in (("/text", 200), ("/none", 404)):
        got, headers, _ = get(server, path)
        assert (got, headers["x-content-type-options"]) == (status, "nosniff")
        assert "content-security-policy" not in headers


def test_a_handler_may_set_its_own_policy(serve: Starter) -> None:
    own = Response(headers=(("Content-Type", "text/html"), ("content-security-policy", "default-src 'self'")), body=b"")
    assert get(serve({"/": lambda _: own}))[1]["content-security-policy"] == "default-src 'self'"


def test_a_query_of_too_many_fields_is_as_none(serve: Starter) -> None:
    def handler(request: Request) -> Response:
        return text(str(len(request.query)))

    assert get(serve({"/": handler}), "/?" + "&".join(f"a{n}=1" for n in range(1001)))[2] == b"0"


def test_a_kind_of_event_is_logged_once_a_minute_with_what_was_held_back(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    throttled = ThrottledLog(logging.getLogger("test"), clock=lambda: now[0])
    for at, kind in [(0.0, "a"), (1.0, "a"), (2.0, "b"), (59.9, "a"), (60.0, "a"), (61.0, "a")]:
        now[0] = at
        throttled.log(logging.WARNING, kind, f"{kind} at {at}")
    assert [record.getMessage() for record in caplog.records] == [
        "a at 0.0",
        "b at 2.0",
        "a at 60.0 (2 more like this since the last such line)",
    ]
