"""Ready times by hand: looks at a unit that starts, loads, answers, and starts again."""

from tests.fakes.values import snapshot, unit

from llmhost.config.schema import Policy
from llmhost.derive.history.observations import with_observation
from llmhost.derive.readiness import ready_budget_seconds
from llmhost.model.engine import EngineAnswer, EngineSample, EnginesReport
from llmhost.model.history.history import History, Readiness
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit

ME = UnitId("vllm.service")
HERE = "http://127.0.0.1:8000"
LOADING = EngineAnswer(unit=ME, engine="vllm", endpoint=HERE, samples=Failed(Cause.STARTING))
SERVING = EngineAnswer(unit=ME, engine="vllm", endpoint=HERE, samples=Ok((EngineSample(model="m", engine_index="0"),)))


def started(invocation: str, began: float) -> Unit:
    return unit(invocation_id=invocation, condition_monotonic=began, inactive_exit_monotonic=began)


def look(at: float, one: Unit, *answers: EngineAnswer) -> Snapshot:
    return snapshot(units=[one], engines=Ok(EnginesReport(answers=answers)), at_monotonic=at)


def after(*looks: Snapshot) -> Readiness:
    history = History()
    for one in looks:
        history = with_observation(history, one, Policy())
    return history.readiness[ME]


def test_a_start_that_was_seen_is_timed_from_the_units_start_to_the_look_that_found_an_answer() -> None:
    first = started("a", 100.0)
    found = after(
        look(105, first, LOADING), look(120, first, LOADING), look(135, first, SERVING), look(150, first, SERVING)
    )
    assert found.seconds == {HERE: 35.0}
    assert found.past_seconds == (35.0,)


def test_a_start_that_was_over_when_we_came_is_not() -> None:
    found = after(look(500, started("a", 100.0), SERVING))
    assert found.seconds == {HERE: None}
    assert found.past_seconds == ()
    assert ready_budget_seconds(found, Policy()) == 1800


def test_each_activation_is_timed_anew_and_the_longest_of_the_last_ten_makes_the_budget() -> None:
    looks = []
    for number, took in enumerate([900.0, 700.0, *[10.0] * 9]):
        one = started(str(number), 10_000.0 * number)
        looks += [look(10_000.0 * number + 1, one, LOADING), look(10_000.0 * number + took, one, SERVING)]
    found = after(*looks)
    assert found.seconds == {HERE: 10.0}
    assert found.past_seconds == (700.0, *[10.0] * 9)
    assert ready_budget_seconds(found, Policy()) == 2100
    assert ready_budget_seconds(None, Policy(ready_seconds=60)) == 60


def test_an_engine_that_stops_answering_keeps_its_time_and_a_unit_that_is_down_its_past() -> None:
    one = started("a", 100.0)
    hung = EngineAnswer(unit=ME, engine="vllm", endpoint=HERE, samples=Failed(Cause.TIMEOUT))
    down = unit(active="failed", sub="failed", invocation_id="a")
    found = after(look(101, one, LOADING), look(110, one, SERVING), look(125, one, hung), look(140, down))
    assert found.seconds == {HERE: 10.0}
    assert found.past_seconds == (10.0,)


def test_a_look_without_engines_changes_nothing_and_of_a_unit_that_is_gone_its_past_stays() -> None:
    one = started("a", 100.0)
    blind = snapshot(units=[one], engines=Failed(Cause.UNKNOWN), at_monotonic=106.0)
    assert after(look(105, one, LOADING), blind, look(120, one, SERVING)).seconds == {HERE: 20.0}
    gone = snapshot(units=[], engines=Ok(EnginesReport(answers=())), at_monotonic=130.0)
    assert after(look(105, one, LOADING), look(120, one, SERVING), gone).past_seconds == (20.0,)
    again = started("b", 200.0)
    assert after(
        look(105, one, LOADING), look(120, one, SERVING), gone, look(201, again, LOADING), look(230, again, SERVING)
    ).past_seconds == (20.0, 30.0)
    # who was never timed is forgotten
    assert (
        with_observation(with_observation(History(), look(105, one, LOADING), Policy()), gone, Policy()).readiness == {}
    )


def test_the_past_of_at_most_a_thousand_units_is_remembered_and_that_of_those_that_are_there() -> None:
    past = Readiness(invocation_id="", start_seen=True, past_seconds=(5.0,))
    before = {UnitId(f"run-{number}.service"): past for number in range(1000)}
    kept = with_observation(History(readiness=before), look(105, started("a", 100.0), LOADING), Policy()).readiness
    assert len(kept) == 1000
    assert ME in kept
    assert UnitId("run-0.service") not in kept
    assert UnitId("run-1.service") in kept
