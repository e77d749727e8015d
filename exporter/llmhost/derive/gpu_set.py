"""The GPU set of a unit: the GPUs that it uses."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from llmhost.config.schema import UnitGpus
from llmhost.derive.runs import Run
from llmhost.model.command.words import is_known
from llmhost.model.engine_arguments import EngineArguments
from llmhost.model.gpu import Gpu
from llmhost.model.ids import GpuUuid
from llmhost.model.reading import Cause, Failed, Ok, Reading, mapped
from llmhost.model.unit import Unit

GpuSet = tuple[GpuUuid, ...]

_READ_ENGINES = frozenset({"vllm", "sglang"})  # their arguments give the number of GPUs (model/engine_arguments)
_NO_GPU = frozenset({"NoDevFiles", "none", "void"})  # entries that end a list on purpose, as negative numbers do
_OLD_MIG = "MIG-GPU-"  # MIG-GPU-UUID/3/0: the instances' names of drivers before 470
_LONGEST_NUMBER = 5


def gpu_set(
    unit: Unit,
    gpus: Sequence[Gpu],
    run: Run,
    configured: Sequence[UnitGpus],
    learnt: GpuSet | None,
) -> Reading[GpuSet]:
    """Find the GPUs of one server of the unit, by the first of these that decides it.

    The config; the first tensor × pipeline × data parallel GPUs of those that its container and CUDA_VISIBLE_DEVICES
    let it see; the set learnt from the unit's last ready activation; those by its arguments alone. Where GPUs may be
    chosen in a way that we cannot read, the set is known only of a server that uses all of them. A learnt set is out of
    date where the arguments alone choose, and they say another number of GPUs or it has a GPU that is not listed: CUDA
    counts those that are there. What this host does not have is no proof of a fault: another host may have it.
    """
    known = learnt or ()
    for row in configured:
        if any(fnmatchcase(name, row.pattern) for name in unit.names):
            return mapped(_named(row.gpus, gpus, "the configured GPU set", known), _uuids)
    if run.arguments is not None and run.arguments.without_gpu:
        return Ok(())
    offered = _offered(run, gpus, known)
    if not isinstance(offered, Ok) or not isinstance(run.visible, Ok):
        return _out_of_sight(run, offered, learnt, [gpu for gpu in gpus if gpu.parent_uuid is None])
    limited = run.visible.value is not None or run.container_gpus not in (None, ("all",))
    if run.visible.value is None:
        seen: Reading[tuple[Gpu, ...]] = offered
        in_order = _counts_as_the_driver(offered.value, run)
    elif run.container_gpus is None:
        seen = _visible(run.visible.value, run, gpus, None, known)
        in_order = True
    else:
        seen = _visible(run.visible.value, run, gpus, offered.value, known)
        in_order = True
    if not isinstance(seen, Ok):
        return seen
    if not seen.value:
        return Ok(())
    chosen = _chosen(run, seen.value, limited=limited, in_order=in_order)
    explicit = limited or _names_gpus(run.arguments)
    if learnt is None or (explicit and isinstance(chosen, Ok)):
        return chosen
    if explicit:
        return Ok(learnt) if set(learnt) <= set(_uuids(seen.value)) else chosen
    outdated = (
        _is_read(run)
        and isinstance(_positions(run, len(seen.value)), Ok)
        and (
            _positions(run, len(seen.value)) != Ok(tuple(range(len(learnt))))
            or set(learnt) - {gpu.uuid for gpu in gpus}
        )
    )
    return chosen if outdated else Ok(learnt)


def _uuids(gpus: Sequence[Gpu]) -> GpuSet:
    return tuple(gpu.uuid for gpu in gpus)


def _is_read(run: Run) -> bool:
    return run.engine in _READ_ENGINES and run.arguments is not None


def _names_gpus(arguments: EngineArguments | None) -> bool:
    return arguments is not None and (arguments.gpus != () or (arguments.first_gpu, arguments.gpu_step) != (0, 1))


def _out_of_sight(
    run: Run, offered: Reading[tuple[Gpu, ...]], learnt: GpuSet | None, whole: Sequence[Gpu]
) -> Reading[GpuSet]:
    """Decide where what the server sees is not known."""
    if learnt is not None:
        return Ok(learnt)
    most = offered.value if isinstance(offered, Ok) else whole
    if run.arguments is not None:
        if not _is_read(run) and len(most) == 1:
            return Ok(_uuids(most))
        wanted = _positions(run, len(most)) if _is_read(run) else Failed(Cause.UNKNOWN)
        if isinstance(wanted, Ok) and len(wanted.value) == len(most):
            return Ok(_uuids(most))
        if _is_read(run) and not isinstance(wanted, Ok):
            return wanted
    if not isinstance(offered, Ok):
        return offered
    return run.visible if not isinstance(run.visible, Ok) else Failed(Cause.UNKNOWN)


def _offered(run: Run, gpus: Sequence[Gpu], known: GpuSet) -> Reading[tuple[Gpu, ...]]:
    """Give all GPUs, or those of the server's container."""
    whole = tuple(gpu for gpu in gpus if gpu.parent_uuid is None)
    if run.container_gpus is None or run.container_gpus == ("all",):
        return Ok(whole)
    if not all(map(is_known, run.container_gpus)):
        return Failed(Cause.UNKNOWN, "the options of a container say which GPUs the unit uses")
    if set(run.container_gpus) <= {*_NO_GPU, ""}:
        return Ok(())
    return _named(run.container_gpus, gpus, "the container's options", known)


