"""Restarts of the exporter: the history decides what it, and `status`, look at afterwards. On a real systemd."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.daemon import LLMHOST, environment
from tests.fakes.inside import ExporterInside, NvmlInside, of

assert booted_systemd is not None  # a fixture

CONFIG = """
host: {pid_namespace: trust}
units: {patterns: ['vllm*.service']}
collectors: {shm: false, engine: false}
"""
COMMAND = f"{sys.executable} /opt/test/vllm serve m --gpu-memory-utilization"
SCRIPTED = "chat.service"  # nothing in its ExecStart= says that it is an engine
STOPPED = "vllm-stopped.service"
NEEDED_BYTES = 95 << 29  # half of 95 GiB


class Remembering:
    """A host with one GPU, and units that run what is called an engine and sleeps."""

    def __init__(self, booted: Booted) -> None:
        self.booted = booted
        self.nvml = NvmlInside(booted)
        self.nvml.write(["gpu 0 total=96G reserved=1G"])
        booted.run(["mkdir", "-p", "/opt/test"])
        booted.write("/opt/test/vllm", "import time\ntime.sleep(1e6)\n")
        booted.write("/opt/test/start", f"exec {COMMAND} 0.5 --api-key s3cret\n")
        booted.write_unit(SCRIPTED, "[Service]\nExecStart=/bin/sh /opt/test/start\n")
        booted.write_unit(STOPPED, f"[Service]\nExecStart={COMMAND} 0.5\n")
        booted.systemctl("daemon-reload")

    def exporter(self) -> ExporterInside:
        return ExporterInside(self.booted, self.nvml, CONFIG)

    def status(self) -> tuple[int, dict[str, Any]]:
        """Ask `llmhost status`: exit code and answer."""
        options = ("--config", "/etc/llmhost-test.yml", "--state-dir", ExporterInside.STATE)
        bus = {"DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/run/dbus/system_bus_socket", **self.nvml.environment()}
        variables = [f"{name}={value}" for name, value in environment(bus).items()]
        done = self.booted.run(["env", *variables, *LLMHOST, "status", "--json", *options], check=False)
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(name="host", scope="module")
def fixture_host(booted_systemd: Booted) -> Remembering:
    return Remembering(booted_systemd)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def of_unit(exporter: ExporterInside, unit: str, family: str) -> list[float]:
    return list(of(exporter.series().get(f"llmhost_unit_{family}", {}), unit=unit).values())


def states(exporter: ExporterInside, unit: str) -> set[tuple[str, ...]]:
    found = of(exporter.series().get("llmhost_unit_active_state", {}), unit=unit)
    return {state for state, value in found.items() if value}


def load_states(exporter: ExporterInside, unit: str) -> set[str]:
    return {
        dict(labels)["load_state"]
        for labels in exporter.series().get("llmhost_unit_info", {})
        if dict(labels)["unit"] == unit
    }


def test_a_unit_that_only_its_processes_gave_away_is_watched_while_it_is_down(host: Remembering) -> None:
    host.booted.systemctl("start", SCRIPTED)
    with host.exporter() as exporter:
        exporter.learns(SCRIPTED, {"0"})
        host.booted.systemctl("kill", "--signal=KILL", SCRIPTED)
        until(lambda: states(exporter, SCRIPTED) == {("failed",)})
        assert of_unit(exporter, SCRIPTED, "startable") == [1.0]
    saved = host.booted.run(["cat", f"{ExporterInside.STATE}/history.json"]).stdout
    assert '"utilization":0.5' in saved
    assert "s3cret" not in saved
    code, answer = host.status()
    assert code == 1
    assert [finding["what"] for finding in answer["findings"] if finding["subject"] == SCRIPTED] == [
        "has failed (signal)"
    ]
    with host.exporter() as exporter:
        assert states(exporter, SCRIPTED) == {("failed",)}
        assert of_unit(exporter, SCRIPTED, "gpu_memory_needed_bytes") == [NEEDED_BYTES]
        assert of_unit(exporter, SCRIPTED, "startable") == [1.0]
    host.booted.systemctl("reset-failed", SCRIPTED)


def test_what_a_start_needs_is_also_told_of_a_unit_that_systemd_has_unloaded(host: Remembering) -> None:
    with host.exporter() as exporter:
        exporter.knows(STOPPED)
        host.booted.systemctl("start", STOPPED)
        until(lambda: states(exporter, STOPPED) == {("active",)})
        host.booted.systemctl("stop", STOPPED)
        until(lambda: load_states(exporter, STOPPED) == {"stub"})
        assert of_unit(exporter, STOPPED, "gpu_memory_needed_bytes") == [NEEDED_BYTES]
        assert of_unit(exporter, STOPPED, "startable") == [1.0]
    with host.exporter() as exporter:
        assert load_states(exporter, STOPPED) == {"stub"}
        assert of_unit(exporter, STOPPED, "startable") == [1.0]
        assert of_unit(exporter, STOPPED, "wanted") == [0.0]


def test_a_gpu_that_fell_off_the_bus_is_missed_by_those_who_never_saw_it(host: Remembering) -> None:
    host.nvml.write(["gpu 0 total=96G reserved=1G", "gpu 1 total=96G reserved=1G"])
    with host.exporter() as exporter:
        assert of(exporter.series()["llmhost_gpus_expected"]) == {(): 2.0}
    host.nvml.write(["gpu 0 total=96G reserved=1G"])
    code, answer = host.status()
    assert code == 1
    found = [(finding["subject"], finding["what"]) for finding in answer["findings"] if finding["kind"] == "gpu"]
    assert found == [("GPU 1", "lost")]
    with host.exporter() as exporter:
        series = exporter.series()
        assert of(series["llmhost_gpus_expected"]) == {(): 2.0}
        assert {dict(labels)["gpu"]: up for labels, up in series["llmhost_gpu_up"].items()} == {"0": 1.0, "1": 0.0}


@pytest.mark.parametrize("ended", ["killed", "killed before systemd knows", "stopped"])
def test_a_unit_whose_file_vanishes_is_told_of_unless_it_was_stopped(host: Remembering, ended: str) -> None:
    unit = f"vllm-{ended.replace(' ', '-')}.service"
    host.booted.write_unit(unit, f"[Service]\nExecStart={COMMAND} 0.5\n[Install]\nWantedBy=basic.target\n")
    host.booted.systemctl("enable", unit)  # in a target that is up here: else nobody wants it once it has ended
    host.booted.systemctl("start", unit)
    with host.exporter() as exporter:
        until(lambda: of_unit(exporter, unit, "wanted") == [1.0])
        if ended == "stopped":
            host.booted.systemctl("stop", unit)
        host.booted.run(["rm", f"/etc/systemd/system/{unit}", f"/etc/systemd/system/basic.target.wants/{unit}"])
        if ended == "killed":
            host.booted.systemctl("daemon-reload")
            until(lambda: load_states(exporter, unit) == {"not-found"})
            assert states(exporter, unit) == {("active",)}
        if ended != "stopped":
            host.booted.systemctl("kill", "--signal=TERM", unit)
            until(lambda: states(exporter, unit) != {("active",)})
            host.booted.systemctl("reset-failed", unit, check=False)
        host.booted.systemctl("daemon-reload")
        told = set() if ended == "stopped" else {"not-found"}
        until(lambda: load_states(exporter, unit) == told)
    with host.exporter() as exporter:
        assert load_states(exporter, unit) == told
    _, answer = host.status()
    found = [finding["what"] for finding in answer["findings"] if finding["subject"] == unit]
    assert found == (["its unit file has vanished, and nobody had stopped it"] if told else [])
