"""What a start of a unit will ask to be free on its GPUs, and whether it would find it."""

from collections.abc import Mapping, Sequence

from llmhost.config.schema import Policy
from llmhost.derive.activation import is_up
from llmhost.derive.gpu_set import GpuSet
from llmhost.model.engine_arguments import EngineArguments
from llmhost.model.gpu import Gpu
from llmhost.model.host import Host
from llmhost.model.ids import GpuUuid
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading, both
from llmhost.model.unit import Unit

Need = Mapping[GpuUuid, int]

# No program can start on a GPU in one of these conditions, whatever it needs.
_NO_START = frozenset({Cause.LOST, Cause.RESET_REQUIRED})


def needed_ratio(engine: str, arguments: EngineArguments | None, policy: Policy) -> Reading[float]:
    """Find which share of each GPU the engine will ask for, as its own start check does.

    vLLM: --gpu-memory-utilization of its arguments, else its default, unless a config file may say otherwise. SGLang:
    --mem-fraction-static of its arguments; its default depends on too much. Other engines take what they need.
    """
    if arguments is None:
        return NotApplicable("no engine is known to run here")
    if arguments.utilization is not None:
        return Ok(arguments.utilization)
    if arguments.utilization_given:
        return Failed(Cause.UNKNOWN, "the engine's arguments say how much memory it takes by a variable")
    if engine != "vllm":
        return NotApplicable("the engine's arguments do not say")
    if arguments.has_config_file:
        return Failed(Cause.UNKNOWN, "a config file of the engine may say how much memory it takes")
    return Ok(policy.utilization_ratio)


def needed(ratio: Reading[float], uuids: Reading[GpuSet], gpus: Sequence[Gpu], host: Reading[Host]) -> Reading[Need]:
    """Work out the bytes on each GPU of the set: ratio × (total − reserved)."""
    known = both(ratio, uuids)
    if not isinstance(known, Ok):
        return known
    share, wanted = known.value
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    need: dict[GpuUuid, int] = {}
    for uuid in wanted:
        usable = _usable(by_uuid.get(uuid), host)
        if not isinstance(usable, Ok):
            return usable
        need[uuid] = int(share * usable.value)
    return Ok(need)


def startable(
    unit: Unit,
    uuids: Reading[GpuSet],
    need: Reading[Need],
    gpus: Sequence[Gpu],
    host: Reading[Host],
    *,
    driver_mismatch: bool,
) -> Reading[bool]:
    """Say whether a start now would find what it needs free, and the fabric ready, on every GPU of the set.

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
    for uuid, wanted in need.value.items():
        gpu = by_uuid[uuid]
        free = free_bytes(gpu, host)
        if not isinstance(free, Ok):
            return free
        if free.value < wanted or gpu.fabric_ready is False:
            return Ok(False)
    return Ok(True)


def _usable(gpu: Gpu | None, host: Reading[Host]) -> Reading[int]:
    if gpu is None:
        return Failed(Cause.LOST, "a GPU of the set is not listed")
    if gpu.unified_memory:
        return host if not isinstance(host, Ok) else Ok(host.value.memory_total_bytes)
    if not isinstance(gpu.memory, Ok):
        return gpu.memory
    memory = gpu.memory.value
    return Ok(memory.total_bytes - (memory.reserved_bytes or 0))


def free_bytes(gpu: Gpu, host: Reading[Host]) -> Reading[int]:
    if gpu.unified_memory:
        return host if not isinstance(host, Ok) else Ok(host.value.memory_available_bytes)
    if not isinstance(gpu.memory, Ok):
        return gpu.memory
    return Ok(gpu.memory.value.free_bytes)
