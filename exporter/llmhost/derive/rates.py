"""Tokens per second of each engine server, from two snapshots."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from llmhost.model.engine import EngineAnswer, EngineSample
from llmhost.model.ids import UnitId
from llmhost.model.reading import Ok
from llmhost.model.snapshot import Snapshot

Endpoint = tuple[UnitId, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Of all engines of one server together; None where one of the snapshots does not have it."""

    generation_tokens: float | None  # per second
    prompt_tokens: float | None


def rates(before: Snapshot, after: Snapshot) -> Mapping[Endpoint, Rate]:
    """Work out the rates of each server that answered both times.

    An engine that has reset its counters meanwhile, or was not there before, makes its server's rate unknown.
    """
    seconds = after.at_monotonic - before.at_monotonic
    earlier, later = _answers(before), _answers(after)
    if seconds <= 0:
        return {}
    return {
        endpoint: Rate(
            generation_tokens=_per_second(earlier[endpoint], now, seconds, lambda sample: sample.generation_tokens),
            prompt_tokens=_per_second(earlier[endpoint], now, seconds, lambda sample: sample.prompt_tokens),
        )
        for endpoint, now in later.items()
        if endpoint in earlier
    }


def _answers(snapshot: Snapshot) -> Mapping[Endpoint, tuple[EngineSample, ...]]:
    answers: tuple[EngineAnswer, ...] = snapshot.engines.value.answers if isinstance(snapshot.engines, Ok) else ()
    return {
        (answer.unit, answer.endpoint): answer.samples.value for answer in answers if isinstance(answer.samples, Ok)
    }


def _per_second(
    before: tuple[EngineSample, ...],
    after: tuple[EngineSample, ...],
    seconds: float,
    counter: Callable[[EngineSample], float | None],
) -> float | None:
    first = {(sample.model, sample.engine_index): counter(sample) for sample in before}
    total = 0.0
    for sample in after:
        then, now = first.get((sample.model, sample.engine_index)), counter(sample)
        if then is None or now is None or not 0 <= now - then < math.inf:  # nor NaN
            return None
        total += now - then
    return total / seconds if after else None
