"""Requirements of a unit's next start: its GPUs, and the memory that must be free on each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmhost.config.schema import Config, Policy
from llmhost.derive.gpu_set import GpuSet, gpu_set
from llmhost.derive.runs import Run, runs_of
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
    runs: tuple[Run, ...]  # the servers of the unit, one at least
    ratios: tuple[Reading[float], ...]  # the share of a GPU that each of them asks for
    gpus: Reading[GpuSet]
    needed: Reading[Need]

    @property
    def ratio_of_all(self) -> Reading[float]:
        """Give the share of a GPU that all servers need, if they all use it."""
        total = 0.0
        for ratio in self.ratios:
            if not isinstance(ratio, Ok):
                return ratio
            total += ratio.value
        return Ok(min(total, 1.0))

    @property
    def engine(self) -> str:
        return next((run.engine for run in self.runs if run.engine), "")


def requirements_of(
    unit: Unit, members: tuple[Process, ...], snapshot: Snapshot, config: Config, history: History
) -> Requirements:
    """Work them out from the processes in the unit's cgroup, where there are any, and from its settings.

    A unit with several servers uses the GPUs of them all, and needs what they need together. What its settings do not
    say of a server is what that was started with last.
    """
    runs = runs_of(unit, members, snapshot.processes, snapshot.host, history.last_servers_of(unit.id))
    listed, learnt = snapshot.gpus, history.learnt_gpus(unit.id)
    sets: list[Reading[GpuSet]] = [
        gpu_set(unit, listed, run, config.units.gpus, learnt if len(runs) == 1 else None)
        if isinstance(snapshot.nvml, Ok)
        else snapshot.nvml
        for run in runs
    ]
    ratios = known_ratios(runs, config.policy)
    needs = [needed(ratio, uuids, listed, snapshot.host) for ratio, uuids in zip(ratios, sets, strict=True)]
    gpus = _union(sets)
    if learnt is not None and len(runs) > 1 and isinstance(snapshot.nvml, Ok) and not isinstance(gpus, Ok):
        gpus = Ok(learnt)
    return Requirements(runs=runs, ratios=ratios, gpus=gpus, needed=_sum(needs))


def _union(sets: Sequence[Reading[GpuSet]]) -> Reading[GpuSet]:
    uuids: dict[GpuUuid, None] = {}
    for each in sets:
        if not isinstance(each, Ok):
            return each
        uuids |= dict.fromkeys(each.value)
    return Ok(tuple(uuids))


def _sum(needs: Sequence[Reading[Need]]) -> Reading[Need]:
    total: dict[GpuUuid, int] = {}
    for each in needs:
        if not isinstance(each, Ok):
            return each
        for uuid, needed_bytes in each.value.items():
            total[uuid] = total.get(uuid, 0) + needed_bytes
    return Ok(total)


def known_ratios(runs: Sequence[Run], policy: Policy) -> tuple[Reading[float], ...]:
    """Find the share of a GPU that each server asks for, by its arguments alone."""
    return tuple(needed_ratio(run.engine, run.arguments, policy) for run in runs)


def needed_ratio(engine: str, arguments: EngineArguments | None, policy: Policy) -> Reading[float]:
    """Find the share of each GPU that must be free, as the engine's own start check does.

    vLLM: --gpu-memory-utilization of its arguments, else its default, unless a config file may say otherwise. SGLang
    checks none: its --mem-fraction-static is of what is free when it starts (model_runner.py: pre_model_load_memory).
    Other engines take what they need.
    """
    if arguments is None:
        return NotApplicable("no engine is known to run here")
    if engine != "vllm":
        return NotApplicable(
            "the engine takes a share of what is free"
            if arguments.utilization_given
            else "the engine's arguments do not say"
        )
    if arguments.utilization is not None:
        return Ok(arguments.utilization)
    if arguments.utilization_given:
        return Failed(Cause.UNKNOWN, "the engine's arguments say how much memory it takes by a variable")
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
