"""Every written host gives exactly its expected page, and the page is one that Prometheus likes."""

import subprocess
from pathlib import Path

import pytest
from tests.fakes.needs import needs
from tests.hosts.written import HOSTS, names, page_of, read

from llmhost.metrics.catalog import FAMILIES

# In no written host, and why.
_ELSEWHERE = {
    "llmhost_build_info": "varies",
    "llmhost_collector_duration_seconds": "varies",
    "llmhost_collector_last_success_timestamp_seconds": "varies",
    "llmhost_engine_ready_seconds": "needs a start that is watched: tests/metrics/test_collector.py",
    "llmhost_gpu_last_xid_timestamp_seconds": "varies",
    "llmhost_dropped_series_total": "needs a flood: tests/metrics/test_collector.py",
}


@pytest.mark.parametrize("name", names())
def test_the_page_of_a_written_host_is_the_expected_one(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    host = read(name)
    page = page_of(host, tmp_path)
    if request.config.getoption("--update-golden"):
        host.expected.parent.mkdir(exist_ok=True)
        host.expected.write_text(page)
    assert page == host.expected.read_text()


@pytest.mark.parametrize("name", names())
def test_promtool_finds_nothing_to_say_about_an_expected_page(name: str) -> None:
    page = (HOSTS / name / "expected" / "metrics.prom").read_bytes()
    checked = subprocess.run([needs("promtool"), "check", "metrics"], input=page, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_the_hosts_together_have_every_metric() -> None:
    pages = "\n".join((HOSTS / name / "expected" / "metrics.prom").read_text() for name in names())
    absent = {name for name in FAMILIES if f"\n# TYPE {name} " not in "\n" + pages}
    assert absent == set(_ELSEWHERE)


def test_no_expected_page_is_without_its_host() -> None:
    assert sorted(path.parent.parent.name for path in HOSTS.glob("*/expected/metrics.prom")) == names()
