"""The guard as ExecStartPre= of units of a real systemd; the driver is the fake one."""

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.inside import NvmlInside

__all__ = ["booted_systemd"]

ENGINE = """#!/bin/sh
exec sleep 1000
"""
# 0.9 of 96 GiB less 1 GiB that is reserved: 85.5 GiB. StandardError= as there is no journal in there.
UNIT = """
[Unit]
StartLimitIntervalSec=0
[Service]
Environment=LD_LIBRARY_PATH=/opt/nvml FAKE_NVML_STATE=/opt/nvml/state
Environment=CUDA_VISIBLE_DEVICES={gpus}
WorkingDirectory={here}
ExecStartPre={prefix}{python} -m llmhost guard --config /etc/llmhost-guard.yml {options}
ExecStart=/opt/test/vllm serve model -tp {count} --gpu-memory-utilization 0.9
StandardError=append:/run/{name}.log
{more}
"""


class Host:
    """Eight GPUs, and units that want some of them."""

    def __init__(self, booted: Booted) -> None:
        self.booted = booted
        self._nvml = NvmlInside(booted)
        self._used: dict[int, str] = {}
        self._processes: list[str] = []
        self.use({})
        booted.run(["mkdir", "-p", "/opt/test"])
        booted.write("/opt/test/vllm", ENGINE)
        booted.run(["chmod", "755", "/opt/test/vllm"])
        booted.write("/etc/llmhost-guard.yml", "host: {pid_namespace: trust}\n")

    def holds(self, *processes: str) -> None:
        """Have these processes hold memory, and no others."""
        self._processes.clear()
        self.use({}, *processes)

    def use(self, used: dict[int, str], *processes: str) -> None:
        self._used.update(used)
        self._processes += processes
        gpus = [f"gpu {number} total=96G reserved=1G used={self._used.get(number, '600M')}" for number in range(8)]
        self._nvml.write([*gpus, *self._processes])

    def unit(self, name: str, gpus: str, options: str = "", more: str = "", prefix: str = "+") -> None:
        text = UNIT.format(
            name=name,
            gpus=gpus,
            count=len(gpus.split(",")),
            options=options,
            more=more,
            prefix=prefix,
            here=Path.cwd(),
            python=sys.executable,
        )
        self.booted.write_unit(f"{name}.service", text)
        self.booted.systemctl("daemon-reload")

    def start(self, *names: str) -> float:
        """Start without waiting; give when."""
        self.booted.systemctl("start", "--no-block", *(f"{name}.service" for name in names))
        return time.monotonic()

    def state(self, name: str) -> str:
        return self.booted.show(f"{name}.service", "SubState")["SubState"]

    def becomes(self, name: str, state: str, seconds: float = 60.0) -> float:
        """Wait until the unit is in this sub-state; give when."""
        until = time.monotonic() + seconds
        while (found := self.state(name)) != state:
            assert time.monotonic() < until, f"{name} is {found}, not {state}: {self.log(name)}"
        return time.monotonic()

    def log(self, name: str) -> str:
        return self.booted.run(["cat", f"/run/{name}.log"], check=False).stdout

    def says(self, name: str, pattern: str, seconds: float = 60.0) -> re.Match[str]:
        until = time.monotonic() + seconds
        while (found := re.search(pattern, self.log(name))) is None:
            assert time.monotonic() < until, f"no {pattern!r} in {self.log(name)!r}"
            time.sleep(0.02)
        return found

    def record(self, name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.booted.run(["cat", f"/run/llmhost/guards/{name}.service"]).stdout)
        run = found["run"]
        assert isinstance(run, dict)
        return run


@pytest.fixture
def host(booted_systemd: Booted) -> Iterator[Host]:
    booted_systemd.run(["sh", "-c", "rm -rf /run/*.log /run/llmhost"])
    yield Host(booted_systemd)
    booted_systemd.systemctl("stop", "vllm-*.service")
    booted_systemd.run(["sh", "-c", "rm -f /etc/systemd/system/vllm-*.service"])
    booted_systemd.systemctl("daemon-reload")
    booted_systemd.systemctl("reset-failed")


