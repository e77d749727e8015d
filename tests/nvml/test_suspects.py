"""A GPU that hung a child is skipped by its UUID: another may have its index."""

import pytest
from tests.fakes.nvml_reader import Driver, eventually

from llmhost.model.reading import Cause
from llmhost.sources.nvml.suspects import GpuIndexes, SuspectGpu, Suspects

FOUR = [f"gpu {i} uuid=GPU-{i}" for i in range(4)]
FIRST, FOURTH = SuspectGpu("GPU-1"), SuspectGpu(None, 3)


def test_a_suspect_is_left_out_where_it_is_now(driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader(kill_after_seconds=120.0, hang_backoff=(5.0, 300.0))
    reader.read()
    driver.add("delay nvmlDeviceGetMemoryInfo_v2 2 hang")
    reader.fail(0.1)
    eventually(lambda: "on GPU 2" in reader.source.doing())
    reader.clock.advance(120)
    assert "killed" in reader.fail().detail
    # GPU-1 falls off the bus, so that the next session numbers anew
    hang = "delay nvmlDeviceGetMemoryInfo_v2 1 hang"
    driver.write(["gpu 0 uuid=GPU-0", "gpu 1 uuid=GPU-2", "gpu 2 uuid=GPU-3", hang])
    reader.clock.advance(5)
    faults = {gpu.uuid: gpu.fault for gpu in reader.read().gpus}
    assert faults == {"GPU-0": None, "GPU-1": Cause.LOST, "GPU-2": Cause.TIMEOUT, "GPU-3": None}
    reader.fail(0.1)  # asked again, and it hangs again: the second time, for the same GPU
    eventually(lambda: "on GPU 1" in reader.source.doing())
    reader.clock.advance(120)
    reader.fail()
    # And now it is back: the number is another, and so is its index.
    driver.write([*FOUR, "delay nvmlDeviceGetMemoryInfo_v2 2 hang"])
    for _ in range(3):
        reader.clock.advance(10)
        faults = {gpu.uuid: gpu.fault for gpu in reader.read().gpus}
        assert faults == {"GPU-0": None, "GPU-1": None, "GPU-2": Cause.TIMEOUT, "GPU-3": None}


def test_a_gpu_that_hangs_before_it_gives_its_uuid_is_skipped_by_its_index(driver: Driver) -> None:
    driver.write([*FOUR, "delay nvmlDeviceGetHandleByIndex_v2 2 hang"])
    reader = driver.reader(kill_after_seconds=120.0, hang_backoff=(5.0, 300.0))
    reader.fail(0.0)
    eventually(lambda: "on GPU 2" in reader.source.doing())
    reader.clock.advance(120)
    reader.fail()
    reader.clock.advance(5)
    assert [gpu.fault for gpu in reader.read().gpus] == [None, None, Cause.TIMEOUT, None]


@pytest.mark.parametrize("gpu", [FIRST, FOURTH])
def test_a_suspect_is_left_out_once_and_cleared_by_an_answer(gpu: SuspectGpu) -> None:
    suspects = Suspects(skip_seconds=300.0)
    suspects.accuse(gpu, now=1000.0)
    assert suspects.to_skip(1000.0) == [gpu]
    suspects.answered([gpu])
    assert suspects.to_skip(1000.0) == []
    suspects.answered([])
    suspects.accuse(gpu, now=2000.0)  # the first time again
    suspects.answered([gpu])
    assert suspects.to_skip(2000.0) == []


def test_a_suspect_that_does_it_again_is_left_out_for_longer_each_time() -> None:
    suspects = Suspects(skip_seconds=300.0)
    suspects.accuse(FOURTH, now=1000.0)
    suspects.answered([FOURTH])
    suspects.accuse(FOURTH, now=2000.0)
    suspects.answered([FOURTH])
    assert suspects.to_skip(2299.0) == [FOURTH]
    assert suspects.to_skip(2300.0) == []
    suspects.accuse(FOURTH, now=3000.0)
    suspects.answered([FOURTH])
    assert suspects.to_skip(3599.0) == [FOURTH]
    assert suspects.to_skip(3600.0) == []


def test_suspects_are_apart() -> None:
    suspects = Suspects(skip_seconds=300.0)
    suspects.accuse(FOURTH, now=1000.0)
    suspects.accuse(FIRST, now=1000.0)
    assert suspects.to_skip(1000.0) == [FOURTH, FIRST]
    suspects.answered([FIRST, FOURTH])
    suspects.accuse(FIRST, now=1001.0)
    assert suspects.to_skip(1001.0) == [FIRST]


def test_a_gpu_is_where_it_was_last_seen() -> None:
    where = GpuIndexes()
    assert (where.listed, where.uuid_of(0)) == (0, None)
    assert where.to_wire(FIRST) == {"uuid": "GPU-1", "index": None}
    where.answered(3, {0: "GPU-0", 1: "GPU-1", 2: "GPU-2"})
    where.answered(3, {0: "GPU-0", 2: "GPU-2"})  # 1 was not touched
    assert where.to_wire(FIRST) == {"uuid": "GPU-1", "index": 1}
    assert where.to_wire(FOURTH) == {"uuid": None, "index": 3}
    where.answered(3, {0: "GPU-1", 2: "GPU-2"})  # and now another one was not
    assert (where.uuid_of(0), where.uuid_of(1)) == ("GPU-1", None)
    where.answered(2, {1: "GPU-2"})
    assert (where.listed, where.uuid_of(0), where.uuid_of(1)) == (2, None, "GPU-2")
