import os

from llmhost.model.gpu import Xid
from llmhost.model.ids import GpuUuid
from llmhost.sources.nvml import xid_counters
from llmhost.sources.nvml.xid_counters import XidCount, XidCounterReader, XidCounterWriter, XidKey, XidTotals

LONG = "MIG-GPU-fa4e0000-0000-4000-8000-000000000000/13/0"


def pair() -> tuple[XidCounterWriter, XidCounterReader]:
    fd = xid_counters.create()
    writer, reader = XidCounterWriter(fd), XidCounterReader(fd)
    os.close(fd)
    return writer, reader


def test_events_are_counted_by_gpu_and_number_with_the_time_of_the_last() -> None:
    writer, reader = pair()
    assert reader.read() == {}
    writer.add(XidKey("GPU-1", 79), 100.5)
    writer.add(XidKey(LONG, 79), 101.0)
    writer.add(XidKey("GPU-1", 31), 102.0)
    writer.add(XidKey("GPU-1", 79), 103.0)
    assert reader.read() == {
        XidKey("GPU-1", 79): XidCount(2, 103.0),
        XidKey(LONG, 79): XidCount(1, 101.0),
        XidKey("GPU-1", 31): XidCount(1, 102.0),
    }
    reader.close()


def test_full_counters_go_on_counting_what_they_have() -> None:
    writer, reader = pair()
    for number in range(600):
        writer.add(XidKey("GPU-1", number), 1.0)
    writer.add(XidKey("GPU-1", 0), 2.0)
    counters = reader.read()
    assert (len(counters), counters[XidKey("GPU-1", 0)]) == (512, XidCount(2, 2.0))
    reader.close()


def test_children_are_added_up() -> None:
    xids = XidTotals()
    xids.update({XidKey("GPU-1", 79): XidCount(1, 10.0)})
    xids.update({XidKey("GPU-1", 79): XidCount(2, 20.0), XidKey("GPU-2", 31): XidCount(1, 21.0)})
    xids.child_ended()
    xids.child_ended()  # one that saw nothing
    assert xids.by_gpu() == {
        "GPU-1": (Xid(number=79, count=2, last_at=20.0),),
        "GPU-2": (Xid(number=31, count=1, last_at=21.0),),
    }
    xids.update({XidKey("GPU-1", 79): XidCount(3, 30.0), XidKey("GPU-1", 31): XidCount(1, 29.0)})
    assert xids.by_gpu()[GpuUuid("GPU-1")] == (
        Xid(number=31, count=1, last_at=29.0),
        Xid(number=79, count=5, last_at=30.0),
    )
