"""Bodies of engines' /metrics: captures of vLLM 0.32.0 (tests/hosts/bodies), and others written after their sources.

What a capture says was read off with grep, not with our parser.
"""

from pathlib import Path

import pytest

from llmhost.model.engine import EngineSample
from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError
from llmhost.sources.engine.parse import parse_metrics

BODIES = Path(__file__).parents[1] / "hosts" / "bodies"


def body(name: str) -> bytes:
    return (BODIES / f"{name}.prom").read_bytes()


def cause_of(text: bytes, engine: str = "vllm") -> Cause:
    with pytest.raises(SourceError) as caught:
        parse_metrics(text, engine)
    return caught.value.cause


def captured(index: str = "0", *, length: float, **values: float) -> EngineSample:
    finished = {"stop": 0.0, "length": length, "abort": 0.0, "error": 0.0, "repetition": 0.0}
    idle = {"requests_running": 0.0, "requests_waiting": 0.0, "kv_cache_usage_ratio": 0.0, "preemptions": 0.0}
    return EngineSample(model="tiny", engine_index=index, sleeping=False, finished=finished, **(idle | values))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vllm-0.32.0-tp1-before-load", [captured(length=0, generation_tokens=0, prompt_tokens=0, steps=0)]),
        (
            "vllm-0.32.0-tp1-during-load",
            [
                captured(
                    length=18,
                    generation_tokens=1827,
                    prompt_tokens=175,
                    steps=1141,
                    requests_running=1,
                    kv_cache_usage_ratio=0.00012207776353534427,
                )
            ],
        ),
        ("vllm-0.32.0-tp1-after-load", [captured(length=19, generation_tokens=2012, prompt_tokens=175, steps=1326)]),
        (
            "vllm-0.32.0-dp2-during-load",
            [
                captured("0", length=9, generation_tokens=996, prompt_tokens=83, steps=901),
                captured("1", length=10, generation_tokens=1016, prompt_tokens=92, steps=922),
            ],
        ),
        (
            "vllm-0.32.0-dp2-after-load",
            [
                captured("0", length=9, generation_tokens=996, prompt_tokens=83, steps=901),
                captured("1", length=10, generation_tokens=1016, prompt_tokens=92, steps=922),
            ],
        ),
    ],
)
def test_a_capture_says_what_grep_finds_in_it(name: str, expected: list[EngineSample]) -> None:
    assert parse_metrics(body(name), "vllm") == tuple(expected)


def test_several_api_servers_have_no_gauges_before_the_first_request() -> None:
    first, second = parse_metrics(body("vllm-0.32.0-dp2-before-load"), "vllm")
    assert (first.engine_index, second.engine_index) == ("0", "1")
    for sample in (first, second):
        assert (sample.generation_tokens, sample.prompt_tokens, sample.steps, sample.sleeping) == (0.0, 0.0, 0.0, False)
        assert (sample.requests_running, sample.requests_waiting, sample.kv_cache_usage_ratio) == (None, None, None)


OLD_CACHE = b'vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.25\n'
NEW_CACHE = b'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5\n'


def test_vllm_0_4_to_0_6_has_no_engine_label_and_a_gpu_cache() -> None:
    assert parse_metrics(body("vllm-0.6"), "vllm") == (
        EngineSample(
            model="meta-llama/Llama-3.1-8B",
            engine_index="",
            generation_tokens=98765.0,
            prompt_tokens=1234500.0,
            requests_running=3.0,
            requests_waiting=2.0,
            kv_cache_usage_ratio=0.4375,
            preemptions=4.0,
            finished={"stop": 5.0, "length": 1.0},
        ),
    )


@pytest.mark.parametrize(
    ("version", "lines", "ratio"),
    [
        ("0.8", OLD_CACHE, 0.25),
        ("0.10", OLD_CACHE + NEW_CACHE, 0.5),
        ("0.10, in the other order", NEW_CACHE + OLD_CACHE, 0.5),
        ("0.12", NEW_CACHE, 0.5),
    ],
)
def test_of_the_two_names_of_the_kv_cache_the_new_one_counts(version: str, lines: bytes, ratio: float) -> None:
    (sample,) = parse_metrics(lines + b'vllm:generation_tokens_total{engine="0",model_name="m"} 1.0\n', "vllm")
    assert sample == EngineSample(model="m", engine_index="0", generation_tokens=1.0, kv_cache_usage_ratio=ratio)


