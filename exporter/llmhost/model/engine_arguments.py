"""The GPUs that an engine will take, by its arguments. Pure; a unit's GPU set and requirements derive from it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from llmhost.model.command.words import UNKNOWN, is_known
from llmhost.model.engine_command import engine_command
from llmhost.model.engine_options import given_options

N = TypeVar("N", int, float)

_READ_ENGINES = frozenset({"vllm", "sglang"})
_GPU_DEVICES = frozenset({"auto", "cuda", "gpu"})  # of --device; others are no NVIDIA GPUs
_LONGEST_NUMBER = 20
_SIZES = ("tensor_parallel", "pipeline_parallel", "data_parallel", "first_gpu", "gpu_step")
_MOST_GPUS = 1 << 20
_LONGEST_LIST = 4000  # of GPUs' names


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineArguments:
    """Sizes are 1 where not given, None where given and not readable (`${TP}`), or where they span hosts.

    With `has_config_file` anything not given here may stand in that file.
    """

    utilization: float | None = None  # of a GPU's memory, 0..1; None: not given, or not readable
    utilization_given: bool = False
    tensor_parallel: int | None = 1
    pipeline_parallel: int | None = 1
    data_parallel: int | None = 1  # replicas on this host that have GPUs of their own
    first_gpu: int | None = 0  # the number of the first among the visible GPUs
    gpu_step: int | None = 1  # from one of them to the next
    gpus: tuple[str, ...] | None = ()  # named among the visible ones; (): none are named; None: not readable
    without_gpu: bool = False  # it surely computes on something else
    port: int | None = None
    has_config_file: bool = False

    def within_bounds(self) -> "EngineArguments":
        """Leave unknown what no host has."""
        sizes: dict[str, Any] = {name: None for name in _SIZES if (getattr(self, name) or 0) > _MOST_GPUS}
        named = None if self.gpus is not None and sum(map(len, self.gpus)) > _LONGEST_LIST else self.gpus
        return replace(self, gpus=named, **sizes)


def parse_engine_arguments(engine: str, argv: Sequence[str]) -> EngineArguments:
    """Read the arguments of an API server's or ExecStart's command line; of an unknown engine, the defaults.

    vLLM's replicas: `--data-parallel-size-local` where given, one where `--data-parallel-rank` says that this process
    is one of them. SGLang's: with `--enable-dp-attention` they share the tensor parallel GPUs, so there is one.
    `--num-gpus`, of its servers of models that make pictures, is the number of all.
    With `--nnodes`, or a prefill context parallel size, the product of the sizes is not this host's number of GPUs:
    the tensor parallel size is unknown then.
    """
    found, own = engine_command(argv)
    given = given_options(engine, own[1:] if found == engine else argv[1:])
    device = given.get("device", "auto")
    without_gpu = is_known(device) and device != "" and _device(engine, device) not in _GPU_DEVICES
    if engine not in _READ_ENGINES:
        return EngineArguments(without_gpu=without_gpu)
    read = EngineArguments(
        utilization=_number(given.get("utilization", ""), float, lambda ratio: 0 < ratio <= 1),
        utilization_given="utilization" in given,
        tensor_parallel=_size(given, "tensor") if _size(given, "nodes") == _size(given, "context") == 1 else None,
        pipeline_parallel=_size(given, "pipeline"),
        data_parallel=_replicas(given),
        first_gpu=_number(given.get("base", "0"), int, lambda number: number >= 0),
        gpu_step=_size(given, "step"),
        gpus=_named_gpus(given.get("device_ids", "")),
        without_gpu=without_gpu,
        port=_number(given.get("port", ""), int, lambda port: 0 < port < 1 << 16),
        has_config_file="config" in given,
    )
    if "number" in given:
        return replace(read, tensor_parallel=_size(given, "number"), pipeline_parallel=1, data_parallel=1)
    return read


def completed(found: EngineArguments, last: EngineArguments, argv: Sequence[str]) -> EngineArguments:
    """Take what is not known of a command line, `found` in `argv`, from that of the last run."""
    names_config_file = any(word.partition("=")[0] == "--config" for word in argv)
    asked = found.utilization is None and (found.utilization_given or found.has_config_file)
    unknown: dict[str, Any] = {name: getattr(last, name) for name in (*_SIZES, "gpus") if getattr(found, name) is None}
    return replace(
        found,
        utilization=last.utilization if asked else found.utilization,
        utilization_given=last.utilization_given if asked else found.utilization_given,
        has_config_file=found.has_config_file and (last.has_config_file or names_config_file),
        **unknown,
    )


def _device(engine: str, device: str) -> str:
    """Name what it computes on: vLLM's and SGLang's `cuda:0`; llama.cpp's names, of which `none` is no GPU."""
    if engine == "llamacpp":
        return "cpu" if device == "none" else "gpu"
    return device.partition(":")[0]


def _replicas(given: Mapping[str, str]) -> int | None:
    if any(given.get(name) == UNKNOWN for name in ("data_rank", "data_attention", "data_here")):
        return None
    if "data_rank" in given or "data_attention" in given:
        return 1
    return _size(given, "data_here" if "data_here" in given else "data")


def _named_gpus(text: str) -> tuple[str, ...] | None:
    """Read --device-ids: numbers or UUIDs, with commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip()) if is_known(text) else None


def _size(given: Mapping[str, str], name: str) -> int | None:
    return _number(given[name], int, lambda size: size > 0) if name in given else 1


def _number(text: str, kind: Callable[[str], N], fits: Callable[[N], bool]) -> N | None:
    if len(text) > _LONGEST_NUMBER:  # any user can write a command line: Python's int() has its price, and its limits
        return None
    try:
        value = kind(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and fits(value) else None
