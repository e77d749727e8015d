"""The cost of a scrape: `make bench`.

A host of 2,000 processes (real ones, asleep), 8 GPUs × 16 GPU processes (the fake driver, which answers in
microseconds; a real one takes some 4.5 ms for each process list, in the child and mostly waiting), 20 watched of 500
loaded units (a fake systemd on a real bus). First the daemon as Prometheus meets it, then its parts one by one in this
process, then Debian's process-exporter over the same processes, in the same run.

"cold" is the first; "warm" is the median of the wall times and the mean of the CPU times of those that follow, a second
apart so that each reads the process lists too.
"""

import argparse
import http.client
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil
from tests.bench.sleepers import sleepers
from tests.fakes.bus import FakeSystemd, PrivateBus
from tests.fakes.daemon import Daemon
from tests.fakes.needs import TOOLS
from tests.fakes.nvml import FakeNvml

from llmhost.collect.clock import SystemClock
from llmhost.collect.observer import Observation
from llmhost.config.schema import Config
from llmhost.derive.facts import derive
from llmhost.metrics.collector import Exposition, InForce
from llmhost.metrics.exposition import encode
from llmhost.model.engine_command import is_engine_command
from llmhost.model.history.history import History
from llmhost.model.reading import NotApplicable, Ok
from llmhost.model.snapshot import Snapshot
from llmhost.sources.host import HostSource
from llmhost.sources.nvml.source import NvmlSource
from llmhost.sources.procfs import KEPT_SECONDS, ProcfsSource
from llmhost.sources.systemd.source import SystemdSource

GPUS, PROCESSES_PER_GPU, UNITS, WATCHED = 8, 16, 500, 20
LIMIT_SECONDS = 60.0
DISCOVERY_SECONDS = 5.0  # in which the source has asked the fake systemd for the commands of all units


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    name: str
    cold_wall_ms: float
    wall_ms: float
    cpu_ms: float


def units() -> list[dict[str, object]]:
    known: list[dict[str, object]] = [
        {"Id": f"vllm@{number}.service", "ExecStart": [["/opt/vllm/bin/vllm", "serve", f"/models/{number}"]]}
        for number in range(WATCHED)
    ]
    return known + [{"Id": f"job-{number}.service"} for number in range(UNITS - WATCHED)]


def driver_state(pids: list[int]) -> list[str]:
    gpus = [f'gpu {index} name="NVIDIA H100 80GB HBM3"' for index in range(GPUS)]
    holders = pids[: GPUS * PROCESSES_PER_GPU]
    return gpus + [f"proc {number % GPUS} {pid} mem=4G" for number, pid in enumerate(holders)]


def cpu_seconds(*pids: int) -> float:
    """CPU time of whole processes, dead threads included, by their CPU clocks (clock_getcpuclockid(3))."""
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def measured(name: str, rounds: int, run: Callable[[], object], pids: Callable[[], list[int]], pause: float) -> Cost:
    began = time.monotonic()
    run()
    cold = time.monotonic() - began
    walls: list[float] = []
    spent = 0.0
    for _ in range(rounds):
        time.sleep(pause)
        counted = pids()
        before, began = cpu_seconds(*counted), time.monotonic()
        run()
        walls.append(time.monotonic() - began)
        spent += cpu_seconds(*counted) - before
    wall_ms = statistics.median(walls) * 1000
    return Cost(name=name, cold_wall_ms=cold * 1000, wall_ms=wall_ms, cpu_ms=spent / rounds * 1000)


def the_daemon(rounds: int, env: dict[str, str]) -> tuple[Cost, int, float, float]:
    """Scrape the daemon; also the size of its page, and its and its child's resident memory in MiB."""
    with Daemon(env=env) as daemon, closing(http.client.HTTPConnection("127.0.0.1", daemon.port)) as connection:

        def scrape() -> bytes:
            connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
            return connection.getresponse().read()

        def pids() -> list[int]:
            parent = psutil.Process(daemon.process.pid)
            return [parent.pid, *(child.pid for child in parent.children())]

        cost = measured("whole scrape, by HTTP", rounds, scrape, pids, 1.05)
        series = sum(not line.startswith("#") for line in daemon.get()[2].splitlines())
        parent, *children = (psutil.Process(pid).memory_info().rss / (1 << 20) for pid in pids())
        return cost, series, parent, sum(children)


