"""The time that `llmhost guard` takes to its first verdict: `make bench`. Root only, for a real systemd.

The time is from the start of its process to the end, without waiting for memory to settle: it has started Python and
the driver's child, asked systemd what the unit needs, and read everything of 8 GPUs once, with delays of the fake
driver as measured on a real one (4.5 ms for each process list). 300 ms are the aim on two idle cores;
CPU is that of the guard and its child, which run side by side.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.fakes.booted import Booted
from tests.fakes.inside import NvmlInside

LIST_MS = 4.5
UNIT = """
[Service]
Environment=CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
ExecStart=/opt/vllm serve model --gpu-memory-utilization 0.9
"""


def timed(booted: Booted, *options: str) -> tuple[float, float]:
    """Return wall and CPU seconds."""
    # pip compiles what it installs; a checkout is compiled by the first run that may write
    environment = [
        "env",
        "-u",
        "PYTHONDONTWRITEBYTECODE",
        "-C",
        str(Path.cwd()),
        "LD_LIBRARY_PATH=/opt/nvml",
        "FAKE_NVML_STATE=/opt/nvml/state",
    ]
    guard = [sys.executable, "-m", "llmhost", "guard", "--settle", "0s", "--config", "/etc/guard.yml", *options]
    command = ["nsenter", "-t", str(booted.pid), "-a", *environment, *guard]
    began, before = time.monotonic(), os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - began, cpu


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.guard", description="What a verdict of guard takes.")
    parser.add_argument("--runs", type=int, default=20)
    given = parser.parse_args()
    with Booted() as booted:
        gpus = [f"gpu {number} total=96G reserved=1G used=600M" for number in range(8)]
        NvmlInside(booted).write([*gpus, f"delay nvmlDeviceGet*RunningProcesses* * {LIST_MS} lock=1"])
        booted.write("/etc/guard.yml", "host: {pid_namespace: trust}\n")
        booted.write_unit("vllm.service", UNIT)
        booted.write_unit("keeps-it-loaded.service", "[Unit]\nAfter=vllm.service\n[Service]\nExecStart=sleep 1000\n")
        booted.systemctl("daemon-reload")
        booted.systemctl("start", "keeps-it-loaded.service")
        for name, options in (
            ("what the unit needs, asked of systemd", ("--unit", "vllm")),
            ("what the options say", ("--gpus", "0,1", "--need-free", "0.9")),
        ):
            timed(booted, *options)
            runs = [timed(booted, *options) for _ in range(given.runs)]
            times, cpu = [wall for wall, _ in runs], statistics.median(cpu for _, cpu in runs)
            wall = f"median {statistics.median(times) * 1000:4.0f} ms, most {max(times) * 1000:4.0f} ms"
            print(f"{name:40} {wall}, CPU {cpu * 1000:4.0f} ms")


if __name__ == "__main__":
    main()
