"""A small world for the real `llmhost clean`: real processes and files, of which it sees those that a test shows it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from tests.fakes.bus import FakeSystemd, PrivateBus
from tests.fakes.daemon import LLMHOST, environment
from tests.fakes.needs import needs_root
from tests.fakes.nvml import FakeNvml
from tests.fakes.shm import ShownProcesses, mounted

GRACE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class World:
    directory: Path
    shm: Path  # a tmpfs of its own
    processes: ShownProcesses
    nvml: FakeNvml
    systemd: FakeSystemd
    bus_address: str

    def arguments(self, *more: str) -> list[str]:
        config = self.directory / "llmhost.yml"
        roots = ["--path.procfs", str(self.processes.path), "--path.shm", str(self.shm)]
        run = ["--run-dir", str(self.directory / "run")]
        return [*LLMHOST, "clean", "--config", str(config), *roots, *run, *more]

    def environment(self) -> dict[str, str]:
        return environment(self.nvml.environment() | {"DBUS_SYSTEM_BUS_ADDRESS": self.bus_address})

    def clean(self, *more: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        command = [*prefix, *self.arguments(*more)]
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=False, timeout=60)

    def start(self, *more: str) -> "subprocess.Popen[str]":
        """Start it in a process group of its own, as a shell does."""
        return subprocess.Popen(
            self.arguments(*more),
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def configure(self, grace_seconds: float) -> None:
        """Have it watch for so long from now on."""
        millis = f"{int(grace_seconds * 1000)}ms"
        config = {
            "host": {"pid_namespace": "trust"},
            "policy": {"segment_grace": millis, "orphan_grace": millis},
        }
        (self.directory / "llmhost.yml").write_text(yaml.safe_dump(config))


@contextmanager
def world(directory: Path) -> Iterator[World]:
    """Stand it up: no process but an init, no file, no unit, one GPU that nobody uses."""
    needs_root()
    nvml = FakeNvml(directory / "nvml")
    nvml.write(['gpu 0 name="NVIDIA L40S" total=46068M reserved=600M'])
    shown = ShownProcesses(directory / "proc")
    for name in ("meminfo", "sys"):
        (shown.path / name).symlink_to(f"/proc/{name}")
    try:
        with mounted(directory / "shm") as shm, PrivateBus() as bus, FakeSystemd(bus, units=[]) as systemd:
            made = World(directory, shm, shown, nvml, systemd, bus.address)
            made.configure(GRACE_SECONDS)
            yield made
    finally:
        shown.end()