def _chosen(run: Run, seen: tuple[Gpu, ...], *, limited: bool, in_order: bool) -> Reading[GpuSet]:
    """Give those of the GPUs in sight that the engine uses."""
    if not _is_read(run):
        if limited or len(seen) == 1:
            return Ok(_uuids(seen))
        if run.arguments is None:
            return Failed(Cause.UNKNOWN, "no engine is known to run here, and nothing says which GPUs it uses")
        # llama.cpp takes all that it sees, Ollama as many as a model takes
        return Failed(Cause.UNKNOWN, "nobody knows how many GPUs the engine uses")
    if run.arguments is not None and run.arguments.gpus and not all(map(str.isdecimal, run.arguments.gpus)):
        return mapped(_named(run.arguments.gpus, seen, "the engine's arguments", ()), _uuids)
    positions = _positions(run, len(seen))
    if not isinstance(positions, Ok):
        return positions
    if len(positions.value) < len(seen) and not in_order:
        return Failed(Cause.UNKNOWN, "which GPUs come first is not known, as they differ")
    return Ok(tuple(seen[position].uuid for position in positions.value))


def _positions(run: Run, count: int) -> Reading[tuple[int, ...]]:
    """Find which of the GPUs in sight the engine uses, by their numbers there."""
    arguments = run.arguments
    if arguments is None or arguments.has_config_file:
        return Failed(Cause.UNKNOWN, "a config file of the engine may say how many GPUs it uses")
    tensor, pipeline, data = arguments.tensor_parallel, arguments.pipeline_parallel, arguments.data_parallel
    first, step = arguments.first_gpu, arguments.gpu_step
    if tensor is None or pipeline is None or data is None or first is None or step is None or arguments.gpus is None:
        return Failed(Cause.UNKNOWN, "the engine's arguments do not say how many GPUs it uses here")
    size = tensor * pipeline * data
    if step != 1 and pipeline * data != 1:
        return Failed(Cause.UNKNOWN, "which GPUs the engine's arguments choose is not known")
    if arguments.gpus:
        named = [int(name) for name in arguments.gpus if name.isdecimal() and len(name) <= _LONGEST_NUMBER]
        positions = tuple(named[:size])
        asked = size if len(named) >= size else count + 1
    else:
        asked = first + (size - 1) * step + 1
        positions = tuple(range(first, min(asked, count), step))
    if asked > count or any(position >= count for position in positions):
        return Failed(
            Cause.UNKNOWN,
            f"the engine's arguments ask for {size} GPUs, and it sees {count}: it spans hosts, or that is a slip",
        )
    return Ok(positions)


