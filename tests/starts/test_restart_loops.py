"""Twenty services that restart as fast as RestartSec=100ms allows, with manual actions in between: every start counts.

Each run and each attempt writes a line to a file before it does anything else. `systemctl stop` sends a signal that
does nothing, and SIGKILL only 200 ms later, so that no run is ended before it has written its line.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.inside import ExporterInside, NvmlInside, of

__all__ = ["booted_systemd"]

SECONDS = float(os.environ.get("LLMHOST_LOOP_SECONDS", "30"))
KILLS = 50
NAMES = [f"loop{number}.service" for number in range(20)]
FEW = NAMES[:5]  # beside which it is killed: enough to have something to lose, and to let it be ready soon again
UNIT = """
[Unit]
StartLimitIntervalSec=0
[Service]
Environment=CUDA_VISIBLE_DEVICES={gpu}
{pre}
ExecStart=/bin/sh -c 'echo run >>/run/loops/%p.runs; sleep 0.03; exit {status}'
Restart=always
RestartSec=100ms
KillSignal=SIGWINCH
TimeoutStopSec=200ms
"""
# Every other attempt, at random, ends before the main process.
PRE = "ExecStartPre=/bin/sh -c 'echo attempt >>/run/loops/%p.attempts; exit $(($$ %% 2))'"
LEARNT = """
[Service]
ExecStart=/opt/test/vllm serve m
[Install]
WantedBy=multi-user.target
"""


@pytest.fixture
def nvml(booted_systemd: Booted) -> NvmlInside:
    """Give GPU 0 that is free, GPU 1 with unattributed memory, and GPU 2 that a unit will use."""
    nvml = NvmlInside(booted_systemd)
    nvml.write(
        [
            "gpu 0 total=96G reserved=1G used=0",
            "gpu 1 total=96G reserved=1G used=40G",
            "gpu 2 total=96G reserved=1G used=auto",
        ]
    )
    return nvml


@pytest.fixture
def loops(booted_systemd: Booted) -> Iterator[None]:
    booted_systemd.run(["rm", "-rf", "/run/loops", ExporterInside.STATE])
    booted_systemd.run(["mkdir", "-p", "/run/loops"])
    for number, name in enumerate(NAMES):
        text = UNIT.format(gpu=number % 2, pre=PRE if number % 4 == 3 else "", status=number % 3)
        booted_systemd.write_unit(name, text)
    booted_systemd.systemctl("daemon-reload")
    yield
    booted_systemd.systemctl("stop", *NAMES)
    booted_systemd.systemctl("reset-failed", *NAMES, check=False)


def lines(booted: Booted, kind: str) -> Counter[str]:
    found = booted.run(["sh", "-c", f"cd /run/loops; wc -l *.{kind} | grep -v total"]).stdout
    counts = (line.split() for line in found.splitlines())
    return Counter({f"{name.partition('.')[0]}.service": int(count) for count, name in counts})


def total(starts: dict[str, int], *verdicts: str) -> int:
    return sum(count for key, count in starts.items() if key.split()[1] in verdicts)


def test_the_starts_of_each_unit_are_its_runs_and_its_attempts_exactly(
    booted_systemd: Booted, nvml: NvmlInside, loops: None
) -> None:
    booted = booted_systemd
    chance = random.Random(20261130)
    with ExporterInside(booted, nvml) as exporter:
        exporter.knows(*NAMES)
        booted.systemctl("start", "--no-block", *NAMES)
        end = time.monotonic() + SECONDS
        manual = 0
        while time.monotonic() < end:
            action = chance.choice(("restart", "restart", "stop", "start", "start", "reset-failed"))
            booted.systemctl("--no-block", action, chance.choice(NAMES), check=False)
            manual += 1
            if manual % 10 == 0:
                exporter.series()
            time.sleep(chance.uniform(0.05, 0.4))
        booted.systemctl("stop", *NAMES)
        runs, attempts = lines(booted, "runs"), lines(booted, "attempts")
        assert sum(runs.values()) > 3 * SECONDS, "there was a load"
        judged_by = time.monotonic() + 6  # the last ones may still be waiting for their verdict
        while True:
            starts = {name: exporter.starts(name) for name in NAMES}
            mains = {name: total(starts[name], "clean", "resident", "unknown") for name in NAMES}
            if mains == dict(runs) or time.monotonic() > judged_by:
                break
            time.sleep(0.2)
        assert mains == {name: runs[name] for name in NAMES}
        aborted = {name: attempts[name] - runs[name] for name in NAMES if name in attempts}
        assert {name: total(starts[name], "not_started") for name in NAMES} == {
            name: aborted.get(name, 0) for name in NAMES
        }
        assert any(aborted.values())
        for number, name in enumerate(NAMES):
            if number % 2:
                assert total(starts[name], "clean") == 0, name
            else:
                assert total(starts[name], "resident") == 0, name
            known = total(starts[name], "clean", "resident")
            assert known >= 0.99 * runs[name], f"{name}: {starts[name]}"


def test_an_exporter_that_is_killed_again_and_again_loses_nothing_that_it_has_reported(
    booted_systemd: Booted, nvml: NvmlInside, loops: None
) -> None:
    booted = booted_systemd
    chance = random.Random(50)
    booted.run(["mkdir", "-p", "/opt/test"])
    booted.write("/opt/test/vllm", "#!/bin/sh\necho $$ >/run/learnt.pid; exec sleep 1000\n")
    booted.run(["chmod", "755", "/opt/test/vllm"])
    booted.write_unit("vllm-learnt.service", LEARNT)
    booted.systemctl("daemon-reload")
    booted.systemctl("enable", "--now", "vllm-learnt.service")  # enabled, so that it stays loaded when it is stopped
    pid = booted.run(["sh", "-c", "until test -s /run/learnt.pid; do sleep 0.02; done; cat /run/learnt.pid"]).stdout
    nvml.add(f"proc 2 {pid.strip()} mem=70G alive=1")
    before: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    booted.systemctl("start", "--no-block", *FEW)
    for kill in range(KILLS):
        with ExporterInside(booted, nvml) as exporter:
            exporter.knows("vllm-learnt.service")
            if kill == 0:
                exporter.learns("vllm-learnt.service", {"2"})
            for _ in range(chance.randrange(1, 4)):
                series = exporter.series()
                needed = of(series["llmhost_unit_gpu_memory_needed_bytes"], unit="vllm-learnt.service")
                assert [gpu for gpu, _ in needed] == ["2"], f"GPU set of a unit, after {kill} kills"
                now = counters(series)
                for key, value in before.items():
                    assert now.get(key, 0.0) >= value, f"{key} after {kill} kills"
                before = now
                time.sleep(chance.uniform(0.0, 0.3))
            assert "Traceback" not in exporter.log, exporter.log
            exporter.kill()
        if kill == 0:
            booted.systemctl("stop", "vllm-learnt.service")
    starts = sum(value for (name, _), value in before.items() if name == "llmhost_unit_starts_total")
    assert starts > KILLS


def counters(
    series: dict[str, dict[tuple[tuple[str, str], ...], float]],
) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Give those counters of units that outlive the exporter."""
    return {
        (name, labels): value
        for name, found in series.items()
        if name.startswith("llmhost_unit_") and name.endswith("_total")
        for labels, value in found.items()
    }
