"""Meant to run, stopped on purpose, or nobody can tell."""

import pytest
from tests.fakes.values import unit

from llmhost.derive.wanted import wanted
from llmhost.model.reading import Failed, NotApplicable, Ok


@pytest.mark.parametrize(
    ("active", "sub", "file_state", "answer"),
    [
        ("active", "running", "disabled", True),
        ("activating", "auto-restart", "disabled", True),
        ("failed", "failed", "disabled", True),
        ("inactive", "dead", "disabled", False),
        ("inactive", "dead", "static", False),
        ("inactive", "dead", "", False),
        ("inactive", "dead", "enabled", True),  # not run since boot
    ],
)
def test_what_is_up_or_failing_or_enabled_is_wanted(active: str, sub: str, file_state: str, answer: bool) -> None:
    assert wanted(unit(active=active, sub=sub, unit_file_state=file_state), None) == Ok(answer)


def test_an_enabled_unit_that_ran_and_ended_well_may_have_been_stopped_or_have_died() -> None:
    ended = unit(active="inactive", sub="dead", unit_file_state="enabled", inactive_enter_monotonic=60.0)
    assert isinstance(wanted(ended, None), Failed)


def test_a_unit_that_does_not_exist_is_neither_wanted_nor_stopped() -> None:
    missing = unit(active="inactive", sub="dead", load_state="not-found", unit_file_state="")
    assert isinstance(wanted(missing, None), NotApplicable)
