"""The real `llmhost serve` in a booted systemd's namespaces, with a fake driver: it sees processes as systemd does.

with ExporterInside(booted, nvml) as exporter: exporter.starts("vllm.service")
"""

import os
import signal
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import TracebackType

from prometheus_client.parser import text_string_to_metric_families
from tests.fakes.booted import Booted
from tests.fakes.daemon import Daemon
from tests.fakes.nvml import FakeNvml

CONFIG = """
host: {pid_namespace: trust}
units: {patterns: ['vllm*.service', 'loop*.service'], discover: false}
collectors: {shm: false, engine: false}
"""


class NvmlInside(FakeNvml):
    """A fake driver in a folder of a booted system, so that what runs in there can load it."""

    def __init__(self, booted: Booted, path: str = "/opt/nvml") -> None:
        super().__init__(booted.root / path.lstrip("/"))
        self._path = path

    def environment(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": self._path, "FAKE_NVML_STATE": f"{self._path}/state"}


class ExporterInside(Daemon):
    """Runs until the end of its `with`. `STATE` is its state directory, which outlives it."""

    STATE = "/var/lib/llmhost"

    def __init__(
        self, booted: Booted, nvml: NvmlInside, config: str = CONFIG, more: Mapping[str, str] | None = None
    ) -> None:
        booted.write("/etc/llmhost-test.yml", config)
        booted.run(["mkdir", "-p", self.STATE])
        super().__init__(
            "--state-dir",
            self.STATE,
            env={
                "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/run/dbus/system_bus_socket",
                **nvml.environment(),
                **(more or {}),
            },
            prefix=("nsenter", "-t", str(booted.pid), "-a"),
            config=Path("/etc/llmhost-test.yml"),
        )

    @property
    def pid(self) -> int | None:
        """Its pid as seen from here, None once it has ended; that of `process` is nsenter's, which waits for it."""
        try:
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        except FileNotFoundError:
            return None
        return int(children[0]) if children else None

    def end(self, number: int = signal.SIGTERM, seconds: float = 60.0) -> tuple[int, float]:
        """Send the signal to the exporter and not to nsenter, which ends after it, as it did."""
        began = time.monotonic()
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)
        status = self.process.wait(seconds)
        return status, time.monotonic() - began

    def kill(self) -> None:
        """End it at once, without a chance to save anything."""
        self.end(signal.SIGKILL)

    def series(self, path: str = "/metrics") -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
        """Scrape: name → labels as sorted pairs → value."""
        status, _, body = self.get(path)
        assert status == 200, body
        return parse(body)

    def knows(self, *units: str) -> None:
        """Wait until these units are watched: a start before that is not counted."""
        until = time.monotonic() + 120
        while not set(units) <= {dict(labels)["unit"] for labels in self.series().get("llmhost_unit_info", {})}:
            assert time.monotonic() < until, f"not watched: {units}"
            time.sleep(0.05)

    def starts(self, unit: str) -> dict[str, int]:
        """Scrape, and give the starts of a unit that are not 0, by trigger and verdict."""
        found = of(self.series()["llmhost_unit_starts_total"], unit=unit)
        return {f"{trigger} {verdict}": int(count) for (trigger, verdict), count in found.items() if count}

    def learns(self, unit: str, gpus: AbstractSet[str]) -> None:
        """Wait until the GPUs that the unit needs are these."""
        until = time.monotonic() + 120
        while (
            found := {gpu for gpu, _ in of(self.series()["llmhost_unit_gpu_memory_needed_bytes"], unit=unit)}
        ) != gpus:
            assert time.monotonic() < until, f"{unit}: {found}, and not {gpus}"
            time.sleep(0.05)

    def has_started(self, unit: str, starts: Mapping[str, int], seconds: float) -> None:
        """Wait until the unit has had exactly these starts."""
        until = time.monotonic() + seconds
        while (found := self.starts(unit)) != starts:
            assert time.monotonic() < until, f"{unit}: {found}, and not {starts}"
            time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        super().__exit__(kind, error, traceback)


def parse(page: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def of(series: Mapping[tuple[tuple[str, str], ...], float], **labels: str) -> dict[tuple[str, ...], float]:
    """Those series that have these labels, by the values of their other labels (manager left out)."""
    found = {}
    for pairs, value in series.items():
        have = dict(pairs)
        if all(have.get(name) == wanted for name, wanted in labels.items()):
            rest = tuple(text for name, text in sorted(have.items()) if name not in labels and name != "manager")
            found[rest] = value
    return found
