"""How long a unit's engine took from the unit's start to its first answer, and how long it may take the next time."""

from collections.abc import Mapping

from llmhost.config.schema import Policy
from llmhost.derive.activation import activation_began, is_up
from llmhost.model.engine import EngineAnswer
from llmhost.model.history.bounds import MAX_UNITS, newest
from llmhost.model.history.history import Readiness
from llmhost.model.ids import UnitId
from llmhost.model.reading import Ok
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit

_REMEMBERED = 10  # starts
_TIMES_THE_LONGEST = 3


def advance_readiness(before: Mapping[UnitId, Readiness], snapshot: Snapshot) -> Mapping[UnitId, Readiness]:
    """Take in one look; one without units or engines changes nothing.

    Of units that are gone, those are remembered that were timed: a transient one comes back by its name.
    A first answer is noticed by the look after it, so the time is too long by up to a scrape interval.
    """
    if not isinstance(snapshot.units, Ok) or not isinstance(snapshot.engines, Ok):
        return before
    answers = snapshot.engines.value.answers
    found = {
        unit.id: _advanced(before.get(unit.id), unit, answers, snapshot.at_monotonic)
        for unit in snapshot.units.value.units
    }
    gone = {unit: readiness for unit, readiness in before.items() if unit not in found and readiness.past_seconds}
    return newest(gone | {unit: readiness for unit, readiness in found.items() if readiness is not None}, MAX_UNITS)


def _advanced(
    before: Readiness | None, unit: Unit, answers: tuple[EngineAnswer, ...], at_monotonic: float
) -> Readiness | None:
    if not is_up(unit) or not unit.invocation_id:
        return before
    answered = [answer.endpoint for answer in answers if answer.unit == unit.id and isinstance(answer.samples, Ok)]
    past = before.past_seconds if before is not None else ()
    if before is None or before.invocation_id != unit.invocation_id:
        before = Readiness(invocation_id=unit.invocation_id, start_seen=not answered, past_seconds=past)
    began = activation_began(unit)
    seconds = dict(before.seconds)
    for endpoint in answered:
        if endpoint not in seconds:
            took = at_monotonic - began if before.start_seen and began is not None else None
            if took is not None and not seconds:
                past = (*past, took)[-_REMEMBERED:]
            seconds[endpoint] = took
    return Readiness(
        invocation_id=before.invocation_id, start_seen=before.start_seen, seconds=seconds, past_seconds=past
    )


def has_answered(readiness: Readiness | None, unit: Unit) -> bool:
    """Say whether the unit's engine has answered in its present activation."""
    return readiness is not None and readiness.invocation_id == unit.invocation_id and bool(readiness.seconds)


def first_answer_seconds(readiness: Readiness | None, invocation_id: str) -> float | None:
    """How long that activation took to its first answer; None where that was not seen, or not timed."""
    if readiness is None or readiness.invocation_id != invocation_id:
        return None
    return min((seconds for seconds in readiness.seconds.values() if seconds is not None), default=None)


def ready_budget_seconds(readiness: Readiness | None, policy: Policy) -> float:
    """Say how long a start may take: 3 × the longest of the last ten, and never less than policy.ready."""
    past = readiness.past_seconds if readiness is not None else ()
    return max(policy.ready_seconds, _TIMES_THE_LONGEST * max(past, default=0.0))