def test_a_unit_starts_once_and_at_once_when_its_predecessors_memory_is_gone(host: Host) -> None:
    host.use({0: "80G", 1: "80G"})
    host.unit("vllm-a", "0,1", more="NotifyAccess=exec")
    host.start("vllm-a")
    host.says("vllm-a", r"vllm-a\.service waits for GPU 0 \(15\.0 of 85\.5 GiB free\): 80\.0 GiB with no visible owner")
    assert host.state("vllm-a") == "start-pre"
    assert host.booted.show("vllm-a.service", "StatusText")["StatusText"].startswith("guard: waits for GPU 0 (15.0 of")
    time.sleep(2)
    host.use({0: "0"})  # one of two: no reason to start
    host.says("vllm-a", r"waits for GPU 1")
    assert host.state("vllm-a") == "start-pre"
    host.use({1: "0"})
    freed_at = time.monotonic()
    running_at = host.becomes("vllm-a", "running")
    assert running_at - freed_at >= 0.9, "the settle time of 1 s"
    shown = host.booted.show("vllm-a.service", "NRestarts", "Result")
    assert shown == {"NRestarts": "0", "Result": "success"}
    assert re.search(r"free after \d+\.\d s: 85\.5 GiB or more free on GPUs 0, 1, steady for 1 s", host.log("vllm-a"))
    record = host.record("vllm-a")
    assert (record["verdict"], record["runs_total"]) == ("free", {"free": 1})


def test_holders_of_the_memory_are_named_and_other_gpus_are_no_concern(host: Host) -> None:
    """Two units at once, on 0 to 3 and 4 to 7; on 5 a third one runs that is up."""
    host.unit("vllm-c", "5", prefix="-+/nonexistent/llmhost guard ")
    host.start("vllm-c")
    host.becomes("vllm-c", "running")  # a broken virtualenv, and the prefix that makes it no matter
    pid = host.booted.show("vllm-c.service", "MainPID")["MainPID"]
    host.use({5: "70G"}, f"proc 5 {pid} mem=69G")
    host.unit("vllm-a", "0,1,2,3")
    host.unit("vllm-b", "4,5,6,7", options="--timeout 5s")
    host.start("vllm-a", "vllm-b")
    host.becomes("vllm-a", "running")
    assert host.state("vllm-b") == "start-pre"
    assert re.search(r"free after \d+\.\d s", host.log("vllm-a"))
    who = rf"GPU 5 \(25\.0 of 85\.5 GiB free\): 69\.0 GiB sleep pid {pid} of vllm-c\.service \(current, since [0-9:]+\)"
    host.says("vllm-b", rf"waits for {who}, 1\.0 GiB with no visible owner")
    host.becomes("vllm-b", "failed")
    host.says(
        "vllm-b", r"held after \d+\.\d s \(--timeout\): .*Next step: stop vllm-c\.service, or give this unit other"
    )
    assert host.record("vllm-b")["verdict"] == "held"


def test_memory_that_never_falls_ends_the_wait_within_the_time_to_start(host: Host) -> None:
    """5 s less a tenth, unless systemd can be asked for more; then the guard's own 6 s."""
    host.use({0: "80G", 1: "80G"})
    host.unit("vllm-a", "0", more="TimeoutStartSec=5s")
    host.unit("vllm-b", "1", options="--timeout 6s", more="TimeoutStartSec=3s\nNotifyAccess=exec")
    started_at = host.start("vllm-a", "vllm-b")
    ended_at = host.becomes("vllm-a", "failed")
    assert ended_at - started_at >= 4.0
    assert host.booted.show("vllm-a.service", "Result")["Result"] == "exit-code", "and not timeout"
    last = host.log("vllm-a").splitlines()[-1]
    assert "held after 4." in last
    assert "0.5 s before TimeoutStartSec=5s would end it; NotifyAccess=exec lets the guard extend it" in last
    assert "Next step: no visible process has this memory: see who has /dev/nvidia* open" in last
    assert host.state("vllm-b") == "start-pre", "3 s have passed"
    ended_at = host.becomes("vllm-b", "failed")
    assert ended_at - started_at >= 6.0
    assert host.booted.show("vllm-b.service", "Result")["Result"] == "exit-code"
    assert re.search(r"held after \d+\.\d s \(--timeout\)", host.log("vllm-b"))


