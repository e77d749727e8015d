"""Samples from an engine's /metrics, in the text exposition format. Pure.

A body of vLLM 0.32 has 40 to 60 kB in 600 lines, of which 15 per engine are wanted. So lines are picked by name before
prometheus_client reads them: 0.8 instead of 12 ms. Names by engine and version:

- vLLM: V0 (0.4 to 0.8) labels series with `model_name` alone, V1 adds `engine`. The KV cache's share is
  `gpu_cache_usage_perc`, since 0.10 `kv_cache_usage_perc`; in between there are both, and they are the same.
  `iteration_tokens_total` is a histogram in spite of its name: its count is the number of steps. With
  `--disable-log-stats` there is no series of its own at all.
- SGLang (`--enable-metrics`): schedulers have one series per `tp_rank`, `pp_rank` and `moe_ep_rank`, all of which tell
  the same, so the lowest rank speaks for all; `dp_rank` is an engine of its own. With priority scheduling there is a
  series per `priority` beside that of all, whose `priority` is "". Tokens are counted by the server, over all engines.
- llama.cpp (`--metrics`): no labels. `kv_cache_usage_ratio` is gone since mid-2025.

Some pages have `_` for the `:` in names (sgl-project/sglang#37985).
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from llmhost.model.engine import EngineSample
from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError

# Engine → name of the series → field of EngineSample.
_OWN_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "vllm": {
        "vllm:generation_tokens_total": "generation_tokens",
        "vllm:prompt_tokens_total": "prompt_tokens",
        "vllm:num_requests_running": "requests_running",
        "vllm:num_requests_waiting": "requests_waiting",
        "vllm:kv_cache_usage_perc": "kv_cache_usage_ratio",
        "vllm:gpu_cache_usage_perc": "kv_cache_usage_ratio",
        "vllm:num_preemptions_total": "preemptions",
        "vllm:iteration_tokens_total_count": "steps",
        "vllm:engine_sleep_state": "sleeping",
        "vllm:request_success_total": "finished",
    },
    "sglang": {
        "sglang:generation_tokens_total": "generation_tokens",
        "sglang:prompt_tokens_total": "prompt_tokens",
        "sglang:num_running_reqs": "requests_running",
        "sglang:num_queue_reqs": "requests_waiting",
        "sglang:token_usage": "kv_cache_usage_ratio",
        "sglang:num_retracted_requests_total": "preemptions",
    },
    "llamacpp": {
        "llamacpp:tokens_predicted_total": "generation_tokens",
        "llamacpp:prompt_tokens_total": "prompt_tokens",
        "llamacpp:requests_processing": "requests_running",
        "llamacpp:requests_deferred": "requests_waiting",
        "llamacpp:kv_cache_usage_ratio": "kv_cache_usage_ratio",
        "llamacpp:n_decode_total": "steps",
    },
}
# Of two names for one field the first that is there counts.
_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    engine: {**names, **{name.replace(":", "_", 1): what for name, what in names.items()}}
    for engine, names in _OWN_NAMES.items()
}
ENGINES: Final = frozenset(_NAMES)
MOST_SERIES: Final = 10_000  # a quarter of a second's work
MOST_SAMPLES: Final = 64  # engines × models of one server
MOST_WANTED_CHARACTERS: Final = 1 << 20  # in all lines that are wanted
LONGEST_LINE: Final = 8 * 1024  # characters; prometheus_client takes quadratic time over a line's labels
LONGEST_LABEL_VALUE: Final = 256  # characters
_HIGHEST_SHARE: Final = 1.5  # blocks are counted while they move, so a little over 1 has been seen; more is nonsense
_WANTED = {
    engine: re.compile(rf"^[ \t]*(?:{'|'.join(sorted(map(re.escape, names)))})[ \t]*[{{ \t].*$", re.MULTILINE)
    for engine, names in _NAMES.items()
}
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")
_SHARE = "kv_cache_usage_ratio"  # never added up


@dataclass(slots=True)
class _Engine:
    """One engine of a body, while it is read: name → (labels that distinguish its series, value)."""

    series: dict[str, list[tuple[Mapping[str, str], float]]] = field(default_factory=dict)


def parse_metrics(body: bytes, engine: str) -> tuple[EngineSample, ...]:
    """Read a body of this engine, or of whichever there is where it is not one of ENGINES.

    One sample per model and engine index, in that order. Raises SourceError: MALFORMED for what is no UTF-8, cut off
    within a line, or has a line of the engine's that cannot be read or is absurdly long; TOO_LARGE; NO_METRICS where
    there is none of the engine's series. A value that cannot be (negative, infinite) is absent.
    """
    if body and not body.endswith(b"\n"):
        raise SourceError(Cause.MALFORMED, "cut off: its last line has no end")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise SourceError(Cause.MALFORMED, f"no UTF-8 at byte {error.start}") from None
    samples: list[EngineSample] = []
    for candidate in (engine,) if engine in ENGINES else sorted(ENGINES):
        found: dict[tuple[str, str], _Engine] = {}
        for name, labels, value in _series(text, candidate):
            key = labels.get("model_name", ""), labels.get("engine", labels.get("dp_rank", ""))
            found.setdefault(key, _Engine()).series.setdefault(name, []).append((labels, value))
            if len(found) > MOST_SAMPLES:
                raise SourceError(Cause.TOO_LARGE, f"more than {MOST_SAMPLES} engines and models in one answer")
        samples += [_sample(candidate, key, found[key]) for key in sorted(found, key=_by_number)]
        if samples:
            break  # a server is of one engine, whatever else it repeats
    if not samples:
        raise SourceError(Cause.NO_METRICS, f"{len(body)} bytes, and none of the engine's series in them")
    return tuple(samples)


def _series(text: str, engine: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    lines = _WANTED[engine].findall(text)
    if len(lines) > MOST_SERIES:
        raise SourceError(Cause.TOO_LARGE, f"{len(lines)} series of the kinds that are wanted")
    if any(len(line) > LONGEST_LINE for line in lines):
        raise SourceError(Cause.MALFORMED, f"a line of more than {LONGEST_LINE} characters")
    if sum(map(len, lines)) > MOST_WANTED_CHARACTERS:
        raise SourceError(
            Cause.TOO_LARGE, f"more than {MOST_WANTED_CHARACTERS} characters of the kinds that are wanted"
        )
    try:
        for family in text_string_to_metric_families("\n".join((*lines, ""))):
            for sample in family.samples:
                if any(len(value) > LONGEST_LABEL_VALUE for value in sample.labels.values()):
                    raise SourceError(Cause.MALFORMED, f"a label of more than {LONGEST_LABEL_VALUE} characters")
                yield sample.name, sample.labels, float(sample.value)
    except (ValueError, LookupError, OverflowError) as error:
        raise SourceError(Cause.MALFORMED, "a line of the engine's that cannot be read") from error


def _by_number(key: tuple[str, str]) -> tuple[str, int, str]:
    model, index = key
    return model, int(index) if index.isdecimal() else -1, index


def _sample(engine: str, key: tuple[str, str], read: _Engine) -> EngineSample:
    values: dict[str, Any] = {}
    for name, what in _NAMES[engine].items():
        series = _of_lowest_rank(read.series.get(name, []))
        if not series or what in values:
            continue
        value: Any
        if what == "sleeping":
            value = _sleeping(series)
        elif what == "finished":
            value = _by_reason(series)
        else:
            value = _share(series) if what == _SHARE else _total(number for _, number in series)
        if value is not None:
            values[what] = value
    return EngineSample(model=key[0], engine_index=key[1], **values)


def _of_lowest_rank(series: list[tuple[Mapping[str, str], float]]) -> list[tuple[Mapping[str, str], float]]:
    ranks = [tuple(_rank(labels.get(name, "")) for name in _RANKS) for labels, _ in series]
    lowest = min(ranks, default=())
    return [
        (labels, value)
        for (labels, value), rank in zip(series, ranks, strict=True)
        if rank == lowest and not labels.get("priority")
    ]


def _rank(text: str) -> int:
    return int(text) if text.isdecimal() else -1


def _total(numbers: Iterable[float]) -> float | None:
    """Add up what is counted; None where one of them, or all together, cannot be a count."""
    values = tuple(numbers)
    total = sum(values)
    return total if math.isfinite(total) and min(values) >= 0 else None


def _share(series: list[tuple[Mapping[str, str], float]]) -> float | None:
    values = [value for _, value in series]
    return max(values) if all(0 <= value <= _HIGHEST_SHARE for value in values) else None


def _sleeping(series: list[tuple[Mapping[str, str], float]]) -> bool | None:
    """Of a series per state (vLLM: awake, weights_offloaded, discard_all) one is 1."""
    states = {labels.get("sleep_state", ""): value for labels, value in series}
    awake = states.get("awake")
    return not awake if awake in {0.0, 1.0} else None


def _by_reason(series: list[tuple[Mapping[str, str], float]]) -> Mapping[str, float]:
    counts: dict[str, list[float]] = {}
    for labels, value in series:
        if math.isfinite(value):
            counts.setdefault(labels.get("finished_reason", ""), []).append(value)
    totals = {reason: _total(values) for reason, values in counts.items()}
    return {reason: total for reason, total in totals.items() if total is not None}
