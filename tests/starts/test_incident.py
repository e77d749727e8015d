"""The incident that this exporter is for, in real time: weights that outlive the main process by 34 s, RestartSec=10.

Real systemd, real processes, the real exporter; the driver is the fake one. All takes place in one minute,
side by side:

- vllm-a on GPUs 0 and 1: its process stays in the driver's lists, though it is gone;
- vllm-d on GPUs 2 and 3: its memory stays, and no process has it; vllm-e waits for the same GPUs in ExecStartPre;
- vllm-b on GPUs 4 to 7: another tenant, which runs all the time, but for a planned restart.
"""

import threading
import time
from collections.abc import Iterator

import pytest
from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.inside import ExporterInside, NvmlInside, of

__all__ = ["booted_systemd"]

GIB = 1 << 30
OUTLIVES_SECONDS = 34.0
# A server that loads, and fails when told to; one that finds the GPUs taken refuses to start, as vLLM does.
ENGINE = """#!/bin/sh
name=$2
echo $$ >/run/$name.pid
test -e /run/$name.taken && exit 1
touch /run/$name.taken
while ! test -e /run/$name.fail; do sleep 0.02; done
exit 1
"""
UNIT = """
[Unit]
StartLimitIntervalSec=0
[Service]
Environment=CUDA_VISIBLE_DEVICES={gpus}
ExecStartPre={pre}
ExecStart=/opt/test/vllm serve {name} -tp {count}
Restart=on-failure
RestartSec=10
"""


def unit(name: str, gpus: str, pre: str = "") -> str:
    return UNIT.format(name=name, gpus=gpus, count=len(gpus.split(",")), pre=pre)


class Gpus:
    """Eight GPUs, and what is said of them."""

    def __init__(self, nvml: NvmlInside) -> None:
        self._nvml = nvml
        self._used: dict[int, str] = {}
        self._processes: list[str] = []
        self._lock = threading.Lock()
        self.say()

    def say(self, used: dict[int, str] | None = None, processes: list[str] | None = None) -> None:
        with self._lock:
            self._used.update(used or {})
            self._processes += processes or []
            gpus = [f"gpu {index} total=96G reserved=1G used={self._used.get(index, 'auto')}" for index in range(8)]
            self._nvml.write([*gpus, *self._processes])


@pytest.fixture
def nvml(booted_systemd: Booted) -> NvmlInside:
    return NvmlInside(booted_systemd)


@pytest.fixture
def exporter(booted_systemd: Booted, nvml: NvmlInside) -> Iterator[ExporterInside]:
    nvml.write([f"gpu {index} total=96G reserved=1G used=auto" for index in range(8)])
    booted_systemd.run(["mkdir", "-p", "/opt/test"])
    booted_systemd.write("/opt/test/vllm", ENGINE)
    booted_systemd.run(["chmod", "755", "/opt/test/vllm"])
    booted_systemd.write_unit("vllm-a.service", unit("a", "0,1"))
    booted_systemd.write_unit("vllm-b.service", unit("b", "4,5,6,7"))
    booted_systemd.write_unit("vllm-c.service", unit("c", "0,1,2,3"))
    booted_systemd.write_unit("vllm-d.service", unit("d", "2,3"))
    booted_systemd.write_unit(
        "vllm-e.service", unit("e", "2,3", "/bin/sh -c 'until test -e /run/free; do sleep 0.05; done'")
    )
    booted_systemd.systemctl("daemon-reload")
    with ExporterInside(booted_systemd, nvml) as running:
        running.knows(*(f"vllm-{name}.service" for name in "abcde"))
        yield running
    booted_systemd.systemctl("stop", "vllm-*.service")


def held(exporter: ExporterInside) -> dict[str, float]:
    series = exporter.series().get("llmhost_gpu_holder_memory_bytes", {})
    return {dict(labels)["gpu"]: value for labels, value in series.items()}


