"""Ready times, worked out by hand: a unit that starts, loads, answers, and starts again."""

from tests.fakes.observed import observed
from tests.fakes.values import snapshot, unit

from llmhost.config.schema import Policy
from llmhost.derive.history.readiness import ready_budget_seconds
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


def taken(at: float, unit: Unit, *answers: EngineAnswer) -> Snapshot:
    return snapshot(units=[unit], engines=Ok(EnginesReport(answers=answers)), at_monotonic=at)


def after(*snapshots: Snapshot) -> Readiness:
    return observed(*snapshots).readiness[ME]


def test_an_observed_start_is_timed_from_the_units_start_to_the_first_answer() -> None:
    first = started("a", 100.0)
    found = after(
        taken(105, first, LOADING), taken(120, first, LOADING), taken(135, first, SERVING), taken(150, first, SERVING)
    )
    assert found.seconds == {HERE: 35.0}
    assert found.past_seconds == (35.0,)


def test_a_start_before_the_first_observation_is_not_timed() -> None:
    found = after(taken(500, started("a", 100.0), SERVING))
    assert found.seconds == {HERE: None}
    assert found.past_seconds == ()
    assert ready_budget_seconds(found, Policy()) == 1800


def test_each_activation_is_timed_anew_and_the_longest_of_the_last_ten_makes_the_budget() -> None:
    snapshots = []
    for number, took in enumerate([900.0, 700.0, *[10.0] * 9]):
        run = started(str(number), 10_000.0 * number)
        snapshots += [taken(10_000.0 * number + 1, run, LOADING), taken(10_000.0 * number + took, run, SERVING)]
    found = after(*snapshots)
    assert found.seconds == {HERE: 10.0}
    assert found.past_seconds == (700.0, *[10.0] * 9)
    assert ready_budget_seconds(found, Policy()) == 2100
    assert ready_budget_seconds(None, Policy(ready_seconds=60)) == 60


def test_an_engine_that_stops_answering_keeps_its_time_and_a_unit_that_is_down_its_past() -> None:
    run = started("a", 100.0)
    hung = EngineAnswer(unit=ME, engine="vllm", endpoint=HERE, samples=Failed(Cause.TIMEOUT))
    down = unit(active="failed", sub="failed", invocation_id="a")
    found = after(taken(101, run, LOADING), taken(110, run, SERVING), taken(125, run, hung), taken(140, down))
    assert found.seconds == {HERE: 10.0}
    assert found.past_seconds == (10.0,)


def test_an_observation_without_engines_changes_nothing_and_an_unloaded_unit_keeps_its_past() -> None:
    run = started("a", 100.0)
    blind = snapshot(units=[run], engines=Failed(Cause.UNKNOWN), at_monotonic=106.0)
    assert after(taken(105, run, LOADING), blind, taken(120, run, SERVING)).seconds == {HERE: 20.0}
    unloaded = snapshot(units=[], engines=Ok(EnginesReport(answers=())), at_monotonic=130.0)
    assert after(taken(105, run, LOADING), taken(120, run, SERVING), unloaded).past_seconds == (20.0,)
    again = started("b", 200.0)
    assert after(
        taken(105, run, LOADING),
        taken(120, run, SERVING),
        unloaded,
        taken(201, again, LOADING),
        taken(230, again, SERVING),
    ).past_seconds == (20.0, 30.0)
    # a unit that was never timed is dropped
    assert observed(taken(105, run, LOADING), unloaded).readiness == {}


def test_the_past_of_at_most_a_thousand_units_is_kept_and_that_of_those_that_are_there() -> None:
    past = Readiness(invocation_id="", start_seen=True, past_seconds=(5.0,))
    before = {UnitId(f"run-{number}.service"): past for number in range(1000)}
    kept = observed(taken(105, started("a", 100.0), LOADING), history=History(readiness=before)).readiness
    assert len(kept) == 1000
    assert ME in kept
    assert UnitId("run-0.service") not in kept
    assert UnitId("run-1.service") in kept
