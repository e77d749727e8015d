"""Tokens per second, from two observations of an engine's counters."""

import math

import pytest
from tests.fakes.values import snapshot

from llmhost.derive.rates import Rate, rates
from llmhost.model.engine import EngineAnswer, EngineSample, EnginesReport
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.snapshot import Snapshot

VLLM = UnitId("vllm.service")
AT = (VLLM, "http://h:1")


def observed(at: float, *counters: float | None) -> Snapshot:
    """See engines 0, 1, … of one server with these counts of generated tokens."""
    samples = tuple(
        EngineSample(model="m", engine_index=str(index), generation_tokens=tokens, prompt_tokens=1000.0)
        for index, tokens in enumerate(counters)
    )
    answer = EngineAnswer(unit=VLLM, engine="vllm", endpoint=AT[1], samples=Ok(samples))
    return snapshot(engines=Ok(EnginesReport(answers=(answer,))), at_monotonic=at)


def test_engines_of_one_server_add_up() -> None:
    assert rates(observed(100.0, 5000.0, 7000.0), observed(102.0, 5150.0, 7050.0)) == {
        AT: Rate(generation_tokens=100.0, prompt_tokens=0.0)
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((5000.0,), (4.0,)),  # it has begun anew
        ((5000.0,), (5010.0, 7000.0)),  # one was not there before
        ((None,), (5000.0,)),
        ((5000.0,), (None,)),
        ((5000.0,), (math.nan,)),
        ((5000.0,), (math.inf,)),
        ((), ()),
    ],
)
def test_what_two_observations_do_not_give_is_unknown(
    before: tuple[float | None, ...], after: tuple[float | None, ...]
) -> None:
    assert rates(observed(100.0, *before), observed(102.0, *after))[AT].generation_tokens is None


def test_a_server_that_answered_once_alone_has_no_rate() -> None:
    refused = EngineAnswer(unit=VLLM, engine="vllm", endpoint=AT[1], samples=Failed(Cause.REFUSED))
    silent = snapshot(engines=Ok(EnginesReport(answers=(refused,))), at_monotonic=100.0)
    assert rates(silent, observed(102.0, 5000.0)) == {}
    assert rates(observed(100.0, 5000.0), snapshot(engines=Failed(Cause.TIMEOUT), at_monotonic=102.0)) == {}
    assert rates(observed(100.0, 5000.0), observed(100.0, 5000.0)) == {}
