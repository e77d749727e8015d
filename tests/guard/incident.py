"""The incident that llmhost is for, on a real systemd, three ways at once: plain, with a bash loop, with the guard.

A service holds a GPU's memory, dies, and the driver takes 34 s to have it back. Each way has a GPU of its own.
"""

import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.booted import Booted
from tests.fakes.gpu_host import CONFIG, GpuHost

RELEASE_SECONDS = 34.0
PLAIN, LOOP, GUARD = "vllm-plain", "vllm-loop", "vllm-guard"
UNITS = {PLAIN: "0", LOOP: "1", GUARD: "2"}
GUARD_CONF = Path(__file__).parents[2] / "systemd/guard.conf"

# What people write today. nvidia-smi is one process here, and takes no time: the real one takes most of a second.
LOOP_DROP_IN = """[Service]
ExecStartPre=/bin/bash -c 'while [ "$(/opt/test/nvidia-smi 1)" -gt 1000 ]; do sleep 2; done'
"""
NVIDIA_SMI = """#!/bin/sh
echo >>/run/engines/nvidia-smi.runs
used=$(sed -n "s/^proc $1 [0-9]* mem=\\([0-9]*\\) .*/\\1/p" /opt/nvml/state)
echo $(( ${used:-0} / 1048576 ))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    refusals: int  # starts that ended as vLLM's do: too little memory is free
    restarts: int  # NRestarts
    late_seconds: float  # from the memory's being back to the start of the engine that then served
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    ways: dict[str, Way]
    nvidia_smi_runs: int
    host: GpuHost


@contextmanager
def incident() -> Iterator[Incident]:
    """Play it, until all serve again."""
    with Booted() as booted, GpuHost(booted, gpus=3) as host:
        for name, gpu in UNITS.items():
            host.unit(name, gpu, lingers=RELEASE_SECONDS, restart_sec=10.0)
        booted.write("/opt/test/nvidia-smi", NVIDIA_SMI)
        booted.run(["chmod", "755", "/opt/test/nvidia-smi"])
        host.drop_in(LOOP, LOOP_DROP_IN)
        booted.run(["mkdir", "-p", "/etc/llmhost"])
        booted.write("/etc/llmhost/llmhost.yml", CONFIG.format(ready_seconds=60))
        host.drop_in(GUARD, GUARD_CONF.read_text().replace("/opt/llmhost/bin/python", sys.executable))
        host.ready(*UNITS)
        host.start(*UNITS)
        for name in UNITS:
            host.serves(name)
        host.exporter.series()  # the exporter has seen who holds what
        held = {gpu: _held(host, gpu) for gpu in UNITS.values()}
        for name in UNITS:
            host.tell(name, "fail")
        back_at = _back_at(host, held)
        for name in UNITS:
            host.serves(name, times=2, seconds=30)
        runs = booted.run(["cat", "/run/engines/nvidia-smi.runs"]).stdout.count("\n")
        ways = {name: _way(host, name, back_at[gpu]) for name, gpu in UNITS.items()}
        yield Incident(ways=ways, nvidia_smi_runs=runs, host=host)


def _held(host: GpuHost, gpu: str) -> str:
    """Give the line of the driver's state that says who has the GPU's memory."""
    (line,) = re.findall(rf"^proc {gpu} .*$", host.nvml.state.read_text(), re.MULTILINE)
    return str(line)


def _back_at(host: GpuHost, held: Mapping[str, str]) -> Mapping[str, float]:
    """Wait until nothing of that is there; give when each went, on CLOCK_MONOTONIC."""
    until = time.monotonic() + 120
    at: dict[str, float] = {}
    while len(at) < len(held):
        lines = host.nvml.state.read_text().splitlines()
        at |= {gpu: time.monotonic() for gpu, line in held.items() if gpu not in at and line not in lines}
        assert time.monotonic() < until, f"still there: {held}"
        time.sleep(0.02)
    return at


def _way(host: GpuHost, name: str, back_at: float) -> Way:
    shown = host.booted.show(f"{name}.service", "NRestarts", "ExecMainStartTimestampMonotonic")
    log = host.log(name)
    return Way(
        refusals=log.count("Free memory on device"),
        restarts=int(shown["NRestarts"]),
        late_seconds=int(shown["ExecMainStartTimestampMonotonic"]) / 1e6 - back_at,
        log=log,
    )
