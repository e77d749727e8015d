"""Against a real driver; run with `-m gpu`."""

import time
from pathlib import Path

import pytest

from llmhost.model.reading import Cause, NotApplicable, Ok
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


@pytest.mark.gpu
def test_a_real_drivers_memory_is_read_alone_while_its_events_are_waited_for() -> None:
    source = NvmlSource(procfs=Path("/proc"))
    try:
        full = source.read(time.monotonic() + 60)
        assert 0.0 < source.lists_due_in_seconds() <= 1.0
        seconds = []
        for _ in range(50):
            began = time.monotonic()
            alone = source.read_memory(began + 10)
            seconds.append(time.monotonic() - began)
            assert [gpu.uuid for gpu in alone.gpus] == [gpu.uuid for gpu in full.gpus]
            for gpu in alone.gpus:
                assert gpu.up, gpu.fault_detail
                assert isinstance(gpu.memory, Ok | NotApplicable)
                assert isinstance(gpu.holders, Ok | NotApplicable) or gpu.holders.cause is Cause.CHANGING
                assert all(xid.number > 0 and xid.count > 0 for xid in gpu.xids)
        assert sorted(seconds)[25] < 0.05
        assert source._state.child is not None
        threads = [thread / "schedstat" for thread in Path(f"/proc/{source._state.child.pid}/task").iterdir()]
        assert len(threads) >= 3  # the one that answers, the one that waits for our end, the one that waits for events
        time.sleep(4)  # until the waits are at their longest
        before = sum(int(thread.read_text().split()[0]) for thread in threads)
        time.sleep(2)
        assert sum(int(thread.read_text().split()[0]) for thread in threads) - before < 0.02e9
    finally:
        source.close()
