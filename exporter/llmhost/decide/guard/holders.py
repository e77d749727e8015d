"""Who has the memory that a start waits for, and since when. Pure."""

from collections.abc import Mapping

from llmhost.decide.holder_summary import SeenGpu, SeenHolder
from llmhost.derive.attribution import GpuAttribution, Holder
from llmhost.model.ids import GpuUuid
from llmhost.model.reading import Ok, Reading
from llmhost.model.snapshot import Snapshot


def seen_holders(
    attribution: Reading[Mapping[GpuUuid, Reading[GpuAttribution]]], snapshot: Snapshot
) -> Mapping[GpuUuid, SeenGpu]:
    """Give the holders of each GPU of which they are known."""
    if not isinstance(attribution, Ok):
        return {}
    return {
        uuid: SeenGpu(
            holders=tuple(sorted((_seen(holder, snapshot) for holder in told.value.holders), key=_size)),
            nobodys_bytes=(
                told.value.unattributed_bytes.value if isinstance(told.value.unattributed_bytes, Ok) else None
            ),
        )
        for uuid, told in attribution.value.items()
        if isinstance(told, Ok)
    }


def _size(holder: SeenHolder) -> int:
    return -(holder.used_bytes or 0)


def _seen(holder: Holder, snapshot: Snapshot) -> SeenHolder:
    since = None
    if holder.process is not None and isinstance(snapshot.host, Ok):
        host = snapshot.host.value
        now_since_boot = snapshot.at_monotonic + host.boottime_ahead_seconds
        since = snapshot.at - (now_since_boot - holder.process.start_ticks / host.ticks_per_second)
    return SeenHolder(
        pid=holder.pid,
        command=holder.command,
        kind=holder.kind,
        unit=holder.unit,
        used_bytes=holder.used_bytes,
        since_at=since,
    )
