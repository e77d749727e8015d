from llmhost.sources.nvml.patience import Backoff, Suspects


def test_waits_double_up_to_the_most_and_start_over() -> None:
    backoff = Backoff(5.0, 30.0)
    assert [backoff.next_seconds() for _ in range(5)] == [5.0, 10.0, 20.0, 30.0, 30.0]
    backoff.reset()
    assert backoff.next_seconds() == 5.0


def test_a_suspect_is_left_out_once_and_cleared_by_an_answer() -> None:
    suspects = Suspects(skip_seconds=300.0)
    suspects.accuse(3, now=1000.0)
    assert suspects.to_skip(1000.0) == [3]
    suspects.answered([3])
    assert suspects.to_skip(1000.0) == []
    suspects.answered([])
    suspects.accuse(3, now=2000.0)  # the first time again
    suspects.answered([3])
    assert suspects.to_skip(2000.0) == []


def test_a_suspect_that_does_it_again_is_left_out_for_longer_each_time() -> None:
    suspects = Suspects(skip_seconds=300.0)
    suspects.accuse(3, now=1000.0)
    suspects.answered([3])
    suspects.accuse(3, now=2000.0)
    suspects.answered([3])
    assert suspects.to_skip(2299.0) == [3]
    assert suspects.to_skip(2300.0) == []
    suspects.accuse(3, now=3000.0)
    suspects.answered([3])
    assert suspects.to_skip(3599.0) == [3]
    assert suspects.to_skip(3600.0) == []


def test_suspects_are_apart() -> None:
    suspects = Suspects(skip_seconds=300.0)
    suspects.accuse(3, now=1000.0)
    suspects.accuse(1, now=1000.0)
    assert suspects.to_skip(1000.0) == [1, 3]
    suspects.answered([1, 3])
    suspects.accuse(1, now=1001.0)
    assert suspects.to_skip(1001.0) == [1]
