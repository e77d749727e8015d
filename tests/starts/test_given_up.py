"""A unit of a real systemd that loops, and is given up: what the exporter says of it between two deaths, and after."""

import json
import time
from typing import Any

from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.inside import ExporterInside, NvmlInside, of

__all__ = ["booted_systemd"]

UNIT = "vllm-loop.service"
# Each run lasts until it is told to fail.
ENGINE = """#!/bin/sh
until rm /run/loop.fail 2>/dev/null; do sleep 0.02; done
exit 1
"""
TEXT = """
[Unit]
StartLimitIntervalSec=2h
StartLimitBurst=3
[Service]
Environment=CUDA_VISIBLE_DEVICES=0
ExecStart=/opt/test/vllm serve m
Restart=on-failure
RestartSec=100ms
[Install]
WantedBy=multi-user.target
"""


def told(exporter: ExporterInside) -> tuple[list[str], Any]:
    """Give the findings, in their order, and the unit."""
    status, _, body = exporter.get("/api/status")
    assert status == 200
    found = json.loads(body)
    (unit,) = (unit for unit in found["units"] if unit["unit"] == UNIT)
    return [finding["what"] for finding in found["findings"]], unit


def until_it_is(exporter: ExporterInside, state: str) -> tuple[list[str], Any]:
    until = time.monotonic() + 60
    while (found := told(exporter))[1]["active_state"] != state:
        assert time.monotonic() < until, found
        time.sleep(0.1)
    return found


def fails(booted: Booted, exporter: ExporterInside, starts: dict[str, int]) -> None:
    """Let the run fail, and wait for the next one."""
    booted.run(["touch", "/run/loop.fail"])
    exporter.has_started(UNIT, starts, 60)


def test_a_loop_is_told_between_two_deaths_and_that_systemd_has_given_up_with_what_lifts_it(
    booted_systemd: Booted,
) -> None:
    booted, nvml = booted_systemd, NvmlInside(booted_systemd)
    nvml.write(["gpu 0 total=96G reserved=1G used=0"])
    booted.run(["mkdir", "-p", "/opt/test"])
    booted.run(["rm", "-rf", "/run/loop.fail", ExporterInside.STATE])
    booted.write("/opt/test/vllm", ENGINE)
    booted.run(["chmod", "755", "/opt/test/vllm"])
    booted.write_unit(UNIT, TEXT)
    booted.systemctl("daemon-reload")
    with ExporterInside(booted, nvml) as exporter:
        exporter.knows(UNIT)
        booted.systemctl("enable", "--now", UNIT)  # enabled, so that it stays loaded
        exporter.has_started(UNIT, {"manual clean": 1}, 60)
        fails(booted, exporter, {"manual clean": 1, "auto clean": 1})
        assert until_it_is(exporter, "active")[0] == []  # one restart is no loop
        fails(booted, exporter, {"manual clean": 1, "auto clean": 2})
        findings, _ = until_it_is(exporter, "active")
        assert findings[0].startswith("loops: 3rd start in ")
        assert ", 2 failed, the last after " in findings[0]
        # the third of three starts
        booted.run(["touch", "/run/loop.fail"])
        findings, unit = until_it_is(exporter, "failed")
        assert findings[0].startswith("has failed (exit-code); systemd has given up after 3 starts in ")
        assert findings[0].endswith(f": its start limit is 3 in 2 h; `systemctl reset-failed {UNIT}` first")
        assert (unit["result"], unit["startable"], unit["start_limit_hit"]) == ("exit-code", {"value": False}, True)
        assert of(exporter.series()["llmhost_unit_start_limit_hit"], unit=UNIT) == {(): 1.0}
        # it is so: a start is refused, until what is advised was done
        assert booted.run(["systemctl", "start", UNIT], check=False).returncode != 0
        assert told(exporter)[0][0].endswith(f"`systemctl reset-failed {UNIT}` first")
        booted.systemctl("reset-failed", UNIT)
        _, unit = until_it_is(exporter, "inactive")
        assert (unit["startable"], unit["start_limit_hit"]) == ({"value": True}, False)
        booted.systemctl("start", UNIT)
        exporter.has_started(UNIT, {"manual clean": 2, "auto clean": 2}, 60)
    booted.systemctl("disable", "--now", UNIT)