def test_an_engine_that_is_not_awake_sleeps() -> None:
    def sleep_state(awake: str, offloaded: str) -> bool | None:
        text = (
            f'vllm:engine_sleep_state{{engine="0",model_name="m",sleep_state="awake"}} {awake}\n'
            f'vllm:engine_sleep_state{{engine="0",model_name="m",sleep_state="weights_offloaded"}} {offloaded}\n'
            'vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="discard_all"} 0.0\n'
        )
        (sample,) = parse_metrics(text.encode(), "vllm")
        return sample.sleeping

    assert sleep_state("1.0", "0.0") is False
    assert sleep_state("0.0", "1.0") is True
    assert sleep_state("NaN", "0.0") is None


def test_two_models_and_ten_engines_are_kept_apart_and_in_order() -> None:
    indexes = [str(index) for index in range(11)]
    lines = [f'vllm:generation_tokens_total{{engine="{i}",model_name="b"}} {i}.0\n' for i in reversed(indexes)]
    lines.append('vllm:generation_tokens_total{engine="0",model_name="a"} 7.0\n')
    samples = parse_metrics("".join(lines).encode(), "vllm")
    assert [(sample.model, sample.engine_index) for sample in samples] == [
        ("a", "0"),
        *(("b", index) for index in indexes),
    ]
    assert [sample.generation_tokens for sample in samples] == [7.0, *map(float, range(11))]


SGLANG = b"""\
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="qwen"} 8.128902e+06
sglang:generation_tokens_total{model_name="qwen"} 7.557572e+06
sglang:num_running_reqs{engine_type="unified",model_name="qwen",pp_rank="0",tp_rank="1"} 4.0
sglang:num_running_reqs{engine_type="unified",model_name="qwen",pp_rank="0",tp_rank="0"} 3.0
sglang:num_running_reqs{engine_type="unified",model_name="qwen",pp_rank="0",priority="-1",tp_rank="0"} 2.0
sglang:num_running_reqs{engine_type="unified",model_name="qwen",pp_rank="0",priority="5",tp_rank="0"} 1.0
sglang:num_queue_reqs{engine_type="unified",model_name="qwen",pp_rank="0",tp_rank="0"} 6.0
sglang:token_usage{engine_type="unified",model_name="qwen",pp_rank="0",tp_rank="0"} 0.28
sglang:token_usage{engine_type="unified",model_name="qwen",pp_rank="0",tp_rank="1"} 0.29
sglang:gen_throughput{engine_type="unified",model_name="qwen",pp_rank="0",tp_rank="0"} 99.0
sglang:num_retracted_requests_total{engine_type="unified",model_name="qwen",pp_rank="0",tp_rank="0"} 2.0
"""


def test_of_sglangs_ranks_the_lowest_speaks_for_all() -> None:
    assert parse_metrics(SGLANG, "sglang") == (
        EngineSample(
            model="qwen",
            engine_index="",
            generation_tokens=7557572.0,
            prompt_tokens=8128902.0,
            requests_running=3.0,
            requests_waiting=6.0,
            kv_cache_usage_ratio=0.28,
            preemptions=2.0,
        ),
    )


def test_names_may_have_an_underscore_for_their_colon() -> None:
    assert parse_metrics(SGLANG.replace(b"sglang:", b"sglang_"), "sglang") == parse_metrics(SGLANG, "sglang")
    both = SGLANG + SGLANG.replace(b"sglang:", b"sglang_")
    assert parse_metrics(both, "sglang") == parse_metrics(SGLANG, "sglang")


