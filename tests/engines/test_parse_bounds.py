"""Metrics that no engine would give cost little time, and are not believed."""

import time

import pytest

from llmhost.model.engine import EngineSample
from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError
from llmhost.sources.engine.parse import LONGEST_LABEL_VALUE, MOST_SAMPLES, MOST_SERIES, parse_metrics


def cause_of(text: bytes, engine: str = "vllm") -> Cause:
    with pytest.raises(SourceError) as caught:
        parse_metrics(text, engine)
    return caught.value.cause


def test_a_flood_of_series_is_too_large() -> None:
    line = 'vllm:generation_tokens_total{{model_name="{}"}} 1\n'
    assert cause_of("".join(line.format(n) for n in range(MOST_SERIES + 1)).encode()) is Cause.TOO_LARGE


def test_a_line_of_thousands_of_labels_is_refused_at_once() -> None:
    labels = ",".join(f'a{number}=""' for number in range(128_000))
    began = time.process_time()
    assert cause_of(f"vllm:num_requests_running{{{labels}}} 1\n".encode()) is Cause.MALFORMED
    assert time.process_time() - began < 1  # 13 s for a sixth of it without a bound


def test_many_long_lines_are_too_large() -> None:
    labels = ",".join(f'a{number}=""' for number in range(900))
    line = f"vllm:num_requests_running{{{labels}}} 1\n"
    assert cause_of((line * 200).encode()) is Cause.TOO_LARGE
    began = time.process_time()
    assert len(parse_metrics((line * 100).encode(), "vllm")) == 1
    assert time.process_time() - began < 2


@pytest.mark.parametrize("label", ["model_name", "engine", "tp_rank", "finished_reason"])
def test_a_label_of_thousands_of_digits_is_malformed(label: str) -> None:
    for engine in ("vllm", "sglang"):
        text = f'{engine}:generation_tokens_total{{{label}="9"}} 1\n'.encode()
        for digits in (5000, LONGEST_LABEL_VALUE + 1):
            assert cause_of(text.replace(b"9", b"9" * digits), engine) is Cause.MALFORMED
        assert len(parse_metrics(text.replace(b"9", b"9" * LONGEST_LABEL_VALUE), engine)) == 1


def test_a_sum_that_is_no_number_is_absent() -> None:
    text = (
        b'vllm:request_success_total{finished_reason="stop"} 1e308\n'
        b'vllm:request_success_total{finished_reason="stop",x="1"} 1e308\n'
        b'vllm:request_success_total{finished_reason="abort"} 2\n'
        b'vllm:prompt_tokens_total 1e308\nvllm:prompt_tokens_total{x="1"} 1e308\n'
    )
    assert parse_metrics(text, "vllm") == (EngineSample(model="", engine_index="", finished={"abort": 2.0}),)


@pytest.mark.parametrize("value", ["-0.01", "-5", "1.51", "77"])
def test_what_cannot_be_a_share_of_the_kv_cache_is_absent(value: str) -> None:
    text = f"vllm:prompt_tokens_total 1\nvllm:kv_cache_usage_perc {value}\n"
    assert parse_metrics(text.encode(), "vllm") == (EngineSample(model="", engine_index="", prompt_tokens=1.0),)


@pytest.mark.parametrize(
    "lines",
    [
        "vllm:generation_tokens_total -5",
        'vllm:generation_tokens_total 7\nvllm:generation_tokens_total{x="1"} -5',
        "vllm:num_requests_running -1",
        'vllm:request_success_total{finished_reason="stop"} -1',
        'vllm:engine_sleep_state{sleep_state="awake"} -3',
        'vllm:engine_sleep_state{sleep_state="awake"} 0.5',
    ],
)
def test_a_count_below_zero_and_a_state_that_is_none_are_absent(lines: str) -> None:
    text = f"vllm:prompt_tokens_total 1\n{lines}\n"
    assert parse_metrics(text.encode(), "vllm") == (EngineSample(model="", engine_index="", prompt_tokens=1.0),)


def test_an_unknown_engine_is_never_two() -> None:
    text = b"vllm:generation_tokens_total 1\nllamacpp:tokens_predicted_total 2\n"
    assert parse_metrics(text, "") == (EngineSample(model="", engine_index="", generation_tokens=2.0),)


def test_a_crowd_of_models_and_engines_is_too_large() -> None:
    lines = [f'vllm:generation_tokens_total{{model_name="m{n}"}} 1\n'.encode() for n in range(MOST_SAMPLES + 1)]
    assert len(parse_metrics(b"".join(lines[:-1]), "vllm")) == MOST_SAMPLES
    assert cause_of(b"".join(lines)) is Cause.TOO_LARGE
