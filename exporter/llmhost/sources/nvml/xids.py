"""XID events by GPU, added up over the children that saw them."""

from collections.abc import Mapping

from llmhost.model.gpu import Xid
from llmhost.model.ids import GpuUuid
from llmhost.sources.nvml.xid_counters import Seen, XidKey


class XidCounts:
    """Since the exporter started. A GPU keeps its counts while it is lost, and when it comes back."""

    def __init__(self) -> None:
        self._by_ended: dict[XidKey, Seen] = {}
        self._by_running: Mapping[XidKey, Seen] = {}

    def told(self, seen: Mapping[XidKey, Seen]) -> None:
        """Take what the child that runs now has seen since it started."""
        self._by_running = seen

    def child_ended(self) -> None:
        """Keep what it told; the next one counts from 0."""
        self._by_ended = self._total()
        self._by_running = {}

    def by_gpu(self) -> Mapping[GpuUuid, tuple[Xid, ...]]:
        """Return those GPUs of which any were seen, each with its XIDs by number."""
        found: dict[GpuUuid, list[Xid]] = {}
        for key, seen in sorted(self._total().items(), key=lambda item: item[0].number):
            xid = Xid(number=key.number, count=seen.count, last_at=seen.last_at)
            found.setdefault(GpuUuid(key.gpu_uuid), []).append(xid)
        return {uuid: tuple(xids) for uuid, xids in found.items()}

    def _total(self) -> dict[XidKey, Seen]:
        total = dict(self._by_ended)
        for key, seen in self._by_running.items():
            before = total.get(key)
            total[key] = seen if before is None else Seen(before.count + seen.count, seen.last_at)
        return total
