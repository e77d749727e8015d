"""A host that runs engines as services: a real systemd, the real exporter, GPUs of the fake driver.

with Booted() as booted, GpuHost(booted) as host:
    host.unit("vllm-a", "0,1"); host.start("vllm-a"); host.tell("vllm-a", "fail")

Engines are tests/fakes/gpu_engine.py; `tell` takes what it says there. What an engine holds stays with the driver for
as long as its line in the driver's state says (outlives=SECONDS) once its process is dead.
"""

import fcntl
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.fakes.booted import Booted
from tests.fakes.inside import ExporterInside, NvmlInside
from tests.fakes.prometheus import free_port

CONFIG = """
host: {{pid_namespace: trust}}
units: {{patterns: ['vllm*.service'], discover: false}}
policy: {{ready: {ready_seconds:g}s}}
"""
_UNIT = """
[Unit]
Description={name}
{limit}
[Service]
Environment=LD_LIBRARY_PATH=/opt/nvml FAKE_NVML_STATE=/opt/nvml/state PYTHONUNBUFFERED=1
Environment=ENGINE_DIRECTORY=/run/engines ENGINE_LOADS={loads:g} ENGINE_LINGERS={lingers:g}
Environment=CUDA_VISIBLE_DEVICES={gpus}
ExecStart={python} /opt/test/vllm serve {name} -tp {count} --gpu-memory-utilization 0.9 --port {port}
Restart={restart}
RestartSec={restart_sec:g}
StandardOutput=append:/run/engines/{name}.log
StandardError=append:/run/engines/{name}.log
[Install]
WantedBy=multi-user.target
"""
_HELD = re.compile(r"proc \d+ (\d+) .*outlives=(\S+)")
_POLL_SECONDS = 0.1
NO_LIMIT = "StartLimitIntervalSec=0"


class GpuHost:
    """`ready_seconds` is policy.ready: how long a load may take, at least."""

    def __init__(self, booted: Booted, *, gpus: int = 8, ready_seconds: float = 1800.0) -> None:
        self.booted = booted
        self.nvml = NvmlInside(booted)
        self._config = CONFIG.format(ready_seconds=ready_seconds)
        self.nvml.write([f"gpu {index} total=96G reserved=1G used=auto" for index in range(gpus)])
        self.exporter: ExporterInside
        self._ends = threading.Event()
        self._driver = threading.Thread(target=self._forget_the_dead, daemon=True)

    def unit(
        self,
        name: str,
        gpus: str,
        *,
        loads: float = 0.5,
        lingers: float = 0.0,
        restart: str = "on-failure",
        restart_sec: float = 10.0,
        limit: str = NO_LIMIT,
    ) -> None:
        """Write the unit, enabled. Times are in seconds; `limit` goes under [Unit]."""
        text = _UNIT.format(
            name=name,
            gpus=gpus,
            count=len(gpus.split(",")),
            loads=loads,
            lingers=lingers,
            restart=restart,
            restart_sec=restart_sec,
            limit=limit,
            port=free_port(),
            python=sys.executable,
        )
        self.booted.write_unit(f"{name}.service", text)

    def drop_in(self, name: str, text: str) -> None:
        """Write llmhost-guard.conf of the unit."""
        folder = f"/etc/systemd/system/{name}.service.d"
        self.booted.run(["mkdir", "-p", folder])
        self.booted.write(f"{folder}/llmhost-guard.conf", text)
        self.booted.systemctl("daemon-reload")

    def tell(self, name: str, what: str) -> None:
        self.booted.run(["touch", f"/run/engines/{name}.{what}"])

    def untell(self, name: str, what: str) -> None:
        self.booted.run(["rm", "-f", f"/run/engines/{name}.{what}"])

    def start(self, *names: str) -> None:
        self.booted.systemctl("start", "--no-block", *(f"{name}.service" for name in names))

    def log(self, name: str) -> str:
        return self.booted.run(["cat", f"/run/engines/{name}.log"], check=False).stdout

    def state(self, name: str) -> str:
        return self.booted.show(f"{name}.service", "SubState")["SubState"]

    def serves(self, name: str, times: int = 1, seconds: float = 60.0) -> None:
        """Wait until it has loaded for the so-manieth time."""
        self.until(lambda: self.log(name).count("startup complete") >= times, f"{name} serves", seconds)

    def becomes(self, name: str, state: str, seconds: float = 60.0) -> None:
        self.until(lambda: self.state(name) == state, f"{name} is {state}", seconds)

    def until(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, f"{what}: not within {seconds:g} s"
            time.sleep(0.1)

    def __enter__(self) -> Self:
        """Start the exporter; units that are written by then are watched once this returns."""
        program = (Path(__file__).parent / "gpu_engine.py").read_text()
        self.booted.run(["mkdir", "-p", "/opt/test", "/run/engines"])
        self.booted.write("/opt/test/vllm", program)
        self.exporter = ExporterInside(self.booted, self.nvml, self._config)
        self._driver.start()
        return self

    def _forget_the_dead(self) -> None:
        """Take from the driver's state, in time, what dead processes held."""
        died_at: dict[str, float] = {}
        while not self._ends.wait(_POLL_SECONDS):
            now = time.monotonic()
            with (self.nvml.directory / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                lines = self.nvml.state.read_text().splitlines()
                over = [line for line in lines if self._is_over(line, died_at, now)]
                if over:
                    self.nvml.write(line for line in lines if line not in over)

    def _is_over(self, line: str, died_at: dict[str, float], now: float) -> bool:
        found = _HELD.match(line)
        if found is None or (self.booted.root / "proc" / found[1]).exists():
            return False
        return now - died_at.setdefault(found[1], now) >= float(found[2])

    def ready(self, *names: str) -> None:
        """Enable these units, and wait until the exporter watches them."""
        units = [f"{name}.service" for name in names]
        self.booted.systemctl("daemon-reload")
        self.booted.systemctl("enable", "--quiet", *units)
        self.exporter.knows(*units)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._driver.join()
        self.exporter.__exit__(kind, error, trace)
        self.booted.systemctl("stop", "vllm*.service", check=False)