def the_parts(rounds: int, nvml_env: dict[str, str], bus: str) -> list[Cost]:
    procfs = Path("/proc")
    processes = ProcfsSource(procfs=procfs, trust_pid_namespace=True)
    nvml = NvmlSource(procfs=procfs, environment=nvml_env)
    systemd = SystemdSource(
        patterns=("vllm*.service",),
        discover=True,
        is_engine_command=lambda argv: bool(is_engine_command(argv)),
        address=bus,
    )
    host = HostSource(procfs=procfs)

    def soon() -> float:
        return time.monotonic() + LIMIT_SECONDS

    def us() -> list[int]:
        return [os.getpid()]

    def child() -> list[int]:
        return [child.pid for child in psutil.Process().children() if "nvml.worker" in " ".join(child.cmdline())]

    def us_and_child() -> list[int]:
        return [os.getpid(), *child()]

    try:
        systemd.read(soon())
        time.sleep(DISCOVERY_SECONDS)
        costs = [
            measured("  procfs: all processes", rounds, lambda: processes.read(soon()), us, 0.05),
            measured("  nvml: memory and lists, with its child", rounds, lambda: nvml.read(soon()), us_and_child, 1.05),
            measured("  systemd: units, kept by signals", rounds, lambda: systemd.read(soon()), us, 0.05),
        ]
        snapshot = Snapshot(
            at=SystemClock().time(),
            at_monotonic=SystemClock().monotonic(),
            shm=NotApplicable(),
            engines=NotApplicable(),
            host=Ok(host.read(soon())),
            nvml=Ok(nvml.read(soon())),
            processes=Ok(processes.read(soon())),
            units=Ok(systemd.read(soon())),
        )
    finally:
        nvml.close()
        systemd.close()
    in_force = InForce(config=Config(), loaded_at=0.0, reload_success=True)
    exposition = Exposition(
        observe=lambda _deadline: Observation(snapshot=snapshot, history=History(), health=()),
        in_force=lambda: in_force,
        version="",
        revision="",
        python_version="",
    )
    metrics = list(exposition.metrics(0))
    return [
        *costs,
        measured("  derive", rounds, lambda: derive(snapshot, Config(), History()), us, 0.05),
        measured("  derive and make the page", rounds, lambda: list(exposition.metrics(0)), us, 0.05),
        measured("  encode", rounds, lambda: encode(metrics, accept=""), us, 0.05),
    ]


def process_exporter(rounds: int, directory: Path) -> Cost | None:
    found = shutil.which("prometheus-process-exporter", path=f"{TOOLS / 'usr/bin'}:{os.environ['PATH']}")
    if found is None:
        return None
    config = directory / "process-exporter.yml"
    config.write_text('process_names:\n- name: "{{.Comm}}"\n  cmdline: [".+"]\n')
    port = 19256
    command = [found, "-config.path", str(config), "-web.listen-address", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as peer:
        try:
            until = time.monotonic() + 10
            while True:
                try:
                    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
                        connection.connect()
                    break
                except OSError:
                    if time.monotonic() > until:
                        return None
                    time.sleep(0.1)
            with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:

                def scrape() -> bytes:
                    connection.request("GET", "/metrics")
                    return connection.getresponse().read()

                return measured("process-exporter, by HTTP", rounds, scrape, lambda: [peer.pid], 1.05)
        finally:
            peer.kill()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scrape", description="What a scrape costs.")
    parser.add_argument("--processes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="llmhost-bench-"))
    nvml = FakeNvml(directory)
    print(
        f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}, Python {platform.python_version()}"
    )
    try:
        with sleepers(given.processes) as pids, PrivateBus() as bus, FakeSystemd(bus, units=units()):
            nvml.write(driver_state(pids))
            print(
                f"{len(psutil.pids())} processes, {GPUS} GPUs × {PROCESSES_PER_GPU} GPU processes, "
                f"{WATCHED} watched of {UNITS} loaded units; {given.rounds} warm rounds\n"
            )
            time.sleep(KEPT_SECONDS)  # until then every process is young, and read in full at every look
            env = nvml.environment() | {"DBUS_SYSTEM_BUS_ADDRESS": bus.address}
            whole, series, parent_mib, child_mib = the_daemon(given.rounds, env)
            parts = the_parts(given.rounds, nvml.environment(), bus.address)
            peer = process_exporter(given.rounds, directory)
    finally:
        shutil.rmtree(directory)
    print(f"{'':42}{'cold wall':>10}{'warm wall':>10}{'warm CPU':>10}   in ms")
    for cost in [whole, *parts, *([peer] if peer else [])]:
        print(f"{cost.name:42}{cost.cold_wall_ms:10.1f}{cost.wall_ms:10.1f}{cost.cpu_ms:10.1f}")
    if peer is None:
        print("process-exporter: not found (Debian's package prometheus-process-exporter)")
    else:
        print(f"\nCPU of a scrape: {whole.cpu_ms / peer.cpu_ms:.2f} of process-exporter's")
    print(f"resident memory: {parent_mib:.1f} MiB, NVML child {child_mib:.1f} MiB; {series} series on the page")


if __name__ == "__main__":
    main()