def test_sglangs_data_parallel_ranks_are_engines_of_their_own() -> None:
    text = (
        b'sglang:generation_tokens_total{model_name="m"} 9.0\n'
        b'sglang:num_running_reqs{dp_rank="1",model_name="m",tp_rank="1"} 2.0\n'
        b'sglang:num_running_reqs{dp_rank="0",model_name="m",tp_rank="0"} 1.0\n'
    )
    assert parse_metrics(text, "sglang") == (
        EngineSample(model="m", engine_index="", generation_tokens=9.0),
        EngineSample(model="m", engine_index="0", requests_running=1.0),
        EngineSample(model="m", engine_index="1", requests_running=2.0),
    )


def test_llama_cpp_has_no_labels() -> None:
    text = (
        b"# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.\n"
        b"# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 900\n"
        b"llamacpp:prompt_seconds_total 1.5\nllamacpp:tokens_predicted_total 1250\n"
        b"llamacpp:n_decode_total 77\nllamacpp:n_busy_slots_per_decode 2\n"
        b"llamacpp:prompt_tokens_seconds 600\nllamacpp:predicted_tokens_seconds 40\n"
        b"llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n"
    )
    expected = EngineSample(
        model="",
        engine_index="",
        generation_tokens=1250.0,
        prompt_tokens=900.0,
        requests_running=2.0,
        requests_waiting=1.0,
        steps=77.0,
    )
    assert parse_metrics(text, "llamacpp") == (expected,)
    assert parse_metrics(text, "") == (expected,)  # whichever engine it is
    assert cause_of(text, "vllm") is Cause.NO_METRICS


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "nan", "9" * 5000])
def test_what_is_no_number_is_absent(value: str) -> None:
    text = (
        f'vllm:generation_tokens_total{{model_name="m"}} {value}\n'
        f'vllm:request_success_total{{model_name="m",finished_reason="stop"}} {value}\n'
        f'vllm:request_success_total{{model_name="m",finished_reason="abort"}} 2\n'
        f'vllm:kv_cache_usage_perc{{model_name="m"}} {value}\nvllm:gpu_cache_usage_perc{{model_name="m"}} 0.5\n'
    )
    assert parse_metrics(text.encode(), "vllm") == (
        EngineSample(model="m", engine_index="", kv_cache_usage_ratio=0.5, finished={"abort": 2.0}),
    )


def test_labels_may_have_every_character_and_lines_blanks_and_timestamps() -> None:
    text = (
        'vllm:prompt_tokens_total{engine="0", model_name="a\\"b\\\\c\\nd}e é"}   5.0  1767225600000\n'
        "\tvllm:num_requests_running\t3\n"
    )
    assert parse_metrics(text.encode(), "vllm") == (
        EngineSample(model="", engine_index="", requests_running=3.0),
        EngineSample(model='a"b\\c\nd}e é', engine_index="0", prompt_tokens=5.0),
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b'python_gc_objects_collected_total{generation="0"} 1.0\nprocess_open_fds 9.0\n',
        b'http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 17.0\n',  # --disable-log-stats
        b'vllm:cache_config_info{block_size="16"} 1.0\n',
        b"vllm:generation_tokens_totally 1.0\n# vllm:generation_tokens_total 1.0\n",
        b"<!doctype html><title>vllm:</title>\n",
    ],
)
def test_a_body_without_the_engines_series_has_no_metrics(text: bytes) -> None:
    assert cause_of(text) is Cause.NO_METRICS


@pytest.mark.parametrize(
    "text",
    [
        b'vllm:generation_tokens_total{model_name="m"} 12',  # and more was to come
        b'vllm:generation_tokens_total{model_name="m"} twelve\n',
        b'vllm:generation_tokens_total{model_name="m} 12\n',
        b"vllm:generation_tokens_total{model_name 12\n",
        b"vllm:generation_tokens_total \n",
        b"vllm:generation_tokens_total " + b"9" * 400 + b"\n",  # no float
        b"\xff\xfe\n",
        b"\x1f\x8b\x08\x00\n",  # gzip
    ],
)
def test_a_body_that_cannot_be_read_is_malformed(text: bytes) -> None:
    assert cause_of(text) is Cause.MALFORMED