def test_a_stop_ends_the_wait_at_once_and_leaves_no_failed_unit(host: Host) -> None:
    host.use({0: "80G"})
    host.unit("vllm-a", "0")
    host.start("vllm-a")
    host.says("vllm-a", "waits for GPU 0")
    stopped_at = time.monotonic()
    host.booted.systemctl("stop", "vllm-a.service")
    assert time.monotonic() - stopped_at < 10, "and not TimeoutStopSec="
    assert host.booted.show("vllm-a.service", "ActiveState", "Result") == {
        "ActiveState": "inactive",
        "Result": "success",
    }
    assert re.search(r"ended by SIGTERM after \d+\.\d s: it waited for GPU 0 \(15\.0 of", host.log("vllm-a"))


def test_a_sigterm_that_is_not_systemds_starts_nothing(host: Host) -> None:
    host.use({0: "80G"})
    host.unit("vllm-a", "0")
    host.start("vllm-a")
    host.says("vllm-a", "waits for GPU 0")
    pid = host.booted.show("vllm-a.service", "ControlPID")["ControlPID"]
    host.booted.run(["kill", pid])
    host.becomes("vllm-a", "failed")
    shown = host.booted.show("vllm-a.service", "ExecMainStartTimestampMonotonic", "Result")
    assert shown == {"ExecMainStartTimestampMonotonic": "0", "Result": "exit-code"}


def test_what_an_environment_file_says_counts(host: Host) -> None:
    """The bus does not give its content, but the guard gets the same."""
    host.use({0: "80G"})
    host.booted.write("/etc/vllm-a.env", "CUDA_VISIBLE_DEVICES=3\n")
    host.unit("vllm-a", "0", more="EnvironmentFile=/etc/vllm-a.env")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    assert "free on GPU 3" in host.log("vllm-a")


def test_the_switch_lets_a_start_go_on(host: Host) -> None:
    host.use({0: "80G"})
    host.booted.run(["sh", "-c", "mkdir -p /run/llmhost && touch /run/llmhost/guard.off"])
    host.unit("vllm-a", "0")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    assert "switched off by /run/llmhost/guard.off" in host.log("vllm-a")


def test_a_unit_that_does_not_exist_is_wrong_use(host: Host) -> None:
    guard = [sys.executable, "-m", "llmhost", "guard", "--unit", "vllm-typo", "--config", "/etc/llmhost-guard.yml"]
    environment = ["LD_LIBRARY_PATH=/opt/nvml", "FAKE_NVML_STATE=/opt/nvml/state"]
    run = ["env", "-C", str(Path.cwd()), *environment, *guard]
    done = host.booted.run(run, check=False)
    assert (done.returncode, done.stderr) == (2, "llmhost: systemd has no unit vllm-typo.service\n")
    host.unit("vllm-a", "0")
    host.booted.run(["ln", "-s", "vllm-a.service", "/etc/systemd/system/vllm-typo.service"])  # as Alias= does
    for _ in range(2):
        assert "vllm-a.service: free" in host.booted.run(run).stderr
        host.start("vllm-a")  # now systemd has loaded it
        host.becomes("vllm-a", "running")
    host.booted.run(["rm", "/etc/systemd/system/vllm-typo.service"])


def test_a_unit_that_systemd_has_not_loaded_is_reported_and_all_gpus_count(host: Host) -> None:
    host.unit("vllm-a", "0")
    host.use({1: "2G"})
    guard = [sys.executable, "-m", "llmhost", "guard", "--unit", "vllm-a", "--config", "/etc/llmhost-guard.yml"]
    environment = ["LD_LIBRARY_PATH=/opt/nvml", "FAKE_NVML_STATE=/opt/nvml/state"]
    command = ["env", "-C", str(Path.cwd()), *environment, *guard, "--timeout", "0s"]
    done = host.booted.run(command, check=False)
    assert done.returncode == 1
    assert "systemd has not loaded vllm-a.service, so what it runs is not known" in done.stderr
    assert "GPU 1 (2.0 GiB in use, less than 1.0 GiB wanted)" in done.stderr
