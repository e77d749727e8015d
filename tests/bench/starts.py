"""The time and the cost of a verdict on a start: `make bench`. Root only.

A real systemd in namespaces of its own runs 20 services that start about once a second each, among 2,000 processes. The
driver is the fake one with delays as measured on a real one (4.5 ms for each process list, under a lock on all GPUs):
8 GPUs with 16 processes each, and memory in the way of half of the services. The time is from the start of the main
process, as systemd has it, to the verdict in the history.

Lists are read once a second at most. While memory stands still a list stays good; while it moves all the time a start
waits for the next list, and its verdict may take a second. `--flat` also runs 10,000 starts and 10,000 scrapes, and
tells how memory and file descriptors develop.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fakes.booted import Booted
from tests.fakes.inside import NvmlInside

GPUS, PROCESSES_PER_GPU, UNITS = 8, 16, 20
LIST_MS = 4.5
UNIT = """
[Unit]
StartLimitIntervalSec=0
[Service]
Environment=CUDA_VISIBLE_DEVICES={gpu}
ExecStart=/bin/sh -c 'sleep {run}'
Restart=always
RestartSec={delay}
"""


def write_state(nvml: NvmlInside, pids: list[int], moved_bytes: int = 0) -> None:
    """GPUs 0 to 3 are free, but for small things; on the others 20 GiB are in use."""
    used = [(512 << 20) if index < GPUS // 2 else (20 << 30) + moved_bytes for index in range(GPUS)]
    nvml.write(
        [
            *(f"gpu {index} total=96G reserved=1G used={used[index]}" for index in range(GPUS)),
            *(f"proc {number % GPUS} {pid} mem=16M" for number, pid in enumerate(pids[: GPUS * PROCESSES_PER_GPU])),
            f"delay nvmlDeviceGet*RunningProcesses* * {LIST_MS} lock=1",
        ]
    )


@contextmanager
def moving(nvml: NvmlInside, pids: list[int]) -> Iterator[None]:
    """Move memory about, twenty times a second."""
    ended = threading.Event()

    def move() -> None:
        step = 0
        while not ended.wait(0.05):
            step += 1
            write_state(nvml, pids, moved_bytes=(step % 100) << 21)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        yield
    finally:
        ended.set()
        mover.join()


class Inside:
    """The exporter in the booted system."""

    def __init__(self, booted: Booted, nvml: NvmlInside, *arguments: str) -> None:
        environment = {"DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/run/dbus/system_bus_socket", **nvml.environment()}
        assignments = [f"{name}={value}" for name, value in environment.items()]
        there = ["nsenter", "-t", str(booted.pid), "-a", "env", "-C", str(Path.cwd()), *assignments]
        command = [*there, sys.executable, "-m", "tests.bench.starts_inside", *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def result(self) -> dict[str, Any]:
        output, _ = self._process.communicate("go\n")
        found: dict[str, Any] = json.loads(output)
        return found


def sleepers(booted: Booted, count: int) -> list[int]:
    script = f"for i in $(seq {count}); do sleep 100000 >/dev/null 2>&1 & echo $!; done"
    return [int(pid) for pid in booted.run(["bash", "-c", script]).stdout.split()]


def start_loops(booted: Booted, run: str, delay_ms: int) -> None:
    """Start them; each takes a little longer than the one before, so that they do not keep step."""
    for number in range(UNITS):
        gpu = (0, GPUS // 2)[number % 2]
        booted.write_unit(f"loop{number}.service", UNIT.format(gpu=gpu, run=run, delay=f"{delay_ms + 7 * number}ms"))
    booted.systemctl("daemon-reload")
    booted.systemctl("start", "--no-block", *(f"loop{number}.service" for number in range(UNITS)))


def print_costs(name: str, found: dict[str, Any]) -> None:
    rate, cpu = found["starts"] / found["seconds"], found["cpu_seconds"] / found["starts"]
    latencies = f"{found['p50_ms']:9.0f}{found['p99_ms']:9.0f}{found['most_ms']:9.0f}"
    print(f"{name:34}{found['starts']:8}{rate:9.1f}{latencies}{cpu * 1000:12.1f}   {found['verdicts']}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.starts", description="What a verdict takes.")
    parser.add_argument("--processes", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--flat", action="store_true", help="also 10,000 starts and 10,000 scrapes")
    given = parser.parse_args()
    with Booted() as booted:
        nvml = NvmlInside(booted)
        pids = sleepers(booted, given.processes)
        write_state(nvml, pids)
        start_loops(booted, "0.3", 500)
        time.sleep(3)
        print(f"{'':34}{'starts':>8}{'per s':>9}{'p50 ms':>9}{'p99 ms':>9}{'most ms':>9}{'CPU ms each':>12}")
        print_costs("memory stands still", Inside(booted, nvml, "--seconds", str(given.seconds)).result())
        with moving(nvml, pids):
            print_costs("memory moves all the time", Inside(booted, nvml, "--seconds", str(given.seconds)).result())
    if given.flat:
        flat()


def flat() -> None:
    with Booted() as booted:
        nvml = NvmlInside(booted)
        write_state(nvml, sleepers(booted, GPUS * PROCESSES_PER_GPU))
        start_loops(booted, "0.01", 100)
        found = Inside(booted, nvml, "--seconds", "1", "--starts", "10000", "--scrapes", "10000").result()
        print_costs("10,000 starts, 10,000 scrapes", found)
        for size in found["sizes"]:
            print(f"  {size['rss_mib']:6.1f} MiB, {size['fds']:.0f} descriptors")


if __name__ == "__main__":
    main()