def _visible(
    visible: str, run: Run, gpus: Sequence[Gpu], container: tuple[Gpu, ...] | None, known: GpuSet
) -> Reading[tuple[Gpu, ...]]:
    """Read CUDA_VISIBLE_DEVICES (CUDA C++ programming guide, environment variables).

    Plain numbers count in CUDA's order, which is the driver's only with CUDA_DEVICE_ORDER=PCI_BUS_ID or where all
    GPUs are alike; in a container they count anew. A negative number ends the list. Anything else is a slip: with it
    CUDA sees fewer GPUs than somebody meant.
    """
    entries = [entry.strip() for entry in visible.split(",")]
    if entries[-1] == "":
        entries.pop()
    named: list[str] = []
    for entry in entries:
        if entry in _NO_GPU or (entry[:1] == "-" and entry[1:].isdecimal()):
            break
        if not entry.isdecimal() and not entry.startswith(("GPU-", "MIG-")):
            return Failed(Cause.UNKNOWN, f"CUDA_VISIBLE_DEVICES has {entry!r}, which names no GPU")
        named.append(entry)
    places = container if container is not None else gpus
    if any(name.isdecimal() for name in named) and not _counts_as_the_driver(places, run):
        return Failed(Cause.UNKNOWN, "CUDA_VISIBLE_DEVICES has plain numbers, and the GPUs differ")
    if len(set(named)) < len(named):
        return Failed(Cause.UNKNOWN, "CUDA_VISIBLE_DEVICES names a GPU twice")
    if container is not None:
        by_number = {str(number): gpu.uuid for number, gpu in enumerate(container)}
        named = [by_number.get(name, name) for name in named]
    found = _named(tuple(named), places, "CUDA_VISIBLE_DEVICES", known)
    if isinstance(found, Ok) and len(set(_uuids(found.value))) < len(named):
        return Failed(Cause.UNKNOWN, "CUDA_VISIBLE_DEVICES names a GPU twice")
    return found


def _counts_as_the_driver(gpus: Sequence[Gpu], run: Run) -> bool:
    """Say whether CUDA's order is the driver's: by default it begins with the fastest GPU."""
    return len({gpu.name for gpu in gpus}) <= 1 or run.in_pci_order


def _named(names: tuple[str, ...], gpus: Sequence[Gpu], where: str, known: GpuSet) -> Reading[tuple[Gpu, ...]]:
    found: list[Gpu] = []
    for name in names:
        matches = [gpu for gpu in gpus if gpu.uuid == name] or [gpu for gpu in gpus if _is_named(gpu, name)]
        if len(matches) > 1:  # the driver gives the index of a GPU that it lost to the next
            matches = [gpu for gpu in matches if gpu.fault is not Cause.LOST]
        if not matches:
            was_here = name.startswith(("GPU-", "MIG-")) and any(uuid.startswith(name) for uuid in known)
            cause = Cause.LOST if was_here else Cause.UNKNOWN
            return Failed(cause, f"{where} names {name}, which the driver does not list")
        if len(matches) > 1:
            return Failed(Cause.UNKNOWN, f"{where} names {name}, which is more than one GPU")
        found.append(matches[0])
    return Ok(tuple(found))


def _is_named(gpu: Gpu, name: str) -> bool:
    """Match an index, a UUID (CUDA takes any unambiguous beginning of it) or a PCI bus id (with or without domain).

    The old name of a MIG instance has numbers that are not known here, so it is any instance of its GPU.
    """
    if name.startswith(_OLD_MIG):
        return gpu.parent_uuid is not None and gpu.parent_uuid == name.removeprefix("MIG-").partition("/")[0]
    if name.startswith(("GPU-", "MIG-")):
        return gpu.uuid.startswith(name)
    bus = gpu.pci_bus_id.lower()
    return gpu.index == name or (":" in name and gpu.parent_uuid is None and bool(bus) and bus.endswith(name.lower()))
