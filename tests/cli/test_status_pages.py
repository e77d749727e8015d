"""The status page and its JSON as `llmhost serve` gives them: the real command, for local and other clients."""

import json
import re
import socket
import threading
import time
from pathlib import Path

from tests.architecture.checkout import ROOT
from tests.cli.test_status import host, llmhost
from tests.fakes.daemon import Daemon
from tests.fakes.html_page import parsed
from tests.fakes.json_schema import faults
from tests.fakes.nvml import FakeNvml, fake_nvml
from tests.fakes.nvml_reader import calls_in

__all__ = ["fake_nvml"]

LIST = "nvmlDeviceGetComputeRunningProcesses_v3"


def test_the_page_and_its_json_say_what_the_command_says(tmp_path: Path) -> None:
    with host("incident", tmp_path) as (options, env), Daemon(*options, env=env) as daemon:
        status, headers, page = daemon.get("/")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert parsed(page.removeprefix("<!DOCTYPE html>\n")).find(id="headline").text == "not healthy"
        status, headers, body = daemon.get("/api/status")
        assert (status, headers["Content-Type"]) == (200, "application/json")
        document = json.loads(body)
        schema = json.loads((ROOT / "docs/status.schema.json").read_text())
        assert list(faults(document, schema, schema)) == []
        printed = json.loads(llmhost("status", "--json", *options, env=env).stdout)
        del document["at"], printed["at"]
        assert document == printed
        assert document["units"][0]["history"]["starts"] == {"manual": {"clean": 1}, "auto": {"resident": 6}}


def test_both_are_never_cached_and_read_by_no_other_site() -> None:
    with Daemon() as daemon:
        for path in ("/", "/api/status"):
            status, headers, body = daemon.get(path)
            assert status == 200
            assert int(headers["Content-Length"]) == len(body.encode())
            assert headers["Cache-Control"] == "no-store"
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert "Access-Control-Allow-Origin" not in headers
        policy = daemon.get("/")[1]["Content-Security-Policy"]
        hashed = r"'sha256-[A-Za-z0-9+/]{43}='"
        assert re.fullmatch(
            "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
            f"style-src {hashed}; script-src {hashed}; connect-src 'self'",
            policy,
        )


def test_others_get_the_plain_page_which_says_nothing_of_the_host(tmp_path: Path) -> None:
    with host("incident", tmp_path) as (options, env), Daemon(*options, env=env) as daemon:
        for headers in ({"Host": "evil.example"}, {"X-Forwarded-For": "127.0.0.1"}, {"Via": "1.1 proxy"}):
            status, given, page = daemon.get("/", headers)
            assert status == 200
            assert "<h1>llmhost exporter</h1>" in page
            assert f"ssh -L {daemon.port}:localhost:{daemon.port} HOST" in page
            assert "script-src" not in given["Content-Security-Policy"]
            status, _, document = daemon.get("/api/status", headers)
            assert status == 403
            for name in ("744b", "H20", "leftover", socket.gethostname()):
                assert not re.search(rf"\b{re.escape(name)}\b", page + document)
        assert "llmhost_gpus 8.0" in daemon.get("/metrics", {"Host": "evil.example"})[2]


def test_pages_make_no_more_passes_over_process_lists_than_scrapes(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    fake_nvml.write([f"system x trace={trace}", "gpu 0"])
    with Daemon(env=fake_nvml.environment()) as daemon:
        daemon.get("/metrics")
        before = passes(trace)
        readers = [threading.Thread(target=daemon.get, args=(path,)) for path in ("/", "/api/status") for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        assert passes(trace) == before  # the look of the scrape serves them all


def passes(trace: Path) -> int:
    return [call for call, _, _ in calls_in(trace)].count(LIST)


def test_rates_come_from_an_earlier_observation_and_no_command_waits_for_a_second_one(tmp_path: Path) -> None:
    with host("engine-of-each-kind", tmp_path) as (options, env), Daemon(*options, env=env) as daemon:

        def rates() -> set[float | None]:
            began = time.monotonic()
            document = json.loads(daemon.get("/api/status")[2])
            assert time.monotonic() - began < 0.9
            return {server["generation_tokens_per_second"] for unit in document["units"] for server in unit["servers"]}

        assert rates() == {None}
        until = time.monotonic() + 120
        while 0.0 not in rates():  # the counters of a written host stand still
            assert time.monotonic() < until
            daemon.get("/metrics")
