"""Shortages of a start, GPU by GPU."""

from dataclasses import replace

from tests.fakes.values import GIB, HOST, gpu, memory

from llmhost.derive.gpu_set import GpuSet
from llmhost.derive.requirements import Need
from llmhost.derive.startable import Shortage, shortages
from llmhost.model.ids import GpuUuid
from llmhost.model.reading import Cause, Failed, Ok, Reading

GPU0, GPU1, GPU2 = GpuUuid("GPU-0"), GpuUuid("GPU-1"), GpuUuid("GPU-2")
NEED: Reading[Need] = Ok({GPU0: 60 * GIB, GPU1: 60 * GIB})
SET: Reading[GpuSet] = Ok((GPU0, GPU1))


def test_only_the_gpus_that_lack_memory_are_named() -> None:
    gpus = [gpu(0, memory=memory(19 * GIB)), gpu(1, memory=memory(20 * GIB)), gpu(2, memory=memory(79 * GIB))]
    assert shortages(SET, NEED, gpus, Ok(HOST)) == (  # 79 GiB usable; GPU 0 has just enough, GPU 2 is not of the set
        Shortage(uuid=GPU1, gpu="1", needed_bytes=60 * GIB, free_bytes=59 * GIB),
    )


def test_a_lost_gpu_and_a_fabric_that_is_not_ready_are_reported() -> None:
    gpus = [gpu(0, fault=Cause.RESET_REQUIRED, memory=Failed(Cause.RESET_REQUIRED)), gpu(1, fabric_ready=False)]
    assert [(shortage.gpu, shortage.free_bytes, shortage.why) for shortage in shortages(SET, NEED, gpus, Ok(HOST))] == [
        ("0", None, "reset required"),
        ("1", 79 * GIB, "its NVLink fabric is not ready"),
    ]


def test_a_fault_is_reported_also_where_the_need_is_not_known() -> None:
    unknown = Failed(Cause.UNKNOWN)
    gpus = [gpu(0, fault=Cause.LOST, memory=Failed(Cause.LOST)), gpu(1, memory=memory(79 * GIB))]
    assert [shortage.gpu for shortage in shortages(SET, unknown, gpus, Ok(HOST))] == ["0"]
    assert shortages(unknown, unknown, gpus, Ok(HOST)) == ()


def test_unified_memory_is_that_of_the_host() -> None:
    unified = gpu(0, unified_memory=True, memory=Failed(Cause.NOT_SUPPORTED))
    host = Ok(replace(HOST, memory_available_bytes=59 * GIB))
    (shortage,) = shortages(SET, NEED, [unified], host)
    assert shortage.free_bytes == 59 * GIB
