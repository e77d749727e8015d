"""Reads of memory alone, by themselves and between full reads."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.fakes.nvml_reader import Driver, Reader, calls_in, eventually, holders_of, memory_of

from llmhost.model.gpu import Gpu
from llmhost.model.reading import Cause, Failed, NotApplicable
from llmhost.sources.base import Source, SourceError
from llmhost.sources.nvml.source import NvmlMemorySource

GIB = 1 << 30
FOUR = [f"gpu {i} uuid=GPU-{i}" for i in range(4)]
MIXED = ["gpu 0 util=50", "gpu 1 mig=1", "mig 1 0 gi=1 ci=0"]
HELD = ["proc 0 77 mem=1G", "proc 1 79 mem=3G gi=1 ci=0"]


def is_changing(gpu: Gpu) -> bool:
    return isinstance(gpu.holders, Failed) and gpu.holders.cause is Cause.CHANGING


def lists_in(trace: Path) -> int:
    return sum("Processes" in call for call, _, _ in calls_in(trace))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace"


def test_memory_is_asked_of_each_gpu_and_nothing_else(driver: Driver, trace: Path, tmp_path: Path) -> None:
    driver.write([f"system x trace={trace}", *MIXED, *HELD, "fault nvmlEvent* * 13"])
    reader = driver.reader(list_interval_seconds=0.0, procfs=tmp_path)
    full = reader.read()
    eventually(lambda: ("nvmlEventSetCreate", -1, 13) in calls_in(trace))
    trace.unlink()
    assert reader.read_memory() == full
    assert [(call, gpu) for call, gpu, _ in calls_in(trace)] == [
        ("nvmlDeviceGetCount_v2", -1),
        ("nvmlDeviceGetMemoryInfo_v2", 0),
        ("nvmlDeviceGetMemoryInfo_v2", 1),  # its instance's
    ]


def test_holders_are_given_again_only_with_the_memory_and_the_processes_that_they_had(
    driver: Driver, tmp_path: Path
) -> None:
    driver.write([*MIXED, *HELD])
    reader = driver.reader(procfs=tmp_path)
    reader.read()
    driver.write([*MIXED, "proc 0 77 mem=2G", HELD[1]])
    plain, parent, instance = reader.read_memory().gpus
    assert memory_of(plain).used_bytes == 2 * GIB
    assert is_changing(plain)
    assert isinstance(parent.holders, NotApplicable)
    assert list(holders_of(instance)) == [79]
    (tmp_path / "79").mkdir()
    (tmp_path / "79" / "stat").write_text(f"79 (vllm) S{' 0' * 18} 500 0 0\n")  # the pid is somebody's now
    assert is_changing(reader.read_memory().gpus[2])
    reader.clock.advance(1)
    assert holders_of(reader.read().gpus[0])[77].used_bytes == 2 * GIB


def test_the_first_read_of_all_may_be_of_memory_alone(driver: Driver, trace: Path, tmp_path: Path) -> None:
    driver.write([f"system x trace={trace}", *MIXED, *HELD])
    reader = driver.reader(list_interval_seconds=100.0, procfs=tmp_path)
    for _ in range(2):
        plain, parent, instance = reader.read_memory().gpus
        assert (memory_of(plain).used_bytes, memory_of(instance).used_bytes) == (GIB, 3 * GIB)
        assert (is_changing(plain), is_changing(instance)) == (True, True)
        assert isinstance(parent.holders, NotApplicable)
        assert (plain.up, plain.name, plain.utilization_ratio) == (True, "NVIDIA Fake GPU", None)
    assert lists_in(trace) == 0
    assert reader.source.lists_due_in_seconds() == 0.0
    plain, _, instance = reader.read().gpus
    assert (list(holders_of(plain)), list(holders_of(instance))) == ([77], [79])
    assert plain.utilization_ratio == 0.5


def test_a_gpu_that_comes_or_goes_costs_no_list_and_the_next_full_read_is_whole(
    driver: Driver, trace: Path, tmp_path: Path
) -> None:
    driver.write([f"system x trace={trace}", *FOUR[:3], "proc 0 77 mem=1G"])
    reader = driver.reader(list_interval_seconds=100.0, procfs=tmp_path)
    reader.read()
    trace.unlink()
    driver.write([f"system x trace={trace}", *FOUR, "proc 0 77 mem=1G"])
    gpus = reader.read_memory().gpus
    assert [gpu.uuid for gpu in gpus] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert memory_of(gpus[0]).used_bytes == GIB
    assert lists_in(trace) == 0
    gpus = reader.read().gpus  # its lists are not due, but it has none to give again
    assert [list(holders_of(gpu)) for gpu in gpus] == [[77], [], [], []]
    assert [gpu.temperature_celsius for gpu in gpus] == [40.0] * 4
    driver.write([f"system x trace={trace}", *FOUR[:3], "proc 0 77 mem=1G"])
    assert [gpu.fault for gpu in reader.read_memory().gpus] == [None, None, None, Cause.LOST]


@pytest.mark.parametrize(("code", "fault"), [(15, Cause.LOST), (999, None)])
def test_a_gpu_that_fails_costs_no_list_either(code: int, fault: Cause | None, driver: Driver, trace: Path) -> None:
    driver.write([f"system x trace={trace}", *(f"{gpu} mig=-1" for gpu in FOUR)])
    reader = driver.reader(list_interval_seconds=100.0)
    reader.read()
    trace.unlink()
    driver.add(f"fault nvmlDeviceGetMemoryInfo_v2 2 {code}")
    for _ in range(2):
        gpus = reader.read_memory().gpus
        assert [gpu.fault for gpu in gpus] == [None, None, fault, None]
        assert isinstance(gpus[2].memory, Failed)
        assert memory_of(gpus[3]).used_bytes == 0
    assert lists_in(trace) == 0
    driver.remove(f"fault nvmlDeviceGetMemoryInfo_v2 2 {code}")
    assert [(gpu.up, holders_of(gpu), gpu.power_watts) for gpu in reader.read().gpus] == [(True, {}, 90.0)] * 4


def test_a_broken_session_is_begun_anew(driver: Driver) -> None:
    driver.write([*FOUR, "proc 1 77 mem=1G"])
    reader = driver.reader()
    reader.read()
    child = reader.child_pid
    driver.add("system x epoch=1")
    assert [memory_of(gpu).used_bytes for gpu in reader.read_memory().gpus] == [0, GIB, 0, 0]
    assert reader.child_pid == child


def test_it_says_when_a_full_read_takes_the_lists_anew(driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader(list_interval_seconds=100.0)
    assert reader.source.lists_due_in_seconds() == 0.0
    reader.read()
    due = reader.source.lists_due_in_seconds()
    assert 80.0 < due < 100.0
    reader.read_memory()
    reader.read()
    assert 80.0 < reader.source.lists_due_in_seconds() < due
    reader.clock.advance(101.0)
    assert reader.source.lists_due_in_seconds() == 0.0
    driver.add("delay nvmlDeviceGetMemoryInfo_v2 3 hang")
    reader.fail(0.1)  # nothing came of these
    assert reader.source.lists_due_in_seconds() == 0.0


def test_a_memory_read_waits_for_its_turn_no_longer_than_its_deadline(driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader()
    memory: Source[object] = NvmlMemorySource(reader.source)
    reader.read()
    driver.add("delay nvmlDeviceGetMemoryInfo_v2 3 hang")
    with ThreadPoolExecutor(1) as pool:
        hung = pool.submit(reader.fail, 4.0)
        eventually(lambda: "on GPU 3" in memory.doing())
        began = time.monotonic()
        with pytest.raises(SourceError) as caught:
            memory.read(reader.clock() + 0.2)
        assert 0.2 <= time.monotonic() - began < 3, "and not as long as the other"
        assert caught.value.cause is Cause.TIMEOUT
        assert caught.value.detail.startswith("waits for another read: nvmlDeviceGetMemoryInfo_v2 on GPU 3 for ")
        assert caught.value.stuck is not None
        assert caught.value.stuck.subject == "3"
        assert hung.result().cause is Cause.TIMEOUT
    driver.write([*FOUR, "proc 3 77 mem=1G"])
    memory.close()
    assert memory_of(reader.read_memory().gpus[3]).used_bytes == GIB  # after the late answer, which was the other's


def test_a_child_that_hangs_in_a_memory_read_is_replaced_and_its_gpu_left_out(driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader(kill_after_seconds=120.0, hang_backoff=(5.0, 300.0), list_interval_seconds=1000.0)
    reader.read()
    driver.add("delay nvmlDeviceGetMemoryInfo_v2 3 hang")
    with pytest.raises(SourceError):
        reader.read_memory(0.1)
    eventually(lambda: "on GPU 3" in reader.source.doing())
    reader.clock.advance(120)
    assert reader.source.lists_due_in_seconds() > 0.0
    assert "killed" in reader.fail().detail
    assert reader.source.lists_due_in_seconds() == 0.0  # the next child has none to give again
    reader.clock.advance(5)
    assert [gpu.fault for gpu in reader.read_memory().gpus] == [None, None, None, Cause.TIMEOUT]


def test_a_gpu_that_hangs_in_its_lists_is_not_cleared_by_its_memory(driver: Driver) -> None:
    """Else each full read would ask it again, and cost all GPUs' values for as long as a child may hang."""
    driver.write([*FOUR, "delay nvmlDeviceGetComputeRunningProcesses_v3 3 hang"])
    reader = driver.reader(kill_after_seconds=120.0, hang_backoff=(5.0, 300.0), list_interval_seconds=0.0)
    causes = [None, None, None, Cause.TIMEOUT]

    def hang_until_killed() -> None:
        reader.fail(0.0)
        eventually(lambda: "Processes_v3 on GPU 3" in reader.source.doing())
        reader.clock.advance(120)
        assert "killed" in reader.fail().detail
        reader.clock.advance(11)

    hang_until_killed()
    for read in (reader.read_memory, reader.read_memory, reader.read):  # until a full read has left it out once
        assert [gpu.fault for gpu in read().gpus] == causes
    assert reader.read_memory().gpus[3].up
    hang_until_killed()
    for read in (reader.read, reader.read_memory, reader.read):  # and now for longer
        assert [gpu.fault for gpu in read().gpus] == causes


