from llmhost.runtime.backoff import Backoff


def test_waits_double_up_to_the_longest_and_start_over() -> None:
    backoff = Backoff(5.0, 30.0)
    assert [backoff.next_seconds() for _ in range(5)] == [5.0, 10.0, 20.0, 30.0, 30.0]
    backoff.reset()
    assert backoff.next_seconds() == 5.0
