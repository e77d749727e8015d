"""Counts of XID events: in memory that the NVML child shares with the exporter, and added up over its children.

Written by the child, read by the exporter. Not in answers: a GPU that reports an error may hang the next call, and a
child that hangs until it is killed answers nothing. The memory outlives the child, whatever it ended of.

One writer, one reader. Nothing moves and nothing is taken back: an entry is complete before it is counted among the
entries, and a count is one aligned store, so the reader needs no lock, and the writer may end at any moment.
"""

import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from llmhost.model.gpu import Xid
from llmhost.model.ids import GpuUuid

_NUMBER = struct.Struct("@Q")
_TIME = struct.Struct("@d")
_UUID_BYTES = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE
_AT_NUMBER = _UUID_BYTES
_AT_COUNT = _AT_NUMBER + _NUMBER.size
_AT_LAST = _AT_COUNT + _NUMBER.size
_ENTRY_BYTES = _AT_LAST + _TIME.size
_MOST_ENTRIES = 512  # 32 GPUs with 16 kinds of errors each
_SIZE = _NUMBER.size + _MOST_ENTRIES * _ENTRY_BYTES


@dataclass(frozen=True, slots=True)
class XidKey:
    gpu_uuid: str
    number: int


@dataclass(frozen=True, slots=True)
class XidCount:
    count: int
    last_at: float  # seconds since the epoch


def create() -> int:
    """Return a memfd to be shared with a child."""
    fd = os.memfd_create("llmhost-nvml-xid-counters", os.MFD_CLOEXEC)
    os.ftruncate(fd, _SIZE)
    return fd


class XidCounterWriter:
    """The child's end. For one thread at a time."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _SIZE)
        self._places: dict[XidKey, int] = {}
        self._counts: dict[XidKey, int] = {}

    def add(self, key: XidKey, at: float) -> None:
        """Count one event. What finds no place any more is dropped."""
        place = self._places.get(key)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if place is not None:
            _TIME.pack_into(self._map, place + _AT_LAST, at)
            _NUMBER.pack_into(self._map, place + _AT_COUNT, count)
            return
        entries = len(self._places)
        if entries == _MOST_ENTRIES:
            return
        place = self._places[key] = _NUMBER.size + entries * _ENTRY_BYTES
        self._map[place : place + _UUID_BYTES] = key.gpu_uuid.encode()[:_UUID_BYTES].ljust(_UUID_BYTES, b"\0")
        _NUMBER.pack_into(self._map, place + _AT_NUMBER, key.number)
        _TIME.pack_into(self._map, place + _AT_LAST, at)
        _NUMBER.pack_into(self._map, place + _AT_COUNT, count)
        _NUMBER.pack_into(self._map, 0, entries + 1)


class XidCounterReader:
    """The exporter's end."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _SIZE, access=mmap.ACCESS_READ)

    def read(self) -> Mapping[XidKey, XidCount]:
        """Return the events since the child started."""
        (entries,) = _NUMBER.unpack_from(self._map, 0)
        return dict(self._entry(_NUMBER.size + i * _ENTRY_BYTES) for i in range(min(entries, _MOST_ENTRIES)))

    def close(self) -> None:
        self._map.close()

    def _entry(self, place: int) -> tuple[XidKey, XidCount]:
        uuid = self._map[place : place + _UUID_BYTES].rstrip(b"\0").decode(errors="replace")
        (number,) = _NUMBER.unpack_from(self._map, place + _AT_NUMBER)
        (count,) = _NUMBER.unpack_from(self._map, place + _AT_COUNT)
        (last_at,) = _TIME.unpack_from(self._map, place + _AT_LAST)
        return XidKey(uuid, number), XidCount(count, last_at)


class XidTotals:
    """XID events by GPU since the exporter started, added up over its children.

    A GPU keeps its counts while it is lost, and when it comes back.
    """

    def __init__(self) -> None:
        self._by_ended: dict[XidKey, XidCount] = {}
        self._by_running: Mapping[XidKey, XidCount] = {}

    def update(self, counts: Mapping[XidKey, XidCount]) -> None:
        """Take the counts of the child that runs now."""
        self._by_running = counts

    def child_ended(self) -> None:
        """Keep its counts; the next child counts from 0."""
        self._by_ended = self._total()
        self._by_running = {}

    def by_gpu(self) -> Mapping[GpuUuid, tuple[Xid, ...]]:
        """Return the GPUs with any, each with its XIDs by number."""
        found: dict[GpuUuid, list[Xid]] = {}
        for key, count in sorted(self._total().items(), key=lambda item: item[0].number):
            xid = Xid(number=key.number, count=count.count, last_at=count.last_at)
            found.setdefault(GpuUuid(key.gpu_uuid), []).append(xid)
        return {uuid: tuple(xids) for uuid, xids in found.items()}

    def _total(self) -> dict[XidKey, XidCount]:
        total = dict(self._by_ended)
        for key, count in self._by_running.items():
            before = total.get(key)
            total[key] = count if before is None else XidCount(before.count + count.count, count.last_at)
        return total
