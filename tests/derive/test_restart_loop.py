"""Units in a restart loop, as LlmhostRestartLoop defines it: between two deaths, and not once they are well again."""

from dataclasses import replace

import pytest
from tests.fakes.values import GIB, ended, snapshot, started, unit

from llmhost.derive.restart_loop import RestartLoop, restart_loop, restarts_short_of_memory
from llmhost.model.engine import EngineAnswer, EngineSample, EnginesReport
from llmhost.model.history.unit_history import Short, Start, Trigger, UnitHistory
from llmhost.model.ids import GpuUuid, UnitId
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.unit import UnitSettings

NOW = 1_767_225_600.0
AUTO, MANUAL = Trigger.AUTO, Trigger.MANUAL
VLLM = UnitId("vllm.service")
UNASKED: Reading[EnginesReport] = NotApplicable("disabled")


def run(
    ago: float, took: float | None, trigger: Trigger | None = AUTO, result: str = "exit-code", **given: object
) -> Start:
    """Make a run that began so long ago and ended after `took`, or goes on."""
    end = None if took is None else replace(ended(result, took, asked=False), at=NOW - ago + took)
    start = started(f"{ago}", trigger=trigger, at=NOW - ago, end=end)
    return replace(start, **given)  # type: ignore[arg-type]


def answers(cause: Cause | None) -> Ok[EnginesReport]:
    sample = (EngineSample(model="m", engine_index="0"),)
    samples: Reading[tuple[EngineSample, ...]] = Ok(sample) if cause is None else Failed(cause)
    return Ok(EnginesReport(answers=(EngineAnswer(unit=VLLM, engine="vllm", endpoint="http://h:1", samples=samples),)))


def loop_of(
    *starts: Start, engines: Reading[EnginesReport] = UNASKED, shown: str = "", nrestarts: int = 0
) -> RestartLoop | None:
    """Judge a unit that shows the last of these runs, or another one that began 13 s ago."""
    latest = starts[-1]
    up = latest.end is None or bool(shown)
    given = unit(
        active="active" if up else "activating",
        sub="running" if up else "auto-restart",
        invocation_id=shown or latest.invocation_id,
        nrestarts=nrestarts,
        condition_monotonic=987.0,
        settings=UnitSettings(service_type="simple"),
    )
    history = UnitHistory(last_seen_at=NOW, invocation_id=latest.invocation_id, starts=starts)
    at = snapshot()
    return restart_loop(given, history, "vllm", engines, at=at.at, at_monotonic=at.at_monotonic)


SIX_DEATHS = (run(180, 20, MANUAL), *(run(ago, 20) for ago in (150, 120, 90, 60, 30)))


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (run(13, None), (7, 180.0, 6, 6, "exit-code", 20.0)),  # it is up
        (run(13, 3, result="signal"), (7, 180.0, 7, 7, "signal", 3.0)),  # it waits
        (run(13, 3, result="success"), (7, 180.0, 7, 6, "success", 3.0)),
    ],
)
def test_a_unit_loops_while_it_waits_and_while_it_is_up(last: Start, told: tuple[object, ...]) -> None:
    found = loop_of(*SIX_DEATHS, last)
    assert found is not None
    assert (found.starts, found.seconds, found.ended, found.failed, found.last_result, found.last_seconds) == told


def test_a_run_that_the_history_does_not_have_yet_is_one_of_the_loop() -> None:
    found = loop_of(*SIX_DEATHS, shown="another", nrestarts=6)
    assert found is not None
    assert (found.starts, found.ended, found.last_seconds) == (7, 6, 20.0)
    # the second restart makes it a loop; a start by hand, which sets NRestarts= back, is none
    first = (run(60, 20, MANUAL), run(30, 10))
    assert loop_of(*first, shown="another", nrestarts=2) is not None
    assert loop_of(*first, shown="another", nrestarts=0) is None


@pytest.mark.parametrize(
    "starts",
    [
        (run(60, 20, MANUAL), run(30, None)),  # one restart
        (run(60, 20, MANUAL), run(50, 10, MANUAL), run(30, 10, MANUAL), run(10, None, MANUAL)),  # by hand
        (run(3640, 10), run(3601, 20), run(30, None)),  # two restarts, not within an hour
        (run(90, 20), run(60, 20, end=ended("success", 20.0, asked=True)), run(30, None, MANUAL)),  # stopped on purpose
    ],
)
def test_a_single_restart_or_starts_by_hand_are_no_loop(starts: tuple[Start, ...]) -> None:
    assert loop_of(*starts) is None


