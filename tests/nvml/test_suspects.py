"""A GPU that hung a child is left out by who it is: what has its index may be another."""

from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_reader import NewReader, eventually, fake_nvml, new_reader

from llmhost.model.reading import Cause

__all__ = ["fake_nvml", "new_reader"]

FOUR = [f"gpu {i} uuid=GPU-{i}" for i in range(4)]


def test_a_suspect_is_left_out_where_it_is_now(fake_nvml: FakeNvml, new_reader: NewReader) -> None:
    fake_nvml.write(FOUR)
    reader = new_reader(kill_after_seconds=120.0, hang_backoff=(5.0, 300.0))
    reader.read()
    fake_nvml.add("delay nvmlDeviceGetMemoryInfo_v2 2 hang")
    reader.fail(0.1)
    eventually(lambda: "on GPU 2" in reader.source.doing())
    reader.clock.advance(120)
    assert "killed" in reader.fail().detail
    # GPU-1 falls off the bus, so that the next session numbers anew
    hang = "delay nvmlDeviceGetMemoryInfo_v2 1 hang"
    fake_nvml.write(["gpu 0 uuid=GPU-0", "gpu 1 uuid=GPU-2", "gpu 2 uuid=GPU-3", hang])
    reader.clock.advance(5)
    faults = {gpu.uuid: gpu.fault for gpu in reader.read().gpus}
    assert faults == {"GPU-0": None, "GPU-1": Cause.LOST, "GPU-2": Cause.TIMEOUT, "GPU-3": None}
    reader.fail(0.1)  # asked again, and it hangs again: the second time, for the same GPU
    eventually(lambda: "on GPU 1" in reader.source.doing())
    reader.clock.advance(120)
    reader.fail()
    # And now it is back: the number is another, and so is its index.
    fake_nvml.write([*FOUR, "delay nvmlDeviceGetMemoryInfo_v2 2 hang"])
    for _ in range(3):
        reader.clock.advance(10)
        faults = {gpu.uuid: gpu.fault for gpu in reader.read().gpus}
        assert faults == {"GPU-0": None, "GPU-1": None, "GPU-2": Cause.TIMEOUT, "GPU-3": None}


def test_a_gpu_that_hangs_before_it_tells_who_it_is_is_left_out_by_its_index(
    fake_nvml: FakeNvml, new_reader: NewReader
) -> None:
    fake_nvml.write([*FOUR, "delay nvmlDeviceGetHandleByIndex_v2 2 hang"])
    reader = new_reader(kill_after_seconds=120.0, hang_backoff=(5.0, 300.0))
    reader.fail(0.0)
    eventually(lambda: "on GPU 2" in reader.source.doing())
    reader.clock.advance(120)
    reader.fail()
    reader.clock.advance(5)
    assert [gpu.fault for gpu in reader.read().gpus] == [None, None, Cause.TIMEOUT, None]
