"""What a start of a unit would miss, GPU by GPU: the reasons of `startable`."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmhost.derive.gpu_set import GpuSet
from llmhost.derive.need import Need, free_bytes
from llmhost.model.gpu import Gpu
from llmhost.model.host import Host
from llmhost.model.ids import GpuUuid
from llmhost.model.reading import Ok, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """`why` is "" where only memory is missing; sizes are None where they are not known."""

    uuid: GpuUuid
    gpu: str  # NVML's index
    needed_bytes: int | None
    free_bytes: int | None
    why: str = ""


def shortages(
    uuids: Reading[GpuSet], need: Reading[Need], gpus: Sequence[Gpu], host: Reading[Host]
) -> tuple[Shortage, ...]:
    """Give each GPU of the set on which a start now would fail, as far as that is known."""
    wanted = need.value if isinstance(need, Ok) else {}
    in_set = uuids.value if isinstance(uuids, Ok) else tuple(wanted)
    found = []
    for gpu in gpus:
        if gpu.uuid not in in_set:
            continue
        needed = wanted.get(gpu.uuid)
        free = free_bytes(gpu, host)
        known = free.value if isinstance(free, Ok) else None
        why = ""
        if gpu.fault is not None:
            why = gpu.fault.words
        elif gpu.fabric_ready is False:
            why = "its NVLink fabric is not ready"
        if why or (needed is not None and known is not None and known < needed):
            found.append(Shortage(uuid=gpu.uuid, gpu=gpu.index, needed_bytes=needed, free_bytes=known, why=why))
    return tuple(found)
