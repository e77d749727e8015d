"""A driver that does not come back, and a child that ends, stops or cannot be killed."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.children import children_of
from tests.fakes.nvml_reader import Driver, Reader, eventually, memory_of

from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError
from llmhost.sources.nvml.source import NvmlSource

FOUR = [f"gpu {i} uuid=GPU-{i}" for i in range(4)]
HANG = "delay nvmlDeviceGetMemoryInfo_v2 3 hang"


def has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def descriptors_now() -> list[str]:
    return sorted(entry.name for entry in Path("/proc/self/fd").iterdir())


@pytest.fixture
def hung(driver: Driver) -> Reader:
    """Yield a reader that has read once and whose child now hangs on GPU 3, known to be stuck."""
    driver.write(FOUR)
    reader = driver.reader(kill_after_seconds=120.0, hang_backoff=(5.0, 300.0))
    reader.read()
    driver.add(HANG)
    reader.clock.advance(2)
    assert reader.fail(0.0).cause is Cause.TIMEOUT
    eventually(lambda: "on GPU 3" in reader.source.doing())
    return reader


def test_a_hung_call_names_the_call_and_the_gpu(driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader()
    reader.read()
    driver.add(HANG)
    began = time.monotonic()
    error = reader.fail(1.0)
    took = time.monotonic() - began
    assert 1.0 <= took < 10, "and not for as long as it hangs"
    assert error.cause is Cause.TIMEOUT
    assert error.detail.startswith("nvmlDeviceGetMemoryInfo_v2 on GPU 3 for ")
    assert error.stuck is not None
    assert (error.stuck.call, error.stuck.subject) == ("nvmlDeviceGetMemoryInfo_v2", "3")
    assert 0 < error.stuck.seconds <= took
    assert reader.source.doing().startswith("nvmlDeviceGetMemoryInfo_v2 on GPU 3 for ")


def test_a_hung_init_names_the_call_and_no_gpu(driver: Driver) -> None:
    driver.write([*FOUR, "delay nvmlInit* * hang"])
    reader = driver.reader()
    reader.fail(0.0)
    eventually(lambda: reader.source.doing().startswith("nvmlInitWithFlags for "))
    error = reader.fail(0.0)
    assert error.stuck is not None
    assert (error.stuck.call, error.stuck.subject) == ("nvmlInitWithFlags", "")


def test_while_a_call_hangs_reads_fail_soon_and_the_child_is_kept(hung: Reader) -> None:
    child = hung.child_pid
    for _ in range(2):
        began = time.monotonic()
        error = hung.fail(20.0)
        assert time.monotonic() - began < 10
        assert error.cause is Cause.TIMEOUT
        assert "on GPU 3" in error.detail
    assert hung.child_pid == child


def test_what_comes_late_is_not_served(hung: Reader, driver: Driver) -> None:
    child = hung.child_pid
    driver.write([*FOUR, "proc 3 77 mem=1G"])  # the hang ends
    gpu = hung.read().gpus[3]
    assert memory_of(gpu).used_bytes == 1 << 30
    assert hung.child_pid == child


def test_a_late_failure_is_reported_as_what_it_is(driver: Driver) -> None:
    driver.write(["system x init=18", "delay nvmlInit* * hang"])
    reader = driver.reader()
    assert reader.fail(0.0).cause is Cause.TIMEOUT
    eventually(lambda: "nvmlInit" in reader.source.doing())
    driver.write(["system x init=18"])
    assert reader.fail().cause is Cause.DRIVER_MISMATCH


def test_a_child_that_hangs_too_long_is_replaced_and_its_gpu_left_out_once(hung: Reader) -> None:
    child = hung.child_pid
    hung.clock.advance(120)
    error = hung.fail()
    assert error.cause is Cause.TIMEOUT
    assert "killed" in error.detail
    assert has_ended(child)
    again = hung.fail()  # too early for another
    assert (again.cause, again.stuck) == (Cause.TIMEOUT, error.stuck)
    hung.clock.advance(5)
    report = hung.read()
    assert [(gpu.uuid, gpu.fault) for gpu in report.gpus] == [
        ("GPU-0", None),
        ("GPU-1", None),
        ("GPU-2", None),
        ("GPU-3", Cause.TIMEOUT),
    ]
    assert hung.fail(0.1).cause is Cause.TIMEOUT  # it was left out once; it still hangs
    hung.clock.advance(121)
    hung.fail(0.1)
    hung.clock.advance(10)
    for _ in range(3):  # and now for longer
        assert hung.read().gpus[3].fault is Cause.TIMEOUT
        hung.clock.advance(2)


def test_a_gpu_that_was_left_out_is_back_when_it_answers(hung: Reader, driver: Driver) -> None:
    hung.clock.advance(120)
    hung.fail()
    hung.clock.advance(5)
    assert hung.read().gpus[3].fault is Cause.TIMEOUT
    driver.write(FOUR)
    assert hung.read().gpus[3].up  # also when only memory was to be read
    hung.clock.advance(2)
    assert hung.read().gpus[3].up


def test_a_child_killed_from_outside_while_idle_costs_nothing(driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader()
    reader.read()
    child = reader.child_pid
    os.kill(child, signal.SIGKILL)
    # ended with all its threads: state Z is that of the first alone
    eventually(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
    assert reader.read().listed == 4
    assert has_ended(child)


def test_a_child_killed_from_outside_while_asked_costs_one_read(hung: Reader, driver: Driver) -> None:
    driver.write(FOUR)
    child = hung.child_pid
    os.kill(child, signal.SIGKILL)
    error = hung.fail()
    assert (error.cause, error.detail) == (Cause.UNKNOWN, "the NVML child: it was ended by signal 9")
    assert has_ended(child)
    hung.clock.advance(1)
    assert hung.read().listed == 4


def test_a_stopped_child_is_a_timeout_without_a_call(driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader(kill_after_seconds=60.0, hang_backoff=(5.0, 300.0))
    reader.read()
    child = reader.child_pid
    os.kill(child, signal.SIGSTOP)
    error = reader.fail(0.3)
    assert (error.cause, error.stuck) == (Cause.TIMEOUT, None)
    assert error.detail == "the NVML child is in no call: starting, stopped, or idle"
    os.kill(child, signal.SIGCONT)
    assert reader.read().listed == 4
    assert reader.child_pid == child
    os.kill(child, signal.SIGSTOP)
    reader.fail(0.1)
    reader.clock.advance(60)
    reader.fail()
    assert has_ended(child)


def test_two_children_that_cannot_be_killed_are_enough(
    driver: Driver, keep_from_dying: Callable[[int], object]
) -> None:
    driver.write([*FOUR, "delay nvmlInit* * hang"])
    reader = driver.reader(kill_after_seconds=60.0, reap_seconds=0.05, hang_backoff=(5.0, 5.0))
    hung = []
    for _ in range(2):
        reader.fail(0.0)
        eventually(lambda: "nvmlInit" in reader.source.doing())
        hung.append(reader.child_pid)
        keep_from_dying(reader.child_pid)
        reader.clock.advance(60)
        assert "killed" in reader.fail(0.1).detail
        reader.clock.advance(5)
    for _ in range(2):
        error = reader.fail()
        assert error.cause is Cause.TIMEOUT
        assert error.detail == f"NVML children {hung[0]} and {hung[1]} hang in the driver and cannot be killed"
        reader.clock.advance(300)
    assert reader.source._state.child is None
    reader.source.close()


def test_close_ends_a_stuck_read_and_the_hung_child_within_a_second(hung: Reader, driver: Driver) -> None:
    driver.write([*FOUR, "delay nvmlDevice* * hang"])
    os.kill(hung.child_pid, signal.SIGKILL)
    hung.fail()
    hung.clock.advance(1)
    errors: list[SourceError] = []
    started = threading.Event()

    def read() -> None:
        started.set()
        errors.append(hung.fail(60.0))

    reading = threading.Thread(target=read)
    reading.start()
    started.wait()
    eventually(lambda: "nvmlDevice" in hung.source.doing())
    child = hung.child_pid
    began = time.monotonic()
    hung.source.close()
    reading.join(10)
    assert time.monotonic() - began < 10, "and not the 60 s of the read"
    assert not reading.is_alive()
    assert has_ended(child)
    assert errors[0].detail == "closed"
    assert hung.fail().detail == "closed"
    hung.source.close()


def test_the_child_ends_with_its_parent_also_while_it_hangs(driver: Driver) -> None:
    driver.write([*FOUR, HANG])
    program = (
        "import pathlib, time\n"
        "from llmhost.sources.base import SourceError\n"
        "from llmhost.sources.nvml.source import NvmlSource\n"
        "source = NvmlSource(procfs=pathlib.Path('/proc'))\n"
        "try: source.read(time.monotonic())\n"
        "except SourceError: pass\n"
        "while 'on GPU 3' not in source.doing(): time.sleep(0.01)\n"
        "print(source._state.child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=-1, text=True, env={**os.environ, **driver.environment()}
    )
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    assert select.select([child], [], [], 5.0)[0] == [child]
    os.close(child)


def test_the_child_outlives_the_thread_that_started_it_and_an_interrupt(driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader()
    thread = threading.Thread(target=reader.read)
    thread.start()
    thread.join()
    child = reader.child_pid
    os.kill(child, signal.SIGINT)
    assert reader.read().listed == 4
    assert reader.child_pid == child


def test_many_children_leave_neither_descriptors_nor_zombies(driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader(
        failure_backoff=(0.0, 0.0), hang_backoff=(0.0, 0.0), kill_after_seconds=0.0, list_interval_seconds=0.0
    )

    def start_each() -> None:
        driver.write(["system x init=9"])
        if reader.source._state.child is not None:
            os.kill(reader.child_pid, signal.SIGKILL)
            eventually(lambda: reader.source._state.child is not None and not reader.source._state.child.alive())
        reader.fail()  # ends by itself
        driver.write([*FOUR, "delay nvmlDeviceGetCount_v2 * hang"])
        reader.fail(0.0)  # hangs
        reader.fail(0.1)  # is killed
        driver.write(FOUR)
        reader.read()

    before = children_of()
    start_each()
    descriptors = descriptors_now()
    for _ in range(4):
        start_each()
    assert descriptors_now() == descriptors
    reader.source.close()
    assert children_of() == before
    assert len(descriptors_now()) < len(descriptors)


def test_a_program_that_is_no_child_costs_the_report(driver: Driver, tmp_path: Path) -> None:
    babbler = tmp_path / "python"
    babbler.write_text("#!/bin/sh\nread question\necho '[1]'\nread question\n")
    babbler.chmod(0o755)
    source = NvmlSource(procfs=Path("/proc"), python=str(babbler))
    with pytest.raises(SourceError, match="the NVML child's answer is none: TypeError"):
        source.read(time.monotonic() + 5)
    source.close()
    absent = NvmlSource(procfs=Path("/proc"), python=str(tmp_path / "absent"))
    with pytest.raises(SourceError, match="cannot start the NVML child"):
        absent.read(time.monotonic() + 5)
    absent.close()
