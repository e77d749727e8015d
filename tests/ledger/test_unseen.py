"""What a record says of what nobody saw, or judged: never more than is known, and no start less than there were."""

from tests.fakes.unit_lives import Life, idle

from llmhost.derive.ledger.changes import with_verdict
from llmhost.derive.ledger.record import Trigger, Verdict


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


def test_a_stop_that_is_under_way_at_the_first_look_was_asked_for() -> None:
    stopping = {"active_state": "deactivating", "sub_state": "stop-sigterm", "job": 55, "main_pid": 9}
    since = {"condition_monotonic": 40.0, "exec_main_start_monotonic": 40.0, "state_change_monotonic": 49.9}
    life = idle().begins(1.0, "a", 100)
    life.tell(50.0, gap=True, invocation_id="b", **stopping, **since)
    life.tell(51.0, active_state="inactive", sub_state="dead", main_pid=0, state_change_monotonic=51.0)
    end = life.now.starts[-1].end
    assert end is not None
    assert end.asked is True
    assert life.now.unexpected_stops_total == 0
    assert life.now.stopped


def test_a_start_that_is_under_way_at_the_first_look_and_fails_was_not_asked_to_end() -> None:
    life = Life(active_state="activating", sub_state="start", invocation_id="a", main_pid=5, job=7)
    failed = {"active_state": "failed", "sub_state": "failed", "result": "exit-code"}
    life.tell(3.0, main_pid=0, state_change_monotonic=3.0, **failed)
    end = life.now.starts[-1].end
    assert end is not None
    assert end.asked is False
    assert not life.now.stopped
