"""Against a real driver; run with `-m gpu`."""

import time
from pathlib import Path

import pytest

from llmhost.model.reading import Ok
from llmhost.sources.nvml.source import NvmlSource


@pytest.mark.gpu
def test_a_real_driver_answers() -> None:
    source = NvmlSource(procfs=Path("/proc"))
    try:
        first = source.read(time.monotonic() + 60)
        assert first.driver_version
        assert not first.driver_mismatch
        assert first.listed > 0
        for gpu in first.gpus:
            assert gpu.up, gpu.fault_detail
            assert gpu.uuid.startswith(("GPU-", "MIG-"))
            if isinstance(gpu.memory, Ok):
                memory = gpu.memory.value
                said = memory.used_bytes + memory.free_bytes + (memory.reserved_bytes or 0)
                assert abs(said - memory.total_bytes) < 1 << 20
        again = source.read(time.monotonic() + 60)
        assert [gpu.uuid for gpu in again.gpus] == [gpu.uuid for gpu in first.gpus]
    finally:
        source.close()
