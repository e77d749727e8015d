"""Every kind of failed answer has its cause, and no other server is ever asked."""

import os
import select
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest
from tests.fakes.engine_servers import BODY, Engines, answer_of, cause, failure
from tests.fakes.needs import needs

from llmhost.model.engine import EngineSample
from llmhost.model.reading import Cause, Ok
from llmhost.sources.engine import fetch
from llmhost.sources.engine.source import EngineSource

FIVE_TOKENS = Ok((EngineSample(model="m", engine_index="0", generation_tokens=5.0),))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a self-signed certificate with its key, as PEM."""
    directory = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        [
            *(needs("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", "/CN=llm.example", "-days", "30", "-keyout", "key.pem", "-out", "certificate.pem"),
        ],
        cwd=directory,
        capture_output=True,
        check=True,
    )
    both = directory / "both.pem"
    both.write_text((directory / "key.pem").read_text() + (directory / "certificate.pem").read_text())
    return both


@pytest.mark.parametrize(
    "mode", ["metrics", "chunked", "unframed", "redirect /metrics/", "redirect http://127.0.0.1:PORT/v1/metrics?x=y"]
)
def test_metrics_are_read_however_they_are_sent(engines: Engines, mode: str) -> None:
    assert engines.answer_of(engines.run(mode).server()).samples == FIVE_TOKENS


@pytest.mark.parametrize("mode", ["metrics", "chunked"])
def test_the_last_line_of_a_page_that_is_whole_may_lack_its_end(engines: Engines, mode: str) -> None:
    assert engines.answer_of(engines.run(mode, body=BODY.rstrip(b"\n")).server()).samples == FIVE_TOKENS


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("status 401 Unauthorized", Cause.UNAUTHORIZED),
        ("status 403 Forbidden", Cause.UNAUTHORIZED),
        ("status 404 Not Found", Cause.NOT_FOUND),
        ("status 501 Not Implemented", Cause.NOT_FOUND),  # llama-server without --metrics
        ("status 400 Bad Request", Cause.NOT_FOUND),  # llama-server as router, which is not told a model
        ("status 405 Method Not Allowed", Cause.NOT_FOUND),
        ("status 503 Service Unavailable", Cause.HTTP_STATUS),
        ("status 500 Internal Server Error", Cause.HTTP_STATUS),
        ("status 204 No Content", Cause.HTTP_STATUS),
        ("loop", Cause.HTTP_STATUS),
        ("redirect", Cause.HTTP_STATUS),  # to nowhere
        ("chunked cut", Cause.MALFORMED),
        ("announced", Cause.MALFORMED),
        ("close", Cause.MALFORMED),
        ("raw SSH-2.0-OpenSSH_9.2\r\n", Cause.MALFORMED),
        ("raw HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nvllm:generation_tok", Cause.MALFORMED),
        ("raw HTTP/1.1 200 OK\r\n\r\nvllm:generation_tokens_total 12", Cause.MALFORMED),
        ("raw HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x08", Cause.MALFORMED),
        ("raw HTTP/1.1 200 OK\r\n\r\n", Cause.NO_METRICS),
        ("huge", Cause.TOO_LARGE),
        ("chunk -1", Cause.TOO_LARGE),  # "all that comes" to http.client, whatever it was asked to read
        ("chunk -5", Cause.MALFORMED),
        ("continue", Cause.TOO_LARGE),
    ],
)
def test_an_answer_without_metrics_has_a_cause(engines: Engines, mode: str, expected: Cause) -> None:
    assert cause(engines.answer_of(engines.run(mode).server())) is expected


@pytest.mark.parametrize("mode", ["hang", "trickled-head", "trickled-body"])
def test_the_time_of_a_fetch_is_that_of_all_of_it(engines: Engines, mode: str) -> None:
    body = b"vllm:generation_tokens_total 1\n" * 100
    source = EngineSource(procfs=Path("/proc"), timeout_seconds=0.4)
    began = time.monotonic()
    try:
        assert cause(answer_of(source, engines.run(mode, body=body).server())) is Cause.TIMEOUT
    finally:
        source.close()
    assert 0.3 < time.monotonic() - began < 3


def test_no_more_is_read_than_a_body_may_have_and_its_framing(engines: Engines) -> None:
    running = engines.run("chunk -1")
    assert failure(engines.answer_of(running.server())).detail == "more than 1048576 bytes"


def test_the_path_of_a_configured_url_is_never_shown(engines: Engines) -> None:
    running = engines.run("status 404 Not Found")
    url = f"http://127.0.0.1:{running.ports[0]}"
    answer = engines.answer_of(running.server(url=f"{url}/secret?key=sesame"))
    assert failure(answer).detail == f"{url} has nothing at the configured path"


def test_a_redirect_to_another_place_is_not_followed(engines: Engines) -> None:
    other = engines.run("metrics")
    for place in (
        f"http://127.0.0.1:{other.ports[0]}/metrics",
        "http://localhost:PORT/metrics/",
        "https://127.0.0.1:PORT/",
    ):
        answer = engines.answer_of(engines.run(f"redirect {place}").server())
        assert failure(answer).detail.endswith("redirects to another place")
    assert other.visited() == []


def test_a_token_is_read_from_its_file_at_each_fetch_and_never_shown(engines: Engines, tmp_path: Path) -> None:
    running = engines.run("token sesame")
    file = tmp_path / "token"
    server = running.server(url=f"http://127.0.0.1:{running.ports[0]}", token_file=file)
    assert failure(engines.answer_of(server)).detail == f"no token to send: {file}: No such file or directory"
    assert running.visited() == []
    file.write_text("sesame\n")
    assert engines.answer_of(server).samples == FIVE_TOKENS
    file.write_text("open\n")
    assert cause(engines.answer_of(server)) is Cause.UNAUTHORIZED
    assert "open" not in failure(engines.answer_of(server)).detail
    before = len(running.visited())
    for bad in ("", "two words\r\nX: y", "x" * 20_000):
        file.write_text(bad)
        assert failure(engines.answer_of(server)).detail == f"no token to send: {file} has something else in it"
    assert len(running.visited()) == before


def test_a_configured_url_is_asked_instead_of_what_is_listened_on(engines: Engines) -> None:
    own, configured = engines.run("metrics"), engines.run("path /vllm/metrics?model=m")
    url = f"http://localhost:{configured.ports[0]}/vllm/metrics?model=m"
    answer = engines.answer_of(own.server(url=url))
    assert (answer.samples, answer.endpoint) == (FIVE_TOKENS, f"http://localhost:{configured.ports[0]}")
    assert own.visited() == []
    assert cause(engines.answer_of(own.server(url="http://127.0.0.1:9"))) is Cause.REFUSED
    assert cause(engines.answer_of(own.server(url="http://nowhere.invalid"))) is Cause.UNKNOWN


def test_llama_cpps_prefix_is_that_of_its_metrics_too(engines: Engines) -> None:
    running = engines.run("path /llm/metrics", body=b"llamacpp:tokens_predicted_total 3\n")
    server = running.server(engine="llamacpp", argv=("llama-server", "--api-prefix", "/llm", "--metrics"))
    assert engines.answer_of(server).samples == Ok((EngineSample(model="", engine_index="", generation_tokens=3.0),))


def test_tls_is_spoken_where_the_arguments_or_the_server_ask_for_it(engines: Engines, certificate: Path) -> None:
    environment = {"ENGINE_CERTIFICATE": str(certificate)}
    for arguments in (f"--ssl-certfile {certificate}", "--config serve.yaml"):
        running = engines.run("tls metrics", arguments=arguments, environment=environment)
        answer = engines.answer_of(running.server())
        assert (answer.samples, answer.endpoint) == (FIVE_TOKENS, f"https://127.0.0.1:{running.ports[0]}")
    plain = engines.run("metrics", arguments="--ssl-certfile gone.pem")
    assert engines.answer_of(plain.server()).endpoint == f"http://127.0.0.1:{plain.ports[0]}"


def test_the_certificate_of_a_configured_url_must_be_trusted(engines: Engines, certificate: Path) -> None:
    running = engines.run("tls metrics", environment={"ENGINE_CERTIFICATE": str(certificate)})
    answer = engines.answer_of(running.server(url=f"https://127.0.0.1:{running.ports[0]}"))
    assert cause(answer) is Cause.TLS


def test_a_server_that_is_gone_before_its_connection_is_secured_leaves_no_socket_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        plain = socket.create_connection(listener.getsockname())
        target = fetch.HttpTarget(endpoint="https://a", address=listener.getsockname(), authority="a", tls=True)
        accepted, _ = listener.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # its close() is a reset
        accepted.close()
        select.select([plain], [], [], 10)
        descriptor = plain.fileno()
        with pytest.raises(ConnectionResetError):
            fetch._wrapped(plain, target)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
