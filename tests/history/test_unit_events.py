"""Unit events in the history. The sequences are those that systemd 252 sends, written down by hand."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.unit_lives import SIMPLE, Life, idle

from llmhost.derive.history.events import Ended, MainStarted, with_event
from llmhost.derive.history.resume import resumed
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import Trigger, UnitHistory, Verdict
from llmhost.model.ids import UnitId
from llmhost.model.unit import Relative, UnitSettings
from llmhost.model.unit_event import UnitEvent


def test_the_first_event_of_a_running_unit_counts_no_start_and_its_end_counts() -> None:
    life = Life(active_state="active", sub_state="running", invocation_id="a", main_pid=5, condition_monotonic=-9.0)
    assert life.attempts() == [("a", None, 1)]
    assert life.steps == []
    life.fails(3.0)
    assert life.counts() == {}
    assert life.now.failures_total == {"exit-code": 1}


def test_a_manual_start_is_one_start_and_is_to_be_judged_once() -> None:
    life = idle().begins(1.0, "a", 100)
    assert life.attempts() == [("a", Trigger.MANUAL, 1)]
    assert [type(step) for step in life.steps] == [MainStarted]
    assert life.steps[0].start.main_monotonic == 1.0
    assert life.now.last_start_at == 1001.0
    assert life.counts() == {}, "its verdict is not known yet"


def test_a_start_from_failed_is_not_ended_by_the_state_of_before() -> None:
    life = idle().begins(1.0, "a", 100).fails(2.0)
    life.tell(3.0, active_state="failed", sub_state="failed", state_change_monotonic=3.0)  # start limit, say
    life.begins(9.0, "b", 101)
    latest = life.now.latest
    assert latest is not None
    assert latest.invocation_id == "b"
    assert latest.end is None


def test_restarts_by_systemd_are_automatic_and_number_the_attempts() -> None:
    life = idle().begins(1.0, "a", 100)
    for number, at in enumerate((10.0, 20.0), start=1):
        life.fails(at).restart_due(at + 5).begins(at + 5.1, f"a{number}", 100 + number, job=8)
    assert life.attempts() == [("a", Trigger.MANUAL, 1), ("a1", Trigger.AUTO, 2), ("a2", Trigger.AUTO, 3)]
    assert [type(step) for step in life.steps] == [MainStarted, Ended, MainStarted, Ended, MainStarted]
    assert life.now.failures_total == {"exit-code": 2}


def test_a_planned_restart_is_manual_and_its_end_was_asked_for() -> None:
    life = idle().begins(1.0, "a", 100)
    life.tell(5.0, job=9)
    life.tell(5.1, active_state="deactivating", sub_state="stop-sigterm", state_change_monotonic=5.1)
    life.tell(6.0, active_state="inactive", sub_state="dead", main_pid=0, state_change_monotonic=6.0)
    life.begins(6.01, "b", 101, job=9)
    assert life.attempts() == [("a", Trigger.MANUAL, 1), ("b", Trigger.MANUAL, 1)]
    end = life.now.starts[0].end
    assert end is not None
    assert (end.result, end.asked, round(end.seconds, 3)) == ("success", True, 5.0)
    assert life.now.unexpected_stops_total == 0


@pytest.mark.parametrize(
    ("holder", "trigger", "started_by"),
    [
        ({"relation": "UpheldBy"}, Trigger.MANUAL, ""),
        # the holder has died, and its restart is one of this unit
        ({"relation": "Requires", "sub_state": "auto-restart", "job": 9, "asked_to_end": False}, Trigger.UNIT, "h"),
    ],
)
def test_the_start_of_a_restart_is_made_by_whoever_made_its_end(
    holder: dict[str, Any], trigger: Trigger, started_by: str
) -> None:
    known = {"name": "h", "active_state": "active", "sub_state": "active", "active_enter_monotonic": 0.5, **holder}
    life = idle().begins(1.0, "a", 100)
    life.tell(5.0, job=9, relatives=(Relative(**known),))
    life.tell(5.1, active_state="deactivating", sub_state="stop-sigterm", state_change_monotonic=5.1)
    life.tell(6.0, active_state="inactive", sub_state="dead", main_pid=0, inactive_enter_monotonic=6.0)
    life.begins(6.01, "b", 101, job=9)
    latest = life.now.latest
    assert latest is not None
    assert (latest.trigger, latest.started_by) == (trigger, started_by)


def test_a_restart_by_hand_while_it_waits_to_restart_is_manual() -> None:
    life = idle().begins(1.0, "a", 100).fails(2.0).restart_due(3.0).begins(3.1, "b", 101, job=8).fails(4.0)
    holder = Relative(name="h", relation="UpheldBy", active_state="active", sub_state="active")
    # systemctl restart: NRestarts stays. And what waits to restart is upheld by nothing.
    life.tell(4.5, job=11, relatives=(replace(holder, active_enter_monotonic=0.5),))
    life.begins(4.6, "c", 102, job=11)
    assert life.attempts()[-1] == ("c", Trigger.MANUAL, 1)


def test_a_restart_after_reset_failed_is_still_automatic() -> None:
    life = idle().begins(1.0, "a", 100)
    for number in range(3):
        life.fails(10.0 * number + 2).restart_due(10.0 * number + 3).begins(10.0 * number + 4, f"b{number}", 101, job=8)
    life.fails(40.0)
    life.unit = replace(life.unit, nrestarts=0)  # reset-failed tells nobody
    life.restart_due(41.0).begins(42.0, "c", 105, job=8)
    assert life.attempts()[-1] == ("c", Trigger.AUTO, 5)


def test_a_restart_after_reset_failed_is_automatic_also_where_the_count_is_the_same_again() -> None:
    life = idle().begins(1.0, "a", 100).fails(2.0).restart_due(3.0).begins(3.1, "b", 101, job=8).fails(4.0)
    assert life.unit.nrestarts == 1
    life.unit = replace(life.unit, nrestarts=0, result="success")  # reset-failed tells nobody
    life.restart_due(5.0, job=9).begins(5.1, "c", 102, job=9)
    assert life.attempts() == [("a", Trigger.MANUAL, 1), ("b", Trigger.AUTO, 2), ("c", Trigger.AUTO, 3)]


def test_a_restart_that_is_queued_already_as_reset_failed_comes_is_automatic() -> None:
    life = idle().begins(1.0, "a", 100).fails(2.0).restart_due(3.0, job=8)
    life.tell(3.001, nrestarts=0, result="success")
    life.begins(3.1, "b", 101, job=8)
    assert life.attempts() == [("a", Trigger.MANUAL, 1), ("b", Trigger.AUTO, 2)]
    life.tell(9.0, job=9)
    life.begins(9.1, "c", 102, job=9)
    assert life.attempts()[-1] == ("c", Trigger.MANUAL, 1)


def test_a_restart_that_was_cancelled_makes_no_later_start_automatic() -> None:
    life = idle().begins(1.0, "a", 100).fails(2.0).restart_due(3.0)
    life.tell(3.001, active_state="inactive", sub_state="dead", state_change_monotonic=3.001, job=12)  # the stop's job
    life.tell(3.002, job=0)
    assert life.now.stopped
    life.begins(60.0, "b", 101, job=13)
    assert life.attempts()[-1] == ("b", Trigger.MANUAL, 1)
    assert not life.now.stopped


def test_the_start_limit_ends_no_run_and_starts_none() -> None:
    life = idle().begins(1.0, "a", 100).fails(2.0).restart_due(3.0)
    life.tell(3.001, active_state="failed", sub_state="failed", state_change_monotonic=3.001)
    life.tell(3.002, job=0)
    assert len(life.now.starts) == 1
    assert life.now.failures_total == {"exit-code": 1}
    life.begins(90.0, "b", 101)
    assert life.attempts()[-1] == ("b", Trigger.MANUAL, 1)


def test_an_attempt_that_ends_before_its_main_process_is_not_started() -> None:
    life = idle().begins(1.0, "a")
    assert life.steps == []
    life.fails(35.0)
    assert life.counts() == {"manual not_started": 1}
    assert [type(step) for step in life.steps] == [Ended]
    assert life.now.starts[0].verdict is Verdict.NOT_STARTED
    assert life.now.failures_total == {"exit-code": 1}


def test_a_main_process_after_a_guard_is_when_the_start_is_judged() -> None:
    life = idle().begins(1.0, "a")
    life.tell(
        35.0,
        active_state="active",
        sub_state="running",
        main_pid=50,
        exec_main_start_monotonic=34.9,
        state_change_monotonic=35.0,
    )
    assert [step.start.main_monotonic for step in life.steps] == [34.9]


def test_a_run_that_ends_with_success_and_unasked_is_an_unexpected_stop() -> None:
    life = idle().begins(1.0, "a", 100)
    life.tell(9.0, active_state="inactive", sub_state="dead", main_pid=0, state_change_monotonic=9.0)
    assert life.now.unexpected_stops_total == 1
    assert not life.now.stopped
    assert life.now.failures_total == {}


def test_a_oneshot_that_ends_is_no_unexpected_stop() -> None:
    life = Life(nrestarts=0, settings=UnitSettings(service_type="oneshot"))
    life.tell(1.0, invocation_id="a", condition_monotonic=1.0, main_pid=9, exec_main_start_monotonic=1.0, job=3)
    life.tell(1.1, active_state="activating", sub_state="start", state_change_monotonic=1.1)
    life.tell(2.0, active_state="inactive", sub_state="dead", main_pid=0, state_change_monotonic=2.0)
    assert life.now.unexpected_stops_total == 0
    assert life.now.latest is not None
    assert life.now.latest.end is not None


def test_a_run_that_could_not_be_forked_ends_without_having_been_up() -> None:
    life = idle()
    life.tell(1.0, invocation_id="a", condition_monotonic=1.0, job=3, state_change_monotonic=None)
    life.tell(1.001, active_state="failed", sub_state="failed", result="resources", state_change_monotonic=1.001)
    assert life.counts() == {"manual not_started": 1}
    assert life.now.failures_total == {"resources": 1}


def test_over_a_gap_starts_are_counted_by_nrestarts() -> None:
    life = idle().begins(1.0, "a", 100)
    running = {"active_state": "active", "sub_state": "running", "state_change_monotonic": 49.0}
    life.tell(50.0, gap=True, invocation_id="z", nrestarts=4, condition_monotonic=48.9, main_pid=7, **running)
    assert life.counts() == {"auto unknown": 3}, "three that were not observed, and one that is to be judged"
    assert life.attempts() == [("a", Trigger.MANUAL, 1), ("z", Trigger.AUTO, 5)]
    end = life.now.starts[0].end
    assert end is not None
    assert (end.result, end.asked) == ("", None)
    assert life.now.failures_total == {}, "nobody saw how they ended"


def test_over_a_gap_a_restart_that_is_queued_is_no_start_yet() -> None:
    life = idle().begins(1.0, "a", 100)
    waits = {"active_state": "activating", "sub_state": "auto-restart", "main_pid": 0, "result": "exit-code"}
    life.tell(
        50.0, gap=True, invocation_id="c", nrestarts=3, job=5, exec_main_start_monotonic=49.0, **waits
    )  # b, c, and the third is queued
    assert life.counts() == {"auto unknown": 1}
    life.begins(51.0, "d", 101, job=5)
    assert [start.invocation_id for start in life.now.starts] == ["a", "c", "d"]
    assert life.attempts()[-1] == ("d", Trigger.AUTO, 4)


def test_over_a_gap_a_restart_that_is_between_its_stop_and_its_start_is_no_start_yet() -> None:
    life = idle().begins(1.0, "a", 100)
    life.tell(
        50.0,
        gap=True,
        active_state="inactive",
        sub_state="dead",
        invocation_id="c",
        nrestarts=3,
        job=5,
        exec_main_start_monotonic=49.0,
    )  # b, c, and the third is queued
    assert life.counts() == {"auto unknown": 1}
    life.begins(51.0, "d", 101, job=5)
    assert life.attempts()[-1] == ("d", Trigger.AUTO, 4)


def test_over_a_gap_a_restart_that_the_start_limit_refused_is_no_start() -> None:
    life = idle().begins(1.0, "a", 100)
    refused = {"active_state": "failed", "sub_state": "failed", "main_pid": 0, "result": "exit-code", "job": 0}
    life.tell(
        50.0,
        gap=True,
        invocation_id="c",
        nrestarts=3,  # b, c, and the refused one
        exec_main_start_monotonic=48.0,
        exec_main_exit_monotonic=48.5,
        inactive_exit_monotonic=48.5001,  # into auto-restart
        inactive_enter_monotonic=49.0,  # out of it
        state_change_monotonic=49.0,
        **refused,
    )
    assert life.counts() == {"auto unknown": 1}
    assert life.attempts() == [("a", Trigger.MANUAL, 1), ("c", Trigger.AUTO, 3)]
    assert life.now.nrestarts == 3


def test_over_a_gap_a_changed_invocation_is_one_start_at_least() -> None:
    life = idle().begins(1.0, "a", 100)
    life.tell(50.0, gap=True, invocation_id="z", condition_monotonic=48.9, main_pid=7, state_change_monotonic=49.0)
    assert life.attempts()[-1] == ("z", Trigger.MANUAL, 1)
    assert life.counts() == {}


def test_the_starts_of_a_unit_that_was_not_loaded_include_the_manual_one() -> None:
    life = Life(load_state="stub", settings=None, nrestarts=None)
    running = {"active_state": "active", "sub_state": "running", "state_change_monotonic": 49.0, "main_pid": 7}
    life.tell(50.0, gap=True, settings=SIMPLE, invocation_id="z", nrestarts=2, condition_monotonic=48.9, **running)
    assert life.counts() == {"manual unknown": 1, "auto unknown": 1}
    assert life.attempts() == [("z", Trigger.AUTO, 3)]


def test_a_gap_without_a_change_changes_nothing() -> None:
    life = idle().begins(1.0, "a", 100)
    before = life.now.starts
    life.tell(50.0, gap=True)
    assert life.now.starts == before
    assert len(life.steps) == 1


def test_time_is_counted_by_state_from_change_to_change() -> None:
    life = idle().begins(10.0, "a", 100).fails(40.0).restart_due(50.0).begins(50.1, "b", 101, job=8)
    seconds = {state: round(value, 1) for state, value in life.now.state_seconds.items()}
    assert seconds == {"inactive": 10.0, "active": 30.0, "auto_restart": 10.1, "failed": 0.0}


def test_time_goes_on_over_a_gap_only_in_a_state_that_did_not_change() -> None:
    life = idle().begins(10.0, "a", 100)
    life.tell(100.0, gap=True)
    assert round(life.now.state_seconds["active"], 1) == 90.0
    waits = {"active_state": "activating", "sub_state": "auto-restart", "state_change_monotonic": 170.0}
    life.tell(200.0, gap=True, main_pid=0, result="exit-code", **waits)
    assert round(life.now.state_seconds["active"], 1) == 90.0
    life.tell(230.0)
    assert round(life.now.state_seconds["auto_restart"], 1) == 60.0


def test_the_last_fifty_starts_are_kept() -> None:
    life = idle().begins(1.0, "a0", 100)
    for number in range(1, 70):
        life.fails(number * 10.0).restart_due(number * 10.0 + 1).begins(number * 10.0 + 2, f"a{number}", 100, job=8)
    assert len(life.now.starts) == 50
    assert life.now.starts[-1].attempt == 70


def test_a_verdict_that_cannot_be_given_any_more_is_unknown() -> None:
    life = idle().begins(1.0, "a", 100)
    history = History(boot_id="b", units={life.unit.id: life.now})
    record = resumed(history, "b").units[life.unit.id]
    assert record.starts_total == {(Trigger.MANUAL, Verdict.UNKNOWN): 1}
    assert record.invocation_id == "a"
    assert record.starts[0].end is None


def test_another_boot_ends_what_ran_and_keeps_what_was_counted() -> None:
    life = idle().begins(1.0, "a", 100).fails(2.0).restart_due(3.0).begins(3.1, "b", 101, job=8)
    history = History(boot_id="b", units={life.unit.id: life.now}, processes_since=1.0)
    after = resumed(history, "c")
    record = after.units[life.unit.id]
    assert after.processes_since is None
    assert record.starts_total == {(Trigger.MANUAL, Verdict.UNKNOWN): 1, (Trigger.AUTO, Verdict.UNKNOWN): 1}
    assert record.starts[-1].end is not None
    life.record = record
    fresh: dict[str, object] = {"active_state": "active", "sub_state": "running", "main_pid": 3, "job": 0}
    life.tell(20.0, gap=True, invocation_id="c", nrestarts=0, condition_monotonic=15.0, **fresh)
    assert life.attempts()[-1] == ("c", Trigger.MANUAL, 1)


def test_a_unit_whose_restart_the_start_limit_refused_is_not_stopped() -> None:
    life = idle().begins(1.0, "a", 100).fails(2.0).restart_due(3.0)
    life.tell(3.001, active_state="inactive", sub_state="dead", state_change_monotonic=3.001)  # on its way to the start
    life.tell(3.002, active_state="failed", sub_state="failed", state_change_monotonic=3.002)
    life.tell(3.003, job=0)
    assert not life.now.stopped


def test_a_start_that_is_refused_ends_a_stop() -> None:
    life = idle().begins(1.0, "a", 100).fails(2.0)
    life.tell(2.5, job=12)
    life.tell(2.501, active_state="inactive", sub_state="dead", state_change_monotonic=2.501)
    life.tell(2.502, job=0)
    assert life.now.stopped
    life.tell(4.0, job=13)
    life.tell(4.001, active_state="failed", sub_state="failed", state_change_monotonic=4.001)
    assert not life.now.stopped


def test_the_unit_of_an_event_is_never_the_one_that_is_dropped() -> None:
    """The clock may have been put back: all others were seen later."""
    life = idle()
    history = History(
        units={UnitId(f"other-{number}.service"): UnitHistory(last_seen_at=9e9) for number in range(1000)}
    )
    history, _ = with_event(history, UnitEvent(unit=life.unit, at=1000.0, at_monotonic=1.0, gap=True))
    assert life.unit.id in history.units
    assert len(history.units) == 1000
