"""Options of the engines' servers: the table of those that are read, and the reading of a command line by it. Pure.

An engine's parser takes the last of several, a value after `=` or as the next word, and (argparse: vLLM, SGLang) any
beginning of a name that only one option has. A word that is not known may be any option that stands before it or not
at all; what stands after it is known.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from llmhost.model.command.words import SOME, UNKNOWN, is_known
from llmhost.model.command.wrappers import spelled

_OPTION = re.compile(r"-[^\d.\0]")  # and no negative number


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """`neighbours` begin like the options that are read; `valued` are others that take a value, often by a variable."""

    names: Mapping[str, tuple[str, ...]]  # our name → its spellings
    flags: frozenset[str] = frozenset()  # names that take no value
    valued: frozenset[str] = frozenset()
    neighbours: frozenset[str] = frozenset()
    abbreviates: bool = True
    underscores: bool = False  # names may have them for dashes (vLLM: FlexibleArgumentParser)
    by_spelling: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        by_spelling = {spelling: name for name, spellings in self.names.items() for spelling in spellings}
        object.__setattr__(self, "by_spelling", by_spelling)


_VALUED = spelled(
    "api-key model model-path served-model-name tokenizer tokenizer-path tokenizer-mode revision dtype seed "
    "quantization max-model-len max-num-seqs max-num-batched-tokens kv-cache-dtype download-dir load-format "
    "chat-template tool-call-parser reasoning-parser root-path ssl-keyfile ssl-certfile log-level "
    "uvicorn-log-level swap-space block-size max-lora-rank hf-token hf-overrides lora-modules context-length "
    "admin-api-key dist-init-addr "
    "node-rank master-addr master-port distributed-executor-backend data-parallel-address data-parallel-backend "
    "data-parallel-rpc-port data-parallel-start-rank enable-metrics-port nccl-port random-seed max-running-requests "
    "speculative-config compilation-config kv-transfer-config rope-scaling limit-mm-per-prompt"
)
# vLLM 0.32: engine/arg_utils.py, entrypoints/*/cli_args.py; SGLang 0.5.23: srt/arg_groups; llama.cpp: common/arg.cpp.
ENGINE_OPTIONS: Mapping[str, EngineOptions] = {
    "vllm": EngineOptions(
        names={
            "utilization": ("--gpu-memory-utilization", "--device-memory-utilization"),
            "tensor": ("--tensor-parallel-size", "-tp"),
            "pipeline": ("--pipeline-parallel-size", "-pp"),
            "data": ("--data-parallel-size", "-dp"),
            "data_here": ("--data-parallel-size-local", "-dpl"),
            "data_rank": ("--data-parallel-rank", "-dpn"),
            "context": ("--prefill-context-parallel-size", "-pcp"),
            "nodes": ("--nnodes", "-n"),
            "device": ("--device",),
            "device_ids": ("--device-ids",),
            "config": ("--config",),
            "host": ("--host",),
            "port": ("--port",),
            "unix": ("--uds",),
            "tls": ("--ssl-certfile",),
            "headless": ("--headless",),
            "drain": ("--shutdown-timeout",),
            "offloaded_weights": ("--cpu-offload-gb",),
            "offloaded_cache": ("--kv-offloading-size",),
        },
        flags=frozenset({"headless"}),
        valued=_VALUED,
        neighbours=spelled(
            "config-format convert cpu-distributed-timeout-seconds cpu-offload-params data-parallel-address "
            "data-parallel-backend data-parallel-external-lb data-parallel-hybrid-lb "
            "data-parallel-multi-port-external-lb data-parallel-rpc-port data-parallel-start-rank "
            "data-parallel-supervisor-port hf-config-path hf-overrides hf-token kv-cache-dtype kv-cache-memory-bytes "
            "kv-cache-metrics kv-offloading-backend kv-transfer-config node-rank pooler-config "
            "prefill-schedule-interval prefix-caching-hash-algo ssl-ca-certs ssl-cert-reqs ssl-ciphers ssl-keyfile "
            "dtype download-dir generation-config guided-decoding-backend seed served-model-name tokenizer task"
        ),
        underscores=True,
    ),
    "sglang": EngineOptions(
        names={
            "utilization": ("--mem-fraction-static",),
            "tensor": ("--tensor-parallel-size", "--tp-size", "--tp"),
            "pipeline": ("--pipeline-parallel-size", "--pp-size", "--pp"),
            "data": ("--data-parallel-size", "--dp-size", "--dp"),
            "data_attention": ("--enable-dp-attention",),
            "base": ("--base-gpu-id",),
            "step": ("--gpu-id-step",),
            "number": ("--num-gpus",),  # multimodal_gen: of all that its sizes multiply to
            "nodes": ("--nnodes",),
            "device": ("--device",),
            "config": ("--config",),
            "host": ("--host",),
            "port": ("--port",),
            "tls": ("--ssl-certfile",),
        },
        flags=frozenset({"data_attention"}),
        valued=_VALUED,
        neighbours=spelled(
            "constrained-json-whitespace-pattern context-length num-continuous-decode-steps "
            "num-reserved-decode-tokens pp-async-batch-depth pp-max-micro-batch-size "
            "enable-dp-attention-local-control-broadcast enable-dp-lm-head ssl-ca-certs ssl-keyfile "
            "ssl-keyfile-password node-rank dtype download-dir decode-log-interval pool-size prefill-attention-backend "
            "tokenizer-path tool-call-parser"
        ),
    ),
    "llamacpp": EngineOptions(
        names={
            "device": ("--device", "-dev"),
            "host": ("--host",),
            "port": ("--port",),
            "tls": ("--ssl-cert-file",),
            "prefix": ("--api-prefix",),
        },
        valued=_VALUED,
        abbreviates=False,
    ),
}


def given_options(engine: str, arguments: Sequence[str]) -> Mapping[str, str]:
    """Give the value of each option that is given, or may be: UNKNOWN is in a value that is not known; "" of a flag."""
    options = ENGINE_OPTIONS.get(engine, EngineOptions(names={}))
    given: dict[str, str] = {}
    takes_value = False  # the option before
    for index, argument in enumerate(arguments):
        is_value, takes_value = takes_value and argument != SOME, False
        if not argument.startswith("-"):
            if argument.startswith(UNKNOWN) and not is_value:
                given.update(dict.fromkeys(options.names, UNKNOWN))
            continue
        spelling, equals, value = argument.partition("=")
        if options.underscores and spelling.startswith("--"):
            spelling = spelling.replace("_", "-")
        if not is_known(spelling):
            given.update(dict.fromkeys(options.names, UNKNOWN))
            continue
        meant = _meant(options, spelling)
        names = {options.by_spelling[each] for each in meant if each in options.by_spelling}
        takes_value = (
            not equals
            and bool(meant)
            and all(
                options.by_spelling[each] not in options.flags
                if each in options.by_spelling
                else each in options.valued
                for each in meant
            )
        )
        if len(meant) > 1:
            given.update(dict.fromkeys(names, UNKNOWN))
            continue
        following = arguments[index + 1] if index + 1 < len(arguments) else ""
        if takes_value and _OPTION.match(following):
            return dict.fromkeys(options.names, UNKNOWN)  # the engine refuses it
        for name in names:
            given[name] = "" if name in options.flags else value if equals else following
    return given


def _meant(options: EngineOptions, spelling: str) -> frozenset[str]:
    """Give the option of this name; without such, those that begin with it."""
    known = {*options.by_spelling, *options.valued, *options.neighbours}
    if spelling in known or not options.abbreviates or not spelling.startswith("--"):
        return frozenset({spelling})
    return frozenset(_beginning_with(spelling, known)) or frozenset({spelling})


def _beginning_with(spelling: str, known: Iterable[str]) -> Iterable[str]:
    return (each for each in known if each.startswith(spelling) and spelling != "--")
