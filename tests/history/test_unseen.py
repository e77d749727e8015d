"""Starts and ends that were not observed, or not judged: nothing is made up, and no start is lost."""

from dataclasses import replace
from typing import Any

from tests.fakes.unit_lives import Life, idle

from llmhost.derive.history.changes import with_time, with_verdict
from llmhost.derive.history.resume import resumed
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import Trigger, Verdict

UNLOADED: dict[str, Any] = {
    "load_state": "stub",
    "result": "",
    "settings": None,
    "active_state": "inactive",
    "sub_state": "dead",
    "invocation_id": "",
    "main_pid": 0,
    "nrestarts": None,
    "state_change_monotonic": None,
    "exec_main_start_monotonic": None,
}


def test_a_start_that_is_forgotten_before_it_was_judged_is_counted_as_unknown_once() -> None:
    life = idle().begins(1.0, "a0", 100)
    for number in range(1, 70):
        life.fails(number * 10.0).restart_due(number * 10.0 + 1).begins(number * 10.0 + 2, f"a{number}", 100, job=8)
    assert life.counts() == {"manual unknown": 1, "auto unknown": 19}
    record = life.now
    for number in range(70):  # the judge is late, and comes to all of them
        record = with_verdict(record, f"a{number}", Verdict.CLEAN)
    assert record.starts_total == {
        (Trigger.MANUAL, Verdict.UNKNOWN): 1,
        (Trigger.AUTO, Verdict.UNKNOWN): 19,
        (Trigger.AUTO, Verdict.CLEAN): 50,
    }


def test_a_stop_that_is_under_way_at_the_first_observation_was_asked_for() -> None:
    stopping: dict[str, Any] = {"active_state": "deactivating", "sub_state": "stop-sigterm", "job": 55, "main_pid": 9}
    since: dict[str, Any] = {
        "condition_monotonic": 40.0,
        "exec_main_start_monotonic": 40.0,
        "state_change_monotonic": 49.9,
    }
    life = idle().begins(1.0, "a", 100)
    life.tell(50.0, gap=True, invocation_id="b", **stopping, **since)
    life.tell(51.0, active_state="inactive", sub_state="dead", main_pid=0, state_change_monotonic=51.0)
    end = life.now.starts[-1].end
    assert end is not None
    assert end.asked is True
    assert life.now.unexpected_stops_total == 0
    assert life.now.stopped


def test_a_start_that_is_under_way_at_the_first_observation_and_fails_was_not_asked_to_end() -> None:
    life = Life(active_state="activating", sub_state="start", invocation_id="a", main_pid=5, job=7)
    failed: dict[str, Any] = {"active_state": "failed", "sub_state": "failed", "result": "exit-code"}
    life.tell(3.0, main_pid=0, state_change_monotonic=3.0, **failed)
    end = life.now.starts[-1].end
    assert end is not None
    assert end.asked is False
    assert not life.now.stopped


def test_a_run_is_over_where_systemd_has_let_go_of_the_unit_meanwhile() -> None:
    life = idle()
    life.unit = replace(life.unit, state_change_monotonic=None)  # it has just been loaded for its start
    life.begins(1.0, "a", 100)
    life.tell(50.0, gap=True, **UNLOADED)
    end = life.now.starts[-1].end
    assert end is not None
    assert (end.result, end.asked) == ("", None)


def test_an_attempt_whose_end_was_not_observed_is_unknown() -> None:
    running: dict[str, Any] = {
        "active_state": "active",
        "sub_state": "running",
        "state_change_monotonic": 49.0,
        "main_pid": 7,
    }
    life = idle().begins(1.0, "a")
    life.tell(50.0, gap=True, invocation_id="z", condition_monotonic=48.9, **running)
    assert life.counts() == {"manual unknown": 1}, "its main process may have been there"
    assert life.now.starts[0].verdict is Verdict.UNKNOWN
    assert life.now.starts[0].unknown_because


def test_an_attempt_that_the_end_of_the_boot_ended_is_unknown() -> None:
    life = idle().begins(1.0, "a")
    record = resumed(History(boot_id="b", units={life.unit.id: life.now}), "c").units[life.unit.id]
    assert record.starts_total == {(Trigger.MANUAL, Verdict.UNKNOWN): 1}
    assert record.starts[0].end is not None


def test_an_attempt_that_is_over_without_a_main_process_is_not_started_also_over_a_gap() -> None:
    life = idle().begins(1.0, "a")
    life.tell(50.0, gap=True, active_state="failed", sub_state="failed", result="exit-code", state_change_monotonic=9.0)
    assert life.counts() == {"manual not_started": 1}


def test_a_run_that_ended_over_a_gap_ended_when_its_main_process_did() -> None:
    failed: dict[str, Any] = {"active_state": "failed", "sub_state": "failed", "result": "exit-code", "main_pid": 0}
    life = idle().begins(1.0, "a", 100)
    life.tell(50.0, gap=True, exec_main_exit_monotonic=20.0, state_change_monotonic=30.0, **failed)
    end = life.now.starts[-1].end
    assert end is not None
    assert (end.at, end.seconds) == (1020.0, 19.0)
    assert life.now.last_failure_at == 1020.0


def test_no_time_is_counted_twice_where_an_observation_came_before_an_older_event() -> None:
    life = idle().begins(1.0, "a", 100)
    life.record = with_time(life.now, 20.0)
    failed: dict[str, Any] = {"active_state": "failed", "sub_state": "failed", "result": "exit-code", "main_pid": 0}
    life.tell(19.5, state_change_monotonic=19.4, **failed)
    life.tell(30.0)
    assert round(sum(life.now.state_seconds.values()), 6) == 30.0


def test_a_run_goes_on_where_the_boot_is_unknown() -> None:
    life = idle().begins(1.0, "a", 100).fails(2.0).restart_due(3.0).begins(3.1, "b", 101, job=8)
    for number, (before, now) in enumerate((("", ""), ("b", ""), ("", "b"))):
        record = resumed(History(boot_id=before, units={life.unit.id: life.now}), now).units[life.unit.id]
        life.record = record
        life.tell(100.0 + number, gap=True)
        assert life.counts() == {"manual unknown": 1, "auto unknown": 1}, "an InvocationID is never used again"
        assert [start.invocation_id for start in life.now.starts] == ["a", "b"]
        assert life.now.starts[-1].end is None
    assert life.now.state_seconds["active"] < 110.0, "no time in a boot that may be another"