@pytest.mark.parametrize(
    ("ago", "engines", "loops"),
    [
        (899.0, answers(None), True),
        (900.0, answers(None), False),  # it answers, a quarter of an hour after its start
        (1600.0, answers(Cause.STARTING), True),
        (1600.0, answers(Cause.TIMEOUT), True),
        (1499.0, answers(Cause.UNAUTHORIZED), True),  # it cannot be asked
        (1500.0, answers(Cause.UNAUTHORIZED), False),
        (1499.0, UNASKED, True),
        (1500.0, UNASKED, False),
    ],
)
def test_a_loop_is_over_once_the_unit_is_well(ago: float, engines: Reading[EnginesReport], *, loops: bool) -> None:
    found = loop_of(run(ago + 60, 20), run(ago + 30, 20), run(ago, None), engines=engines)
    assert (found is not None) is loops


def test_a_unit_that_dies_again_within_the_hour_loops_and_one_that_was_well_for_its_last_runs_does_not() -> None:
    served = run(2000, 1900, ready_seconds=60.0)
    found = loop_of(run(2200, 20), run(2100, 20), served, run(90, None))
    assert found is not None
    assert (found.starts, found.ended) == (4, 3)  # of the hour, as only one run has begun since it was well
    assert loop_of(run(2200, 20), run(2100, 20), replace(served, end=None), engines=answers(None)) is None
    # 25 minutes without an answer are no good run of an engine that is asked
    never = run(1700, 1600)
    assert loop_of(run(3000, 1200), never, run(90, None), engines=answers(Cause.STARTING)) is not None


@pytest.mark.parametrize(
    ("started_by", "result", "loops"),
    [
        ("holder.target", "success", True),  # Upholds=: it ended unexpectedly
        ("nightly.timer", "success", False),
        ("nightly.timer", "exit-code", True),
    ],
)
def test_starts_that_another_unit_makes_are_a_loop_where_runs_go_wrong(
    started_by: str, result: str, *, loops: bool
) -> None:
    runs = (run(ago, 20, Trigger.UNIT, result, started_by=started_by) for ago in (90, 60, 30))
    assert (loop_of(*runs) is not None) is loops


def test_without_a_history_no_loop_is_claimed() -> None:
    assert restart_loop(unit(nrestarts=9), None, "vllm", UNASKED, at=NOW, at_monotonic=1000.0) is None


def with_short(start: Start, *missing_gib: int) -> Start:
    gpus = enumerate(missing_gib)
    short = tuple(Short(uuid=GpuUuid(f"GPU-{at}"), gpu=f"{at}", short_bytes=gib * GIB) for at, gib in gpus)
    return replace(start, short=short)


FIRST = with_short(run(400, 30, MANUAL), 0)  # had enough, and died of whatever it was
LACKED, ENOUGH = with_short(run(300, 9), 0, 70), with_short(run(200, 24), 0, 0)


@pytest.mark.parametrize(
    ("starts", "answer"),
    [
        ((FIRST,), None),  # no restart yet
        ((FIRST, with_short(run(300, None), 0, 70)), None),  # it is up
        ((FIRST, LACKED), True),
        ((FIRST, LACKED, with_short(run(200, None), 0, 0)), True),  # memory is back, and it loads
        ((FIRST, LACKED, ENOUGH), False),
        ((FIRST, ENOUGH, LACKED, LACKED), False),
        ((FIRST, with_short(run(300, 9, result="success"), 70)), None),
        ((FIRST, run(300, 9), LACKED), True),  # of one it is not known
        ((FIRST, run(300, 9)), None),
        ((ENOUGH, with_short(run(5000, 4000, ready_seconds=60.0), 0), LACKED), True),  # it was well in between
        ((ENOUGH, run(300, 20, end=ended("exit-code", 20.0, asked=True)), run(250, 20, MANUAL), LACKED), True),
    ],
)
def test_memory_explains_restarts_only_where_each_that_failed_lacked_some(
    starts: tuple[Start, ...], *, answer: bool | None
) -> None:
    assert restarts_short_of_memory(UnitHistory(last_seen_at=NOW, starts=starts), "vllm", answers(None)) is answer
    assert restarts_short_of_memory(None, "vllm", UNASKED) is None
