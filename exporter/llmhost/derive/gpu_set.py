"""The GPU set of a unit: the GPUs that it uses."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from llmhost.config.schema import UnitGpus
from llmhost.derive.runs import Run
from llmhost.model.gpu import Gpu
from llmhost.model.ids import GpuUuid
from llmhost.model.reading import Cause, Failed, Ok, Reading
from llmhost.model.unit import Unit

GpuSet = tuple[GpuUuid, ...]

_READ_ENGINES = frozenset({"vllm", "sglang"})  # their arguments give the number of GPUs (model/engine_arguments)


def gpu_set(
    unit: Unit,
    gpus: Sequence[Gpu],
    run: Run,
    configured: Sequence[UnitGpus],
    learnt: GpuSet | None,
) -> Reading[GpuSet]:
    """Find the unit's GPU set, by the first of these that decides it.

    The config; CUDA_VISIBLE_DEVICES; the set learnt from its last ready activation; the first tensor × pipeline × data
    parallel GPUs by its engine's arguments; all GPUs. Where GPUs may be chosen in a way that we cannot read, the set is
    known only of a unit that uses all of them. A learnt set is out of date where the arguments alone choose, and they
    say another number of GPUs or it has a GPU that is not listed: CUDA counts those that are there.
    """
    for row in configured:
        if fnmatchcase(unit.id.name, row.pattern):
            return _resolve(row.gpus, gpus, "the configured GPU set")
    environment = dict(unit.settings.environment) if unit.settings is not None else {}
    if isinstance(run.visible, Ok) and run.visible.value is not None:
        return _visible(run.visible.value, environment, gpus)
    whole = [gpu for gpu in gpus if gpu.parent_uuid is None]
    size = _size(run, len(whole))
    by_arguments = isinstance(run.visible, Ok) and run.arguments is not None and isinstance(size, Ok)
    if learnt is not None and not (
        by_arguments and (size != Ok(len(learnt)) or set(learnt) - {gpu.uuid for gpu in gpus})
    ):
        return Ok(learnt)
    if not isinstance(size, Ok):
        return size
    if size.value < len(whole) and not _counts_as_the_driver(whole, environment):
        return Failed(Cause.UNKNOWN, "which GPUs come first is not known, as they differ")
    if isinstance(run.visible, Ok) or (run.arguments is not None and size.value == len(whole)):
        return Ok(tuple(gpu.uuid for gpu in whole[: size.value]))
    return run.visible


def _size(run: Run, listed: int) -> Reading[int]:
    """Give the number of GPUs that the engine uses."""
    arguments = run.arguments
    if arguments is None:
        return Ok(listed)
    if run.engine not in _READ_ENGINES:  # llama.cpp takes all that it sees, Ollama as many as a model takes
        return Ok(listed) if listed <= 1 else Failed(Cause.UNKNOWN, "nobody knows how many GPUs the engine uses")
    if arguments.has_config_file:
        return Failed(Cause.UNKNOWN, "a config file of the engine may say how many GPUs it uses")
    tensor, pipeline, data = arguments.tensor_parallel, arguments.pipeline_parallel, arguments.data_parallel
    if tensor is None or pipeline is None or data is None:
        return Failed(Cause.UNKNOWN, "the engine's arguments do not say how many GPUs it uses here")
    size = tensor * pipeline * data
    if size > listed:
        return Failed(Cause.LOST, f"the engine's arguments ask for {size} GPUs, the driver lists {listed}")
    return Ok(size)


def _visible(visible: str, environment: Mapping[str, str], gpus: Sequence[Gpu]) -> Reading[GpuSet]:
    """Read CUDA_VISIBLE_DEVICES (CUDA C++ programming guide, environment variables).

    Plain numbers count in CUDA's order, which is the driver's only with CUDA_DEVICE_ORDER=PCI_BUS_ID or where all
    GPUs are alike. The first entry that is no GPU ends the list.
    """
    entries = [entry.strip() for entry in visible.split(",")]
    plain = any(entry.isdigit() for entry in entries)
    if plain and not _counts_as_the_driver(gpus, environment):
        return Failed(Cause.UNKNOWN, "CUDA_VISIBLE_DEVICES has plain numbers, and the GPUs differ")
    named: list[str] = []
    for entry in entries:
        if not entry.isdigit() and not entry.startswith(("GPU-", "MIG-")):
            break
        named.append(entry)
    return _resolve(tuple(named), gpus, "CUDA_VISIBLE_DEVICES")


def _counts_as_the_driver(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> bool:
    """Say whether CUDA's order is the driver's: by default it begins with the fastest GPU."""
    return len({gpu.name for gpu in gpus}) <= 1 or environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"


def _resolve(names: tuple[str, ...], gpus: Sequence[Gpu], where: str) -> Reading[GpuSet]:
    found: list[GpuUuid] = []
    for name in names:
        matches = [gpu for gpu in gpus if _is_named(gpu, name)]
        if len(matches) > 1:  # the driver gives the index of a GPU that it lost to the next
            matches = [gpu for gpu in matches if gpu.fault is not Cause.LOST]
        if not matches:
            return Failed(Cause.LOST, f"{where} names {name}, which the driver does not list")
        if len(matches) > 1:
            return Failed(Cause.UNKNOWN, f"{where} names {name}, which is more than one GPU")
        found.append(matches[0].uuid)
    return Ok(tuple(found))


def _is_named(gpu: Gpu, name: str) -> bool:
    """Match an index, a UUID (CUDA takes any unambiguous beginning of it) or a PCI bus id (with or without domain)."""
    if name.startswith(("GPU-", "MIG-")):
        return gpu.uuid.startswith(name)
    bus = gpu.pci_bus_id.lower()
    return gpu.index == name or (":" in name and gpu.parent_uuid is None and bool(bus) and bus.endswith(name.lower()))
