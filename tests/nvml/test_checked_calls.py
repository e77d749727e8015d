"""Unsupported calls are not made again for a while, and then they are."""

import os
import subprocess
import sys

import pytest
from tests.fakes.nvml_reader import Driver

from llmhost.sources.nvml.child.checked_calls import CheckedCalls, Subject
from llmhost.sources.nvml.codes import Code, NvmlCallError

FIRST, OTHER = Subject("GPU-1"), Subject("GPU-2")


class Calls:
    def __init__(self, code: int) -> None:
        self.made = 0
        self._code = code

    def __call__(self) -> float:
        self.made += 1
        raise NvmlCallError("nvmlDeviceGetPowerUsage", self._code)


class Now:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize("code", [3, 13, 25])
def test_what_is_not_supported_is_asked_again_after_its_time(code: int) -> None:
    now, calls = Now(), Calls(code)
    checked = CheckedCalls(600.0, now)
    for second, made in [(0.0, 1), (1.0, 1), (599.0, 1), (600.0, 2), (1199.0, 2), (1200.0, 3)]:
        now.seconds = 1000.0 + second
        answer = checked.ask(FIRST, "power", calls)
        assert isinstance(answer, NvmlCallError)
        assert (answer.code, calls.made) == (code, made)


def test_a_call_may_have_a_shorter_time_and_never_a_longer_one() -> None:
    now, short, long = Now(), Calls(Code.NOT_SUPPORTED), Calls(Code.NOT_SUPPORTED)
    checked = CheckedCalls(600.0, now)
    for second, made in [(0.0, 1), (59.0, 1), (60.0, 2), (119.0, 2), (600.0, 3)]:
        now.seconds = 1000.0 + second
        assert checked.optional(FIRST, "fabric", short, 60.0) is None
        assert checked.optional(FIRST, "other", long, 900.0) is None
        assert (short.made, long.made) == (made, 2 if second == 600.0 else 1)


def test_what_one_does_not_support_another_may() -> None:
    now, calls = Now(), Calls(Code.NOT_SUPPORTED)
    checked = CheckedCalls(600.0, now)
    assert checked.optional(FIRST, "power", calls) is None
    assert checked.optional(OTHER, "power", lambda: 90.0) == 90.0
    now.seconds += 600.0
    assert checked.optional(FIRST, "power", lambda: 80.0) == 80.0


def test_what_becomes_supported_is_read(driver: Driver) -> None:
    driver.write(["gpu 0 temp=-1 power=-1"])
    reader = driver.reader(unsupported_seconds=0.0)
    gpu = reader.gpu()
    assert (gpu.fabric_ready, gpu.temperature_celsius, gpu.power_watts) == (None, None, None)
    driver.write(["gpu 0 temp=50 power=90000 fabric=2:0"])
    reader.clock.advance(1)
    gpu = reader.gpu()
    assert (gpu.fabric_ready, gpu.temperature_celsius, gpu.power_watts) == (False, 50.0, 90.0)


SCANNER = """
import sys
from pathlib import Path
from llmhost.sources.nvml import current_call
from llmhost.sources.nvml.child.checked_calls import CheckedCalls
from llmhost.sources.nvml.child.driver import Driver
from llmhost.sources.nvml.child.gpu_scan import Skip, GpuScan
from llmhost.sources.nvml.child.worker import Pynvml

seconds = 0.0
driver = Driver(Pynvml(), current_call.CurrentCallWriter(current_call.create()))
driver.init()
scan = GpuScan(driver, Path("/proc"), CheckedCalls(600.0, lambda: seconds), on_gpu=lambda uuid, device: None)
for line in sys.stdin:
    seconds = float(line)
    (gpu,) = scan.scan(1, Skip(), "everything")
    print(gpu["fabric_ready"], gpu["power_watts"], flush=True)
"""


def test_a_fabric_manager_that_starts_later_is_seen_within_a_minute(driver: Driver) -> None:
    driver.write(["gpu 0 power=-1"])
    environment = {**os.environ, **driver.environment()}
    with subprocess.Popen([sys.executable, "-c", SCANNER], stdin=-1, stdout=-1, text=True, env=environment) as looking:
        assert looking.stdin is not None
        assert looking.stdout is not None

        def scan(seconds: float) -> str:
            print(seconds, file=looking.stdin, flush=True)
            return looking.stdout.readline().strip() if looking.stdout else ""

        assert scan(0) == "None None"
        driver.write(["gpu 0 power=90000 fabric=3:0"])
        assert [scan(59), scan(60), scan(599), scan(600)] == ["None None", "True None", "True None", "True 90.0"]
