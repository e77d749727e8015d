import pytest

from llmhost.sources.nvml.suspects import GpuIndexes, SuspectGpu, Suspects

ONE, THREE = SuspectGpu("GPU-1"), SuspectGpu(None, 3)


@pytest.mark.parametrize("gpu", [ONE, THREE])
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
    suspects.accuse(THREE, now=1000.0)
    suspects.answered([THREE])
    suspects.accuse(THREE, now=2000.0)
    suspects.answered([THREE])
    assert suspects.to_skip(2299.0) == [THREE]
    assert suspects.to_skip(2300.0) == []
    suspects.accuse(THREE, now=3000.0)
    suspects.answered([THREE])
    assert suspects.to_skip(3599.0) == [THREE]
    assert suspects.to_skip(3600.0) == []


def test_suspects_are_apart() -> None:
    suspects = Suspects(skip_seconds=300.0)
    suspects.accuse(THREE, now=1000.0)
    suspects.accuse(ONE, now=1000.0)
    assert suspects.to_skip(1000.0) == [THREE, ONE]
    suspects.answered([ONE, THREE])
    suspects.accuse(ONE, now=1001.0)
    assert suspects.to_skip(1001.0) == [ONE]


def test_a_gpu_is_where_it_was_last_seen() -> None:
    where = GpuIndexes()
    assert (where.listed, where.uuid_of(0)) == (0, None)
    assert where.to_wire(ONE) == {"uuid": "GPU-1", "index": None}
    where.answered(3, {0: "GPU-0", 1: "GPU-1", 2: "GPU-2"})
    where.answered(3, {0: "GPU-0", 2: "GPU-2"})  # 1 was not touched
    assert where.to_wire(ONE) == {"uuid": "GPU-1", "index": 1}
    assert where.to_wire(THREE) == {"uuid": None, "index": 3}
    where.answered(3, {0: "GPU-1", 2: "GPU-2"})  # and now another one was not
    assert (where.uuid_of(0), where.uuid_of(1)) == ("GPU-1", None)
    where.answered(2, {1: "GPU-2"})
    assert (where.listed, where.uuid_of(0), where.uuid_of(1)) == (2, None, "GPU-2")
