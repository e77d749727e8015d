"""The page of a real vLLM that serves, whose API server was killed, that was killed altogether.

Run by `make test-vllm`, as root: it takes minutes. Each test starts vLLM anew, with two workers (one API server, one
resource tracker, one core).
"""

import time
from collections.abc import Iterator

import pytest
from tests.fakes.booted import Booted, booted_systemd
from tests.vllm.host import GRACE_SECONDS, UNIT, Host, vllm_host

__all__ = ["booted_systemd"]

pytestmark = pytest.mark.vllm

ORPHANED = {"core": 1, "worker": 2}
WAIT_SECONDS = GRACE_SECONDS + 20.0
# prompts of three and of five words: one token each
REQUESTS = [("w1 w2 w3", 32)] * 10 + [("w4 w5 w6 w7 w8", 20)] * 3 + [("w9 w10 w11", 200)] * 2
PROMPT_TOKENS = 10 * 3 + 3 * 5 + 2 * 3
TOKENS = 10 * 32 + 3 * 20 + 2 * 200


@pytest.fixture(scope="module")
def host(booted_systemd: Booted) -> Iterator[Host]:
    with vllm_host(booted_systemd) as host:
        yield host


def test_tokens_are_counted_at_an_endpoint_without_configuration(host: Host) -> None:
    with host.serving() as loading:
        assert {cause for page in loading for cause in page.by("llmhost_engine_fault", "cause")} == {"starting"}
        assert not any(page.by("llmhost_orphan_processes", "role") for page in loading)
        assert not any(page.by("llmhost_shm_segments", "kind", state="stale") for page in loading)
        host.complete_all(REQUESTS)
        name = "llmhost_engine_generation_tokens_total"
        page = host.page_when(lambda page: page.value(name) == TOKENS, WAIT_SECONDS)
        of_it = {"unit": UNIT, "engine": "vllm", "endpoint": f"http://127.0.0.1:{host.port}"}
        assert page.value("llmhost_engine_up", **of_it) == 1
        assert page.value(name, **of_it, model="tiny", engine_index="0") == TOKENS
        assert page.value("llmhost_engine_prompt_tokens_total", **of_it) == PROMPT_TOKENS
        assert page.by("llmhost_engine_requests_finished_total", "reason") == {"length": len(REQUESTS)}
        assert page.value("llmhost_engine_requests_running", **of_it) == 0
        assert page.by("llmhost_engine_fault", "cause") == {}

        assert page.by("llmhost_unit_processes", "role", unit=UNIT) == {"api_server": 1, "tracker": 1, **ORPHANED}
        assert page.by("llmhost_resource_trackers", "state") == {"attached": 1}
        assert page.by("llmhost_orphan_processes", "role") == {}
        segments = host.segments()
        assert {name[:4] for name in segments} >= {"psm_", "vllm"}
        assert sum(page.by("llmhost_shm_segments", "kind", state="live").values()) == len(segments)
        assert page.by("llmhost_shm_segments", "state") == page.by("llmhost_shm_segments", "state", state="live")


def test_a_killed_api_server_leaves_orphans_that_hold_their_segments(host: Host) -> None:
    with host.serving():
        assert host.page().value("llmhost_engine_up", unit=UNIT) == 1
        segments = host.segments()
        host.kill("main")
        killed = time.monotonic()
        page = host.page_when(lambda page: bool(page.by("llmhost_orphan_processes", "role")), WAIT_SECONDS)
        assert time.monotonic() - killed >= GRACE_SECONDS
        assert page.by("llmhost_orphan_processes", "role", engine="vllm") == ORPHANED
        assert page.by("llmhost_resource_trackers", "state") == {"orphaned": 1}
        assert page.by("llmhost_unit_processes", "role", unit=UNIT) == {"tracker": 1, **ORPHANED}
        assert page.value("llmhost_engine_up", unit=UNIT) is None
        assert host.booted.show(UNIT, "ActiveState", "Result") == {"ActiveState": "failed", "Result": "signal"}

        assert host.segments() == segments
        assert sum(page.by("llmhost_shm_segments", "kind", state="live").values()) == len(segments)
        assert page.by("llmhost_shm_segments", "kind", state="stale") == {}


def test_a_killed_cgroup_leaves_its_segments_stale_and_nothing_else(host: Host) -> None:
    with host.serving():
        live = host.page().by("llmhost_shm_segments", "kind", state="live")
        segments = host.segments()
        host.kill("all")
        killed = time.monotonic()
        page = host.page_when(
            lambda page: page.by("llmhost_shm_segments", "kind", state="stale") == live, 2 * WAIT_SECONDS
        )
        assert time.monotonic() - killed >= GRACE_SECONDS
        assert host.segments() == segments
        assert sum(live.values()) == len(segments)
        assert page.by("llmhost_shm_segments", "state") == {"stale": len(segments)}
        assert page.by("llmhost_orphan_processes", "role") == {}
        assert page.by("llmhost_resource_trackers", "state") == {}
        assert page.by("llmhost_unit_processes", "role", unit=UNIT) == {}
