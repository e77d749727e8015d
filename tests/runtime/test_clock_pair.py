"""Two clocks, read at one time though whoever reads them is kept waiting in between."""

from collections.abc import Iterator

from llmhost.runtime.clock_pair import read_together


def test_of_several_tries_the_one_in_which_least_time_passed_counts() -> None:
    """The second clock is 500 ahead; before it is read, 3 s pass, then 0.2 s, then 0.00002 s."""
    now = 100.0
    waits: Iterator[float] = iter((3.0, 0.2, 0.00002))

    def second() -> float:
        nonlocal now
        now += next(waits)
        return now + 500

    first, other = read_together(lambda: now, second)
    assert (round(first, 4), round(other - first, 4)) == (103.2, 500.0)


def test_where_it_always_takes_long_the_best_try_counts_and_there_is_an_end() -> None:
    now, tries = 0.0, 0

    def second() -> float:
        nonlocal now, tries
        tries += 1
        now += 0.5 if tries == 4 else 2.0
        return now + 500

    first, other = read_together(lambda: now, second)
    assert (tries, first, other) == (10, 6.25, 506.5)
