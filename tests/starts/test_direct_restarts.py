"""RestartMode=direct, with attempts that end before the unit is active: whose memory is it, and what is a leftover.

systemd has it from 254 on; with an older one this is not tested, but for recordings (tests/history).
"""

from collections.abc import Iterator

import pytest
from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.inside import CONFIG, ExporterInside, NvmlInside, of
from tests.guard.test_on_systemd import Host, host

__all__ = ["booted_systemd", "host"]

FIRST_VERSION = 254
LEFT = "/run/direct.pid"
UNTIL_GO = "until test -e /run/go; do sleep 0.1; done"
# The first attempt leaves a child behind; that one and all others end while they load, but not before they may.
LOADS = f"""
Type=notify
KillMode=process
Restart=always
RestartSec=1s
RestartMode=direct
ExecStart=
ExecStart=/bin/sh -c 'test -s {LEFT} || {{ sleep 1000 & echo $! >{LEFT}; }}; {UNTIL_GO}; exit 1'
"""


@pytest.fixture(name="left")
def fixture_left(host: Host) -> Iterator[str]:
    """Give the pid of what the first attempt of vllm-a has left, which has 60 GiB."""
    version = host.booted.run(["systemctl", "--version"]).stdout.split()[1]
    if int(version) < FIRST_VERSION:
        pytest.skip(f"systemd {version} has no RestartMode=")
    host.booted.run(["rm", "-f", LEFT, "/run/go"])
    yield LEFT
    host.booted.systemctl("kill", "--signal=KILL", "vllm-a.service", check=False)


def let_fail(booted: Booted, host: Host) -> str:
    pid = booted.run(["sh", "-c", f"until test -s {LEFT}; do sleep 0.05; done; cat {LEFT}"]).stdout.strip()
    host.use({0: "auto"}, f"proc 0 {pid} mem=60G alive=1")
    booted.run(["touch", "/run/go"])
    return pid


def test_a_start_beside_what_an_attempt_has_left_is_resident_and_that_is_a_leftover(host: Host, left: str) -> None:
    assert left
    booted = host.booted
    host.unit("vllm-a", "0", prefix="-+/bin/true ", more=LOADS)
    with ExporterInside(booted, NvmlInside(booted), config=CONFIG) as exporter:
        exporter.knows("vllm-a.service")
        host.start("vllm-a")
        let_fail(booted, host)
        exporter.has_started("vllm-a.service", {"manual clean": 1, "auto resident": 3}, 60)
        series = exporter.series()
        assert of(series["llmhost_unit_leftover_processes"]) == {("vllm-a.service",): 1.0}
        held = of(series["llmhost_gpu_holder_memory_bytes"], unit="vllm-a.service")
        assert {kind for key in held for kind in key if kind in {"current", "leftover"}} == {"leftover"}


def test_a_guard_without_history_ends_what_an_attempt_has_left(host: Host, left: str) -> None:
    assert left
    host.unit("vllm-a", "0", options="--reap --settle 0s", more=LOADS)
    host.start("vllm-a")
    pid = let_fail(host.booted, host)
    host.says("vllm-a", rf"ended leftover {pid} sleep, of an ended run: after SIGTERM", 60)
