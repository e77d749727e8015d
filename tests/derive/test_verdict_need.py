"""Starts beside sessions and containers, of units with unknown requirements."""

import pytest
from tests.fakes.judging import MAIN, NOTEBOOK, SERVICE, in_use, judged, outcome, starting
from tests.fakes.values import GIB, MIB, held, process

from llmhost.model.history.unit_history import Verdict
from llmhost.model.process import Home, Placement
from llmhost.model.reading import Failed, Ok


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
