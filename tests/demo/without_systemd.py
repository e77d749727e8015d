"""The demo where no systemd can be booted: a fake one on a bus of its own takes its place."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.demo.narrator import Narrator
from tests.fakes.bus import FakeSystemd, PrivateBus
from tests.fakes.daemon import Daemon
from tests.fakes.monitoring import Monitoring
from tests.fakes.nvml import FakeNvml
from tests.fakes.procfs import write_proc

NAME = "vllm-glm"
UNIT = f"{NAME}.service"
CONFIG = """
units: {patterns: ['vllm*.service'], discover: false}
collectors: {shm: false, engine: false}
"""
_RESTART_SECONDS = 5.0
_OUTLIVES_SECONDS = 32.0
_GPUS = tuple(f"gpu {index} total=96G reserved=1G used=auto" for index in range(8))
_COMMAND = ["/opt/vllm/bin/vllm", "serve", "glm", "--gpu-memory-utilization", "0.9"]
_FIRST_PID = 5000
FIRST = {
    "Id": UNIT,
    "ActiveState": "inactive",
    "SubState": "dead",
    "UnitFileState": "enabled",
    "Restart": "on-failure",
    "RestartUSec": int(_RESTART_SECONDS * 1e6),
    "StartLimitIntervalUSec": 0,
    "Environment": ["CUDA_VISIBLE_DEVICES=0,1"],
    "ExecStart": [_COMMAND],
}


class PlayedHost:
    """A host made of files, a fake driver's state and a fake systemd."""

    def __init__(self, directory: Path, systemd: FakeSystemd) -> None:
        self.procfs = directory / "proc"
        self.nvml = FakeNvml(directory / "nvml")
        self._systemd = systemd
        self._starts = 0
        self.nvml.write(_GPUS)
        write_proc(self.procfs, [])

    def begins(self) -> None:
        """Start the unit's next run: systemd shows a start in the state of before, then in its own."""
        self._starts += 1
        pid = _FIRST_PID + self._starts
        now = _now_us()
        process = {"pid": pid, "start": now // 10_000, "argv": _COMMAND, "cgroup": f"/system.slice/{UNIT}"}
        write_proc(self.procfs, [process])  # type: ignore[list-item]
        self._systemd.change(
            UNIT,
            ActiveState="inactive",
            SubState="dead",
            InvocationID=os.urandom(16),
            ConditionTimestampMonotonic=now,
            MainPID=pid,
            ExecMainPID=pid,
            ExecMainStartTimestampMonotonic=now,
            Result="success",
            Job=[7, "/org/freedesktop/systemd1/job/7"],
            NRestarts=self._starts - 1,
            ControlGroup=f"/system.slice/{UNIT}",
        )
        self._systemd.change(
            UNIT, ActiveState="active", SubState="running", InactiveExitTimestampMonotonic=now, **_changed()
        )
        self._systemd.change(UNIT, Job=[0, "/"])

    def holds(self) -> None:
        pid = _FIRST_PID + self._starts
        self.nvml.add(*(f"proc {gpu} {pid} mem=84G" for gpu in (0, 1)))

    def fails(self) -> None:
        """End the run; what it held stays with the driver."""
        shutil.rmtree(self.procfs / str(_FIRST_PID + self._starts))
        ended = {"Result": "exit-code", "MainPID": 0, "ExecMainCode": 1, "ExecMainStatus": 1}
        at = {"InactiveEnterTimestampMonotonic": _now_us(), "ExecMainExitTimestampMonotonic": _now_us()}
        self._systemd.change(UNIT, ActiveState="failed", SubState="failed", **ended, **at, **_changed())
        self._systemd.change(UNIT, ActiveState="activating", SubState="auto-restart", **_changed())

    def restarts(self) -> None:
        """Have systemd's timer run out."""
        self._systemd.change(UNIT, NRestarts=self._starts, Job=[8, "/org/freedesktop/systemd1/job/8"])
        self.begins()

    def releases(self) -> None:
        self.nvml.write(_GPUS)


def _now_us() -> int:
    return int(time.monotonic() * 1e6)


def _changed() -> dict[str, int]:
    return {"StateChangeTimestampMonotonic": _now_us(), "StateChangeTimestamp": int(time.time() * 1e6)}


@contextmanager
def played() -> Iterator[tuple[PlayedHost, Daemon]]:
    """Give the host and its exporter."""
    with (
        tempfile.TemporaryDirectory(prefix="llmhost-demo-host-") as scratch,
        PrivateBus() as bus,
        FakeSystemd(bus, units=[FIRST]) as systemd,
    ):
        directory = Path(scratch)
        host = PlayedHost(directory, systemd)
        config = directory / "llmhost.yml"
        config.write_text(CONFIG)
        env = host.nvml.environment() | {"DBUS_SYSTEM_BUS_ADDRESS": bus.address}
        (directory / "state").mkdir()
        arguments = ("--path.procfs", str(host.procfs), "--state-dir", str(directory / "state"))
        with Daemon(*arguments, config=config, env=env) as exporter:
            until = time.monotonic() + 120
            while f'unit="{UNIT}"' not in exporter.get()[2]:
                assert time.monotonic() < until, "the exporter does not see the unit"
                time.sleep(0.1)
            yield host, exporter


def replay(narrator: Narrator, host: PlayedHost, exporter: Daemon, monitoring: Monitoring) -> None:
    """Play the incident and describe it."""
    narrator.says(f"{UNIT} starts: it wants 86.4 GiB of GPU 0 and of GPU 1, finds them free, and loads.")
    host.begins()
    exporter.logged(r"attempt=1 .*verdict=clean")
    host.holds()
    monitoring.prometheus.wait_for(f"llmhost_gpu_holder_memory_bytes{{unit='{UNIT}',kind='current'}} > 0")
    narrator.good("It has its memory. Prometheus scrapes the exporter: all is well.")
    time.sleep(3)
    narrator.bad(
        f"Something goes wrong, once: it ends with exit status 1. systemd will start it again in {_RESTART_SECONDS:g} "
        f"s, but the driver has the dead process's memory for {_OUTLIVES_SECONDS:g} s more."
    )
    host.fails()
    failed_at = time.monotonic()
    starts = 1
    while time.monotonic() < failed_at + _OUTLIVES_SECONDS:
        time.sleep(_RESTART_SECONDS)
        host.restarts()
        starts += 1
        found = exporter.logged(rf"start unit=\S+ attempt={starts} .*")
        if starts == 2:
            narrator.bad("systemd has started it again. What llmhost has to say of that start, in its log:")
            narrator.quotes(found[0].partition(" invocation_id")[0])
        time.sleep(0.3)
        host.fails()
    assert monitoring.pages(unit=UNIT), "nobody was paged"
    host.releases()
    time.sleep(_RESTART_SECONDS)
    host.restarts()
    exporter.logged(rf"attempt={starts + 1} .*verdict=clean")
    host.holds()
    narrator.good(
        f"The driver has given the memory back. The next start is clean, after {starts - 1} that were refused."
    )
    narrator.says(
        "The page ends by itself; not waited for, as without an engine that answers that takes an hour of the rules."
    )
    time.sleep(2)
