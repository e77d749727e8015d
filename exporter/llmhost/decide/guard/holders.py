"""The holders of the memory that a start waits for. Pure.

A verdict needs none of this, so the machine imports it only once there is somebody to name.
"""

from collections.abc import Mapping

from llmhost.config.schema import Config
from llmhost.decide.guard.holder_summary import GpuHolders, HolderSummary
from llmhost.derive.attribution import GpuAttribution, Holder
from llmhost.derive.facts import derive
from llmhost.derive.history.observations import with_observation
from llmhost.derive.units_of_interest import units_of_interest as units_of_interest  # noqa: PLC0414 - one lazy import
from llmhost.model.history.history import History
from llmhost.model.ids import GpuUuid
from llmhost.model.reading import Ok
from llmhost.model.snapshot import Snapshot


def attribute(snapshot: Snapshot, config: Config, history: History) -> tuple[History, Mapping[GpuUuid, GpuHolders]]:
    """Give the history with this snapshot, and the holders of each GPU of which they are known."""
    history = with_observation(history, snapshot, config.policy)
    attribution = derive(snapshot, config, history).attribution
    if not isinstance(attribution, Ok):
        return history, {}
    return history, {
        uuid: _of_gpu(gpu.value, snapshot) for uuid, gpu in attribution.value.items() if isinstance(gpu, Ok)
    }


def _of_gpu(gpu: GpuAttribution, snapshot: Snapshot) -> GpuHolders:
    holders = sorted(
        (_summary(holder, snapshot) for holder in gpu.holders), key=lambda holder: -(holder.used_bytes or 0)
    )
    unattributed = gpu.unattributed_bytes
    return GpuHolders(
        holders=tuple(holders), unattributed_bytes=unattributed.value if isinstance(unattributed, Ok) else None
    )


def _summary(holder: Holder, snapshot: Snapshot) -> HolderSummary:
    since = began = None
    if holder.process is not None and isinstance(snapshot.host, Ok):
        host = snapshot.host.value
        began = holder.process.start_ticks / host.ticks_per_second
        since = snapshot.at - (snapshot.at_monotonic + host.boottime_ahead_seconds - began)
    return HolderSummary(
        pid=holder.pid,
        command=holder.command,
        kind=holder.kind,
        unit=holder.unit,
        used_bytes=holder.used_bytes,
        since_at=since,
        began_boottime_seconds=began,
    )