def test_two_threads_read_in_turns(driver: Driver) -> None:
    """Each answer is of its own question, and what the one learns the other keeps."""
    me = os.getpid()
    driver.write([*FOUR, f"proc 0 {me} mem=1G"])
    reader = driver.reader(list_interval_seconds=0.0)
    reader.read()
    stop = threading.Event()

    def read_memory(reader: Reader) -> int:
        reads = 0
        while not stop.is_set():
            gpus = reader.read_memory().gpus
            assert memory_of(gpus[0]).used_bytes in {GIB, 2 * GIB}
            assert is_changing(gpus[0]) or holders_of(gpus[0])[me].used_bytes == memory_of(gpus[0]).used_bytes
            assert [gpu.fault for gpu in gpus[:3]] == [None] * 3
            reads += 1
        return reads

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_memory, reader)
        try:
            for i in range(60):
                used = 1 + i % 2
                listed = FOUR[: 4 - i // 10 % 2]
                driver.write([*listed, f"proc 0 {me} mem={used}G"])
                report = reader.read()
                assert report.listed == len(listed)
                assert holders_of(report.gpus[0])[me].used_bytes == used * GIB
                assert [gpu.fault for gpu in report.gpus] == [None] * 3 + [None if len(listed) == 4 else Cause.LOST]
        finally:
            stop.set()
        assert reading.result() > 10
