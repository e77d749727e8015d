"""Start limits that can trip, and some that cannot: five starts in ten seconds, and others."""

from dataclasses import replace

import pytest
from tests.fakes.values import ended, started, unit

from llmhost.derive.start_limit import restart_delay_seconds, start_limit_can_trip
from llmhost.model.history.unit_history import Start, UnitHistory
from llmhost.model.reading import Failed, NotApplicable, Ok, Reading
from llmhost.model.unit import UnitSettings

LIMIT = UnitSettings(
    restart="on-failure", restart_delay_seconds=0.1, start_limit_burst=5, start_limit_interval_seconds=10.0
)


def of(settings: UnitSettings | None, *starts: Start) -> Reading[bool]:
    return start_limit_can_trip(unit(settings=settings), UnitHistory(last_seen_at=0.0, starts=starts))


def failed(seconds: float) -> Start:
    return started("a", end=ended("exit-code", seconds))


@pytest.mark.parametrize(
    ("seconds", "answer"),
    [
        (1.9, True),  # 5 × 2.0 s is not more than 10 s
        (1.91, False),
        (140.0, False),  # it loads for two minutes, and then fails
    ],
)
def test_it_is_given_up_on_if_so_many_runs_fit_into_the_interval(seconds: float, answer: bool) -> None:
    assert of(LIMIT, failed(seconds)) == Ok(answer)


def test_the_shortest_of_the_last_ten_runs_that_failed_counts() -> None:
    assert of(LIMIT, failed(300.0), failed(1.0), failed(200.0)) == Ok(True)
    assert of(LIMIT, failed(1.0), *[failed(200.0)] * 10) == Ok(False)
    # neither a run that was stopped, nor one of which nobody saw the end, nor one that is under way
    stopped = started("a", end=ended("exit-code", 1.0, asked=True))
    unseen = started("b", end=ended("", 1.0, asked=None))
    assert of(LIMIT, failed(200.0), stopped, unseen, started("c")) == Ok(False)
    succeeded = started("d", end=ended("success", 1.0))
    assert of(LIMIT, failed(200.0), succeeded) == Ok(False)


def test_which_ends_count_is_what_restart_is_about() -> None:
    succeeded = started("d", end=ended("success", 1.0))
    assert of(replace(LIMIT, restart="always"), failed(200.0), succeeded) == Ok(True)
    assert of(replace(LIMIT, restart="on-success"), failed(1.0), started("e", end=ended("success", 60.0))) == Ok(False)


@pytest.mark.parametrize(
    ("restart", "restarted"),
    [
        ("always", "success exit-code signal core-dump watchdog timeout oom-kill"),
        ("on-success", "success"),
        ("on-failure", "exit-code signal core-dump watchdog timeout oom-kill"),
        ("on-abnormal", "signal core-dump watchdog timeout oom-kill"),
        ("on-abort", "signal core-dump"),
        ("on-watchdog", "watchdog"),
    ],
)
def test_each_restart_is_about_the_ends_that_systemd_service_says(restart: str, restarted: str) -> None:
    """The table of systemd.service(5); an ExecCondition= that says no is no failure."""
    ends = ("success", "exit-code", "signal", "core-dump", "watchdog", "timeout", "oom-kill", "exec-condition")
    short = {end: of(replace(LIMIT, restart=restart), started("a", end=ended(end, 1.0))) for end in ends}
    assert [end for end in ends if short[end] == Ok(True)] == restarted.split()


def test_the_usual_delay_of_ten_seconds_never_trips_the_usual_limit_however_short_the_runs() -> None:
    assert of(replace(LIMIT, restart_delay_seconds=10.0)) == Ok(False)
    assert start_limit_can_trip(unit(settings=replace(LIMIT, restart_delay_seconds=10.0)), None) == Ok(False)
    assert of(replace(LIMIT, restart_delay_seconds=None), failed(1.0)) == Ok(False)  # infinite


def test_without_a_failed_run_it_is_not_known_where_it_depends_on_that() -> None:
    assert isinstance(of(LIMIT), Failed)
    assert isinstance(of(LIMIT, started("a")), Failed)


def test_a_limit_that_is_off_never_trips_and_one_without_end_always_does() -> None:
    assert of(replace(LIMIT, start_limit_burst=0), failed(0.1)) == Ok(False)
    assert of(replace(LIMIT, start_limit_interval_seconds=0.0), failed(0.1)) == Ok(False)
    assert of(replace(LIMIT, start_limit_interval_seconds=None), failed(900.0)) == Ok(True)


def test_what_is_not_restarted_or_not_loaded_gives_nothing_up() -> None:
    assert isinstance(of(replace(LIMIT, restart="no"), failed(1.0)), NotApplicable)
    assert isinstance(of(None), NotApplicable)
    assert isinstance(of(UnitSettings()), Failed)  # systemd did not say


STEPS = replace(LIMIT, restart_delay_seconds=1.0, restart_steps=4, restart_longest_delay_seconds=16.0)


@pytest.mark.parametrize(
    ("settings", "delays"),
    [
        (STEPS, [1.0, 2.0, 4.0, 8.0, 16.0, 16.0]),
        (replace(STEPS, restart_steps=0), [1.0] * 6),
        (replace(STEPS, restart_longest_delay_seconds=None), [1.0] * 6),  # infinity, and systemd takes neither
        (replace(STEPS, restart_longest_delay_seconds=0.5), [1.0] * 6),
        (replace(STEPS, restart_delay_seconds=0.0), [0.0] * 6),
        (replace(STEPS, restart_steps=1), [1.0, 16.0, 16.0, 16.0, 16.0, 16.0]),
    ],
)
def test_delays_grow_by_steps_up_to_the_longest(settings: UnitSettings, delays: list[float]) -> None:
    assert [restart_delay_seconds(settings, restart) for restart in range(1, 7)] == pytest.approx(delays)


@pytest.mark.parametrize(
    ("interval", "restarts", "seconds", "answer"),
    [
        (36.0, 0, 1.0, True),  # 1 + 2 + 4 + 8 + 16 s of delays, and five runs
        (35.9, 0, 1.0, False),
        (30.9, 0, 0.0, False),
        (45.0, 5, 1.0, False),  # the window has opened with the second start at the earliest: 2 + 4 + 8 + 16 + 16 s
        (51.0, 5, 1.0, True),
        (84.9, 40, 1.0, False),  # by now it waits 16 s each time
        (85.0, 40, 1.0, True),
    ],
)
def test_delays_that_grow_keep_starts_apart(interval: float, restarts: int, seconds: float, answer: bool) -> None:
    growing = unit(settings=replace(STEPS, start_limit_interval_seconds=interval), nrestarts=restarts)
    history = UnitHistory(last_seen_at=0.0, starts=(failed(seconds),))
    assert start_limit_can_trip(growing, history) == Ok(answer)
