"""Promises of the fake driver to the other tests, through real pynvml.

pynvml loads the library once per process and keeps it, so each test's calls run in a process of their own. The process
has the functions below; a failed assertion in it fails the test. What other tests read through NvmlSource is not here.
"""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.fakes.nvml import build
from tests.fakes.nvml_reader import Driver

PRELUDE = """
import os, subprocess, threading, time
from pathlib import Path
import pynvml as p

class fake:
    @staticmethod
    def write(lines):
        state = Path(os.environ["FAKE_NVML_STATE"])
        state.with_suffix(".new").write_text("\\n".join(lines))
        state.with_suffix(".new").replace(state)

four = [f'gpu {i} name="NVIDIA H100 80GB HBM3" reserved=551M total=81559M' for i in range(4)]

def begin(*lines):
    fake.write(lines)
    p.nvmlInit()
    return [p.nvmlDeviceGetHandleByIndex(i) for i in range(p.nvmlDeviceGetCount())]

def v2(device):
    return p.nvmlDeviceGetMemoryInfo(device, p.nvmlMemory_v2)
"""


@pytest.fixture
def through_pynvml(driver: Driver) -> Callable[[str], None]:
    def run(program: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + inspect.cleandoc(program)],
            env={**os.environ, **driver.environment()},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    return run


Run = Callable[[str], None]


def test_a_hung_call_holds_up_its_thread_alone_and_ends_with_its_line(through_pynvml: Run) -> None:
    through_pynvml("""
        h = begin(*four, "delay nvmlDeviceGetMemoryInfo 1 100", "delay nvmlDeviceGetMemoryInfo 3 hang")
        began = time.monotonic()
        p.nvmlDeviceGetMemoryInfo(h[1])
        assert time.monotonic() - began >= 0.1
        done = threading.Event()
        thread = threading.Thread(target=lambda: (p.nvmlDeviceGetMemoryInfo(h[3]), done.set()))
        thread.start()
        for _ in range(100):
            p.nvmlDeviceGetMemoryInfo(h[0])
        assert not done.wait(0.05)
        fake.write(four)
        assert done.wait(5)
        thread.join()
    """)


def test_a_call_that_keeps_the_lock_holds_up_all(through_pynvml: Run) -> None:
    through_pynvml("""
        h = begin(*four, "delay nvmlDeviceGetComputeRunningProcesses_v3 3 hang lock=1")
        thread = threading.Thread(target=p.nvmlDeviceGetComputeRunningProcesses, args=(h[3],))
        other = threading.Thread(target=p.nvmlDeviceGetMemoryInfo, args=(h[0],))
        thread.start()
        time.sleep(0.05)  # nothing tells from outside that the lock is taken
        other.start()
        other.join(0.1)
        assert other.is_alive()
        fake.write(four)
        thread.join(5)
        other.join(5)
        assert not other.is_alive()
    """)


def test_an_entry_bound_to_a_process_goes_with_it_after_its_time(through_pynvml: Run) -> None:
    through_pynvml("""
        child = subprocess.Popen(["sleep", "60"])
        h = begin(*four, f"proc 0 {child.pid} mem=40G alive=1 linger=150")
        assert v2(h[0]).used == 40 << 30
        child.kill()
        assert len(p.nvmlDeviceGetComputeRunningProcesses(h[0])) == 1
        began = time.monotonic()
        while p.nvmlDeviceGetComputeRunningProcesses(h[0]):  # the child is a zombie: not reaped yet
            assert time.monotonic() < began + 5
        assert time.monotonic() - began > 0.1
        assert v2(h[0]).used == 0
        child.wait()
    """)


def test_building_again_gives_the_same_file() -> None:
    before = build().stat()
    after = build().stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
