"""Units that systemd has given up at their start limit, which Result= does not say: a burst of 5 in two hours."""

from dataclasses import replace

import pytest
from tests.fakes.values import ended, started, unit

from llmhost.derive.start_limit_hit import StartLimitHit, start_limit_hit
from llmhost.model.history.unit_history import Start, UnitHistory
from llmhost.model.reading import Failed, Ok, Reading
from llmhost.model.unit import Unit, UnitSettings

LIMIT = UnitSettings(
    restart="on-failure", restart_delay_seconds=10.0, start_limit_burst=5, start_limit_interval_seconds=7200.0
)
FAILED = unit(active="failed", sub="failed", result="exit-code", nrestarts=5, invocation_id="5", settings=LIMIT)


def runs(*began: float, asked: bool | None = False, result: str = "exit-code") -> tuple[Start, ...]:
    return tuple(
        started(f"{number}", began_monotonic=at, end=ended(result, 20.0, asked=asked))
        for number, at in enumerate(began, start=1)
    )


def hit(given: Unit, starts: tuple[Start, ...] | None, now: float = 1000.0) -> Reading[StartLimitHit | None]:
    known = None if starts is None else UnitHistory(last_seen_at=0.0, invocation_id="5", starts=starts)
    return start_limit_hit(given, known, now)


FIVE = runs(100.0, 200.0, 300.0, 400.0, 580.0)
HIT = StartLimitHit(burst=5, interval_seconds=7200.0, took_seconds=480.0, refuses=True)


def test_five_failed_starts_within_the_interval_are_a_limit_that_was_hit() -> None:
    assert hit(FAILED, FIVE) == Ok(HIT)
    assert hit(FAILED, runs(50.0, 100.0, 200.0, 300.0, 400.0, 580.0)[1:]) == Ok(HIT)
    # systemd takes a start again once the interval is over that began with the first of the five
    assert hit(FAILED, FIVE, now=7300.0) == Ok(HIT)
    assert hit(FAILED, FIVE, now=7300.1) == Ok(replace(HIT, refuses=False))


@pytest.mark.parametrize(
    ("given", "starts"),
    [
        (FAILED, FIVE[1:]),  # four
        (FAILED, runs(100.0, 200.0, 300.0, 400.0, 7301.0)),  # too far apart
        (FAILED, FIVE[:4] + runs(*[0.0] * 4, 580.0, asked=True)[4:]),  # stopped, and failed as it ended
        (replace(FAILED, active_state="inactive", sub_state="dead"), FIVE),
        (replace(FAILED, active_state="activating", sub_state="auto-restart"), FIVE),
        (replace(FAILED, sub_state="failed-before-auto-restart"), FIVE),  # systemd 254 and later
        (replace(FAILED, job=7), FIVE),  # a start is on its way
        (replace(FAILED, settings=replace(LIMIT, restart="no")), FIVE),
        (replace(FAILED, settings=replace(LIMIT, restart="on-abnormal")), FIVE),  # which exit-code is not
        (replace(FAILED, settings=replace(LIMIT, start_limit_interval_seconds=0.0)), FIVE),  # no limit
        (replace(FAILED, settings=replace(LIMIT, start_limit_burst=0)), FIVE),
        # the fifth ran for hours, and then ended in a way that RestartPreventExitStatus= names
        (replace(FAILED, state_change_monotonic=7300.1), FIVE),
        (FAILED, None),
    ],
)
def test_other_failures_are_none(given: Unit, starts: tuple[Start, ...] | None) -> None:
    assert hit(given, starts) == Ok(None)


def test_starts_of_an_earlier_boot_do_not_count() -> None:
    assert hit(FAILED, runs(90_000.0, 200.0, 300.0, 400.0, 580.0)) == Ok(None)


def test_an_infinite_interval_refuses_for_ever() -> None:
    forever = replace(FAILED, settings=replace(LIMIT, start_limit_interval_seconds=None))
    assert hit(forever, FIVE, now=1e7) == Ok(replace(HIT, interval_seconds=None))


def test_without_the_starts_systemd_s_own_times_tell() -> None:
    # it went to auto-restart at 600 s, after its main process had exited, and no other main process came
    refused = replace(
        FAILED, exec_main_exit_monotonic=590.0, inactive_exit_monotonic=600.0, state_change_monotonic=610.0
    )
    unseen = replace(HIT, took_seconds=None)
    assert hit(refused, None) == Ok(unseen)
    assert hit(refused, runs(580.0)) == Ok(unseen)
    assert hit(refused, None, now=7810.0) == Ok(unseen)
    assert hit(refused, None, now=7810.1) == Ok(replace(unseen, refuses=False))
    assert hit(replace(refused, exec_main_exit_monotonic=605.0), None) == Ok(None)


def test_systemd_s_own_word_is_taken() -> None:
    """After runs that ended with success, Result= is start-limit-hit (src/core/service.c)."""
    said = replace(FAILED, result="start-limit-hit", settings=replace(LIMIT, restart="always"))
    assert hit(said, runs(100.0, 200.0, 300.0, 400.0, 580.0, result="success")) == Ok(HIT)
    assert hit(said, None) == Ok(replace(HIT, took_seconds=None))


def test_a_unit_whose_settings_are_not_known_leaves_it_unknown() -> None:
    assert isinstance(hit(replace(FAILED, settings=None), FIVE), Failed)
    assert isinstance(hit(replace(FAILED, settings=UnitSettings(restart="always")), FIVE), Failed)
