"""The GPUs that an engine will take, by its arguments. Pure; a unit's GPU set and requirements derive from it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from llmhost.model.engine_command import engine_command

N = TypeVar("N", int, float)

_LONGEST_NUMBER = 20


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
    port: int | None = None
    has_config_file: bool = False


# Name of the option → its spellings. vLLM: arg_utils.py, serve cli_args.py; SGLang: server_args.py.
_VLLM: Mapping[str, tuple[str, ...]] = {
    "utilization": ("--gpu-memory-utilization", "--device-memory-utilization"),
    "tensor": ("--tensor-parallel-size", "-tp"),
    "pipeline": ("--pipeline-parallel-size", "-pp"),
    "data": ("--data-parallel-size", "-dp"),
    "data_here": ("--data-parallel-size-local", "-dpl"),
    "data_rank": ("--data-parallel-rank", "-dpn"),
    "context": ("--prefill-context-parallel-size", "-pcp"),
    "nodes": ("--nnodes", "-n"),
    "port": ("--port",),
    "config": ("--config",),
}
_SGLANG: Mapping[str, tuple[str, ...]] = {
    "utilization": ("--mem-fraction-static",),
    "tensor": ("--tensor-parallel-size", "--tp-size", "--tp"),
    "pipeline": ("--pipeline-parallel-size", "--pp-size", "--pp"),
    "data": ("--data-parallel-size", "--dp-size", "--dp"),
    "data_attention": ("--enable-dp-attention",),
    "base": ("--base-gpu-id",),
    "nodes": ("--nnodes",),
    "port": ("--port",),
    "config": ("--config",),
}
# argparse takes any prefix that only one option has; these are the shortest such that people use.
_ABBREVIATED: Mapping[str, str] = {
    "--gpu-memory-utilization": "--gpu-memory-u",
    "--tensor-parallel-size": "--tensor-parallel",
    "--pipeline-parallel-size": "--pipeline-parallel",
    "--mem-fraction-static": "--mem-fraction",
}


def parse_engine_arguments(engine: str, argv: tuple[str, ...]) -> EngineArguments:
    """Read the arguments of an API server's or ExecStart's command line; of an unknown engine, the defaults.

    The last of several wins, as in argparse. vLLM takes underscores for dashes in names (FlexibleArgumentParser).
    vLLM's replicas: `--data-parallel-size-local` where given, one where `--data-parallel-rank` says that this process
    is one of them. SGLang's: with `--enable-dp-attention` they share the tensor parallel GPUs, so there is one.
    With `--nnodes`, or a prefill context parallel size, the product of the sizes is not this host's number of GPUs, and
    with `--base-gpu-id` they are not the first: the tensor parallel size is unknown then.
    """
    options = {"vllm": _VLLM, "sglang": _SGLANG}.get(engine)
    if options is None:
        return EngineArguments()
    found, own = engine_command(argv)
    given = given_options(options, own[1:] if found == engine else argv[1:], underscores=engine == "vllm")
    replicas = _size(given, "data_here" if "data_here" in given else "data")
    if "data_rank" in given or "data_attention" in given:
        replicas = 1
    return EngineArguments(
        utilization=_number(given.get("utilization", ""), float, lambda ratio: 0 < ratio <= 1),
        utilization_given="utilization" in given,
        tensor_parallel=_size(given, "tensor")
        if _size(given, "nodes") == _size(given, "context") == 1 and "base" not in given
        else None,
        pipeline_parallel=_size(given, "pipeline"),
        data_parallel=replicas,
        port=_number(given.get("port", ""), int, lambda port: 0 < port < 1 << 16),
        has_config_file="config" in given,
    )


def given_options(
    options: Mapping[str, tuple[str, ...]], arguments: tuple[str, ...], *, underscores: bool
) -> dict[str, str]:
    """Name of each option that is given → its value, of the last where there are several; "" for a bare flag."""
    names = {spelling: name for name, spellings in options.items() for spelling in spellings}
    given: dict[str, str] = {}
    for index, argument in enumerate(arguments):
        if not argument.startswith("-"):
            continue
        spelling, equals, value = argument.partition("=")
        if underscores and spelling.startswith("--"):
            spelling = spelling.replace("_", "-")
        name = names.get(spelling) or names.get(_in_full(spelling))
        if name is not None:
            given[name] = value if equals else "".join(arguments[index + 1 : index + 2])
    return given


def _in_full(spelling: str) -> str:
    for full, shortest in _ABBREVIATED.items():
        if full.startswith(spelling) and spelling.startswith(shortest):
            return full
    return spelling


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
