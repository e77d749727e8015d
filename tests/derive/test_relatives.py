"""Relatives by their states: the one with which a run ends, and the one for which it begins."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.values import unit

from llmhost.derive.relatives import ended_with, started_by
from llmhost.model.unit import Relative


def other(relation: str, active: str = "active", sub: str = "active", **given: Any) -> Relative:  # noqa: ANN401
    return Relative(name="o", relation=relation, active_state=active, sub_state=sub, **given)


DEAD = other("BindsTo", "failed", "failed", asked_to_end=False, state_change_monotonic=50.0)


@pytest.mark.parametrize(
    ("relative", "by_it"),
    [
        (DEAD, True),
        (replace(DEAD, active_state="inactive"), True),
        (replace(DEAD, active_state="deactivating"), True),  # its ExecStopPost= runs
        (replace(DEAD, asked_to_end=True), False),  # a person stopped it
        (replace(DEAD, asked_to_end=None), False),  # nobody saw how it went down
        (replace(DEAD, state_change_monotonic=9.0), False),  # before this run
        (replace(DEAD, relation="Requires"), False),  # which stops nothing when the other one dies
        (replace(DEAD, relation="PartOf", sub_state="auto-restart", job=5), True),  # its restart restarts both
        (replace(DEAD, relation="Requires", active_state="activating", sub_state="auto-restart-queued", job=5), True),
        (replace(DEAD, relation="Requires", active_state="activating", sub_state="auto-restart"), False),
        (replace(DEAD, relation="PartOf", active_state="inactive", job=5), True),
        (other("BindsTo"), False),
    ],
)
def test_a_run_ends_with_another_unit_that_went_down_by_itself(relative: Relative, by_it: bool) -> None:
    assert ended_with(replace(unit(), relatives=(other("WantedBy"), relative)), 10.0) == ("o" if by_it else "")


@pytest.mark.parametrize(
    ("relative", "by_it"),
    [
        (other("UpheldBy", active_enter_monotonic=50.0), True),
        (other("UpheldBy", active_enter_monotonic=150.0), False),  # started since the end, and this one with it
        (other("UpheldBy", "inactive", active_enter_monotonic=50.0), False),
        (other("TriggeredBy", sub="running", state_change_monotonic=150.0), True),
        (other("TriggeredBy", sub="running", state_change_monotonic=50.0), False),  # for the run before
        (other("TriggeredBy", sub="running", state_change_monotonic=201.0), False),  # as this one came up
        (other("TriggeredBy", sub="waiting", state_change_monotonic=150.0), False),
        (other("OnFailureOf", "failed", "failed", inactive_enter_monotonic=150.0), True),
        (other("OnFailureOf", "failed", "failed", inactive_enter_monotonic=50.0), False),
        (other("OnFailureOf", "inactive", "dead", inactive_enter_monotonic=150.0), False),  # it has ended well
        (other("OnSuccessOf", "inactive", "dead", inactive_enter_monotonic=150.0), True),
        (other("OnSuccessOf", "failed", "failed", inactive_enter_monotonic=150.0), False),
        (other("OnSuccessOf", inactive_enter_monotonic=None), False),
        (other("WantedBy", "activating", "auto-restart", job=5), True),
        (other("RequiredBy", "activating", "auto-restart-queued", job=5), True),
        (other("WantedBy", "activating", "auto-restart"), False),  # it waits still
        (other("WantedBy", active_enter_monotonic=50.0), False),
        (other("PartOf", "activating", "auto-restart", job=5), False),
    ],
)
def test_a_start_is_made_for_another_unit_that_asks_for_it_between_end_and_start(
    relative: Relative, by_it: bool
) -> None:
    found = replace(unit(), relatives=(relative,))
    assert started_by(found, after_monotonic=100.0, by_monotonic=200.0) == ("o" if by_it else "")
