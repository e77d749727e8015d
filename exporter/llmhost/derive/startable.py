"""The chance of a start now: whether every GPU of the unit's set has what it needs, and what is missing where not."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmhost.derive.activation import is_up
from llmhost.derive.gpu_set import GpuSet
from llmhost.derive.requirements import Need, free_bytes
from llmhost.model.gpu import Gpu
from llmhost.model.host import Host
from llmhost.model.ids import GpuUuid
from llmhost.model.reading import Cause, NotApplicable, Ok, Reading
from llmhost.model.unit import Unit

# No program can start on a GPU in one of these conditions, whatever it needs.
_NO_START = frozenset({Cause.LOST, Cause.RESET_REQUIRED})
_NO_FABRIC = "its NVLink fabric is not ready"


def startable(
    unit: Unit,
    uuids: Reading[GpuSet],
    need: Reading[Need],
    gpus: Sequence[Gpu],
    host: Reading[Host],
    *,
    driver_mismatch: bool,
) -> Reading[bool]:
    """Say whether a start now would find the memory it needs, and the fabric ready, on every GPU of the set.

    With a library that does not fit the loaded driver no program starts, whatever is free.
    """
    if is_up(unit):
        return NotApplicable("the unit is up")
    if driver_mismatch:
        return Ok(False)
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    if isinstance(uuids, Ok) and any(by_uuid[uuid].fault in _NO_START for uuid in uuids.value if uuid in by_uuid):
        return Ok(False)
    if not isinstance(need, Ok):
        return need
    if not need.value:
        return NotApplicable("the unit uses no GPU")
    for uuid, needed in need.value.items():
        gpu = by_uuid[uuid]
        free = free_bytes(gpu, host)
        if not isinstance(free, Ok):
            return free
        if free.value < needed or gpu.fabric_ready is False:
            return Ok(False)
    return Ok(True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """`why` is "" where only memory is missing; sizes are None where they are not known."""

    uuid: GpuUuid
    gpu: str  # NVML's index
    needed_bytes: int | None
    free_bytes: int | None
    why: str = ""

    @property
    def passes(self) -> bool:
        """Say whether it may pass by itself, and a guard waits for it: memory and a fabric, but no fault."""
        return self.why in ("", _NO_FABRIC)


def shortages(
    uuids: Reading[GpuSet], need: Reading[Need], gpus: Sequence[Gpu], host: Reading[Host]
) -> tuple[Shortage, ...]:
    """Give each GPU of the set on which a start now would fail, as far as that is known."""
    needed_by_gpu = need.value if isinstance(need, Ok) else {}
    in_set = uuids.value if isinstance(uuids, Ok) else tuple(needed_by_gpu)
    found = []
    for gpu in gpus:
        if gpu.uuid not in in_set:
            continue
        needed = needed_by_gpu.get(gpu.uuid)
        free = free_bytes(gpu, host)
        known = free.value if isinstance(free, Ok) else None
        why = ""
        if gpu.fault is not None:
            why = gpu.fault.words
        elif gpu.fabric_ready is False:
            why = _NO_FABRIC
        if why or (needed is not None and known is not None and known < needed):
            found.append(Shortage(uuid=gpu.uuid, gpu=gpu.index, needed_bytes=needed, free_bytes=known, why=why))
    return tuple(found)
