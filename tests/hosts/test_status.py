"""`llmhost status` of the written hosts, as people and as programs read it."""

import json
import re
from pathlib import Path

import pytest
from tests.hosts.views import view_of
from tests.hosts.written import HOSTS, looked_at, read

from llmhost.decide.health import health_of
from llmhost.views.status.as_json import status_json
from llmhost.views.status.text import status_text
from llmhost.views.text import columns

_STUCK = re.compile(r"for [0-9]\.[0-9] s(?=\))")  # how long a call has hung by now
SHOWN = (
    "bus-down",
    "container-holder",
    "container-with-its-own-cgroups",
    "desktop",
    "driver-hung",
    "driver-library-mismatch",
    "driver-releasing",
    "engine-dead-server-alive",
    "engine-loading",
    "engine-of-each-kind",
    "engine-vllm-dp2",
    "engine-without-metrics",
    "fabric-not-ready",
    "foreign-pid-namespace",
    "gpu-missing-since-boot",
    "incident",
    "launcher-killed",
    "library-upgraded",
    "manual-vllm-beside-failed-unit",
    "mig",
    "no-driver",
    "no-gpu",
    "old-driver",
    "one-gpu-lost",
    "orphans-adopted-by-a-shell",
    "shm-flooded-by-stale-segments",
    "shm-left-by-a-killed-tree",
    "shm-of-a-running-engine",
    "shm-with-an-unreadable-process",
    "slow-stop",
    "start-pre-waits",
    "start-timeout-without-limit",
    "started-beside-leftovers",
    "tenant-in-the-way",
    "trackers-of-others",
    "two-tenants",
    "unified-memory",
)


@pytest.mark.parametrize("name", SHOWN)
def test_the_status_of_a_written_host_is_the_expected_one(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with looked_at(read(name), tmp_path) as observed:
        view = view_of(observed)
        health = health_of(view)
        text = _STUCK.sub("for 2 s", observed.as_written(status_text(view, health)))
        document = json.loads(observed.as_written(status_json(view, health)))
    expected = HOSTS / name / "expected" / "status.txt"
    if request.config.getoption("--update-golden"):
        expected.write_text(text)
    assert max(columns(line) for line in text.splitlines()) <= 80
    assert text == expected.read_text()
    assert document["health"] == health.level