def test_each_start_of_the_incident_is_judged_and_the_release_is_timed(
    booted_systemd: Booted, nvml: NvmlInside, exporter: ExporterInside
) -> None:
    booted, gpus = booted_systemd, Gpus(nvml)

    def pid(name: str) -> int:
        return int(booted.run(["cat", f"/run/{name}.pid"]).stdout)

    # All load, and find free GPUs.
    booted.systemctl("start", "vllm-a.service", "vllm-b.service", "vllm-d.service")
    for name in "abd":
        exporter.has_started(f"vllm-{name}.service", {"manual clean": 1}, 5)
    gpus.say(
        used={2: "60G", 3: "60G"},
        processes=[
            *(f"proc {index} {pid('a')} mem=80G alive=1 linger={OUTLIVES_SECONDS * 1000:.0f}" for index in (0, 1)),
            *(f"proc {index} {pid('b')} mem=70G alive=1" for index in (4, 5, 6, 7)),
            *(f"proc {index} {pid('d')} mem=60G alive=1" for index in (2, 3)),
        ],
    )
    loaded = {"0": 80, "1": 80, "2": 60, "3": 60, "4": 70, "5": 70, "6": 70, "7": 70}
    until = time.monotonic() + 120
    while held(exporter) != {gpu: gib * GIB for gpu, gib in loaded.items()}:  # lists are read once a second
        assert time.monotonic() < until, held(exporter)

    # a and d fail; e wants d's GPUs.
    booted.run(["touch", "/run/a.fail", "/run/d.fail"])
    failed_at = time.monotonic()
    booted.systemctl("start", "--no-block", "vllm-e.service")

    # A planned restart, meanwhile, of a tenant whose memory is released at once.
    booted.run(["rm", "/run/b.taken"])
    booted.systemctl("restart", "vllm-b.service")
    exporter.has_started("vllm-b.service", {"manual clean": 2}, 5)
    gpus.say(processes=[f"proc {index} {pid('b')} mem=70G alive=1" for index in (4, 5, 6, 7)])

    time.sleep(max(0.0, failed_at + 31.5 - time.monotonic()))
    for name in "ad":
        assert exporter.starts(f"vllm-{name}.service") == {"manual clean": 1, "auto resident": 3}
    series = exporter.series()
    way = series["llmhost_unit_last_start_in_the_way_bytes"]
    by_gpu = {"a": {"0": 80 * GIB, "1": 80 * GIB}, "d": {"2": 60 * GIB, "3": 60 * GIB}}
    for name, kind in (("a", "gone"), ("d", "unattributed")):
        found = of(way, unit=f"vllm-{name}.service")
        assert {gpu: (kind_, value) for (gpu, kind_, _), value in found.items()} == {
            gpu: (kind, value) for gpu, value in by_gpu[name].items()
        }
    # 0.92 of 95 GiB are needed, 15 are free
    short = of(series["llmhost_unit_last_start_short_bytes"], unit="vllm-a.service")
    assert {gpu: value for (gpu, _), value in short.items()} == dict.fromkeys("01", int(0.92 * 95 * GIB) - 15 * GIB)
    assert exporter.starts("vllm-e.service") == {}, "it waits in ExecStartPre"
    labels = of(series["llmhost_unit_state_seconds_total"], unit="vllm-e.service")
    assert 29 <= labels["start_pre",] <= 33

    time.sleep(max(0.0, failed_at + OUTLIVES_SECONDS - time.monotonic()))
    gpus.say(used={2: "0", 3: "0"})
    booted.run(["touch", "/run/free"])
    booted.run(["rm", "-f", "/run/a.taken", "/run/d.taken", "/run/a.fail", "/run/d.fail"])
    exporter.has_started("vllm-e.service", {"manual clean": 1}, 3)
    for name in "ad":
        exporter.has_started(f"vllm-{name}.service", {"manual clean": 1, "auto resident": 3, "auto clean": 1}, 12)

    series = exporter.series()
    for name in "ad":
        (released,) = of(series["llmhost_unit_last_release_seconds"], unit=f"vllm-{name}.service").values()
        assert abs(released - OUTLIVES_SECONDS) <= 1.0
    assert of(series["llmhost_unit_failures_total"], unit="vllm-a.service")["exit-code",] == 4

    # The co-tenant on GPUs 4 to 7 is no concern of a unit on 0 to 3. (a, d and e are up there, and hold nothing.)
    booted.systemctl("start", "vllm-c.service")
    exporter.has_started("vllm-c.service", {"manual clean": 1}, 3)

    # The journal alone tells the story.
    log = exporter.log
    assert log.count("start unit=vllm-a.service attempt=2 trigger=auto") == 1
    assert 'verdict=resident in_the_way="GPU 0: 80.0 GiB gone pid' in log
    assert "60.0 GiB unattributed" in log
    assert log.count("end unit=vllm-a.service") == 4
