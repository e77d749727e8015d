"""What a record says of what nobody saw, or judged: never more than is known, and no start less than there were."""

from tests.fakes.unit_lives import idle

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
