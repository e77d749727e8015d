"""Requirements of a unit's next start: its GPUs, and the memory that must be free on each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmhost.config.schema import Config, Policy
from llmhost.derive.gpu_set import GpuSet, gpu_set
from llmhost.derive.runs import Run, run_of
from llmhost.model.engine_arguments import EngineArguments
from llmhost.model.gpu import Gpu
from llmhost.model.history.history import History
from llmhost.model.host import Host
from llmhost.model.ids import GpuUuid
from llmhost.model.process import Process
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading, both
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit

Need = Mapping[GpuUuid, int]  # bytes that must be free


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    run: Run
    gpus: Reading[GpuSet]
    needed: Reading[Need]


def requirements_of(
    unit: Unit, members: tuple[Process, ...], snapshot: Snapshot, config: Config, history: History
) -> Requirements:
    """Work them out from the processes in the unit's cgroup, where there are any, and from its settings."""
    run = run_of(unit, members, snapshot.processes, snapshot.host)
    listed = snapshot.gpus
    uuids: Reading[GpuSet] = (
        gpu_set(unit, listed, run, config.units.gpus, history.learnt_gpus(unit.id))
        if isinstance(snapshot.nvml, Ok)
        else snapshot.nvml
    )
    return Requirements(
        run=run,
        gpus=uuids,
        needed=needed(needed_ratio(run.engine, run.arguments, config.policy), uuids, listed, snapshot.host),
    )


def needed_ratio(engine: str, arguments: EngineArguments | None, policy: Policy) -> Reading[float]:
    """Find the share of each GPU that the engine will ask for, as its own start check does.

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
    share, uses = known.value
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    need: dict[GpuUuid, int] = {}
    for uuid in uses:
        usable = _usable(by_uuid.get(uuid), host)
        if not isinstance(usable, Ok):
            return usable
        need[uuid] = int(share * usable.value)
    return Ok(need)


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
