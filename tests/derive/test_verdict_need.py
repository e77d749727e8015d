"""Starts beside sessions and containers, of units with unknown requirements."""

import pytest
from tests.fakes.judging import MAIN, NOTEBOOK, SERVICE, in_use, judged, outcome, starting
from tests.fakes.values import GIB, MIB, held, in_service, process, unit

from llmhost.derive.verdict import Judgement
from llmhost.model.history.unit_history import Verdict
from llmhost.model.process import Home, Placement
from llmhost.model.reading import Failed, Ok, Reading


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("vllm serve m --gpu-memory-utilization ${SHARE}", "the engine's arguments say how much memory it takes by a"),
        ("python3 -m sglang.launch_server --model m", "the engine's arguments do not say"),
        ("/opt/run.sh", "no engine is known to run here"),
    ],
)
def test_where_it_is_not_known_what_is_needed_a_large_notebook_leaves_it_unknown(command: str, why: str) -> None:
    start = starting(command)
    result = judged([in_use(0, 70 * GIB, held(7, 70 * GIB, 2000))], [MAIN, NOTEBOOK], start)
    assert isinstance(result, Failed)
    assert result.detail.startswith(f"GPU 0: whether others leave the unit what it needs is not known: {why}")
    # one of no more than policy.resident is in nobody's way, and beside an old worker there is no doubt
    server = process(8, Placement(Home.SESSION), start=500, comm="Xorg")
    for notebook, certain in ((1000 * MIB, True), (1001 * MIB, False)):
        few = [in_use(0, GIB + notebook, held(7, notebook, 2000), held(8, GIB, 500))]
        assert isinstance(judged(few, [MAIN, NOTEBOOK, server], start), Ok) is certain
    worker = process(500, SERVICE, start=12000)
    both = [in_use(0, 70 * GIB, held(7, 60 * GIB, 2000), held(500, 10 * GIB, 12000))]
    assert outcome(judged(both, [MAIN, NOTEBOOK, worker], start)) == (
        Verdict.RESIDENT,
        [("0", "leftover", 10 * GIB), ("0", "session", 60 * GIB)],
    )


def test_the_container_of_the_run_before_leaves_it_unknown_where_the_units_gpus_are_not_known() -> None:
    leftover = process(500, Placement(Home.CONTAINER, None, "c0ffee"), start=12000)
    start = starting("docker run --rm --gpus device=${GPU} vllm/vllm-openai --model m")
    full = [in_use(0, 0), in_use(1, 70 * GIB, held(500, 70 * GIB, 12000))]
    assert isinstance(judged(full, [MAIN, leftover], start), Failed)
    assert outcome(judged([in_use(0, 0), in_use(1, 0)], [MAIN], start)) == (Verdict.CLEAN, [])


def short(reading: Reading[Judgement]) -> tuple[Verdict, dict[str, int]]:
    assert isinstance(reading, Ok), reading
    return reading.value.verdict, {each.gpu: each.short_bytes for each in reading.value.short}


@pytest.mark.parametrize(
    ("leftover_mib", "verdict", "missing_mib"),
    [
        (0, Verdict.CLEAN, 0),
        (1536, Verdict.RESIDENT, 0),  # in the way, and it leaves 79360 MiB of the 72806 needed
        (79 * 1024 - 72806, Verdict.RESIDENT, 0),  # just enough
        (79 * 1024 - 72806 + 1, Verdict.RESIDENT, 1),
        (70 * 1024, Verdict.RESIDENT, 72806 - 9 * 1024),
    ],
)
def test_beside_what_was_in_the_way_stands_how_much_less_was_free_than_it_needs(
    leftover_mib: int, verdict: Verdict, missing_mib: int
) -> None:
    """Of 80 GiB, 1 GiB is reserved; asked for is the share that makes 72806 of 80896 MiB."""
    start = starting(f"/usr/bin/vllm serve m --gpu-memory-utilization {72806 / 80896}")
    worker = process(500, SERVICE, start=12000)
    there = [MAIN, worker] if leftover_mib else [MAIN]
    holders = [held(500, leftover_mib * MIB, 12000)] if leftover_mib else []
    found, by_gpu = short(judged([in_use(0, leftover_mib * MIB, *holders)], there, start))
    assert found is verdict
    assert {gpu: round(size / MIB) for gpu, size in by_gpu.items()} == {"0": missing_mib}


def test_memory_is_short_whoever_holds_it_gpu_by_gpu() -> None:
    """A unit that is up is in nobody's way, and leaves too little all the same."""
    start = starting("/usr/bin/vllm serve m -tp 2 --gpu-memory-utilization 0.5")  # 39.5 GiB of 79
    tenant = process(50, in_service("other.service"), start=2000)
    other = unit("other.service", main_pid=50, invocation_id="o")
    gpus = [in_use(0, 0), in_use(1, 60 * GIB, held(50, 60 * GIB, 2000))]
    beside = judged(gpus, [MAIN, tenant], start, units=[other])
    assert short(beside) == (Verdict.CLEAN, {"0": 0, "1": GIB * 41 // 2})  # 39.5 − 19 GiB
    # what is free is what was free at the start
    assert short(judged(gpus, [MAIN, tenant], start, units=[other], used={0: 900 * MIB, 1: 0})) == (
        Verdict.CLEAN,
        {"0": 0, "1": 0},
    )


@pytest.mark.parametrize(
    "command", ["python3 -m sglang.launch_server --model m", "vllm serve m --gpu-memory-utilization ${SHARE}"]
)
def test_where_the_need_is_not_known_nothing_is_said_to_be_short(command: str) -> None:
    worker = process(500, SERVICE, start=12000)
    full = [in_use(0, 70 * GIB, held(500, 70 * GIB, 12000))]
    assert short(judged(full, [MAIN, worker], starting(command))) == (Verdict.RESIDENT, {})
