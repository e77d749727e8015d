import random

import pytest

from llmhost.config.quantities import QuantityError, format_size, format_time, parse_size, parse_time


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0B", 0),
        ("1B", 1),
        ("2KiB", 2048),
        ("1000MiB", 1_048_576_000),
        ("1000 MiB", 1_048_576_000),
        ("85GiB", 91_268_055_040),
        ("1TiB", 1_099_511_627_776),
        ("0.5KiB", 512),
        ("85.48GiB", 91_783_451_116),  # 85.48 × 2^30 = 91783451115.52
    ],
)
def test_a_size_is_read_in_bytes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0), ("30s", 30), ("500ms", 0.5), ("1.5s", 1.5), ("2m", 120), ("1h30m", 5400), ("1d2h3m4s5ms", 93784.005)],
)
def test_a_time_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("85GB", 'did you mean "85GiB"?'),
        ("85G", 'did you mean "85GiB"?'),
        ("85gib", 'did you mean "85GiB"?'),
        ("1.5 kb", 'did you mean "1.5KiB"?'),
        ("1000", 'did you mean "1000MiB"?'),
        ("-1GiB", "cannot be negative"),
        ("many", "not a size"),
        ("", "not a size"),
        ("1GiB2MiB", "not a size"),
        ("1,5GiB", "not a size"),
        ("٣GiB", "not a size"),
        ("9" * 10_000 + "GiB", "not a size"),
        ("infGiB", "not a size"),
    ],
)
def test_what_is_no_size_is_refused_with_what_was_probably_meant(text: str, said: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_size(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("30", 'did you mean "30s"?'),
        ("30sec", 'did you mean "30s"?'),
        ("2 minutes", 'did you mean "2m"?'),
        ("5mins", 'did you mean "5m"?'),
        ("30S", 'did you mean "30s"?'),
        ("100msec", 'did you mean "100ms"?'),
        ("2hrs", 'did you mean "2h"?'),
        ("-5s", "cannot be negative"),
        ("30m1h", "the largest first"),
        ("1s1s", "each unit at most once"),
        ("1:30", "not a time"),
        ("soon", "not a time"),
        ("", "not a time"),
        ("nans", "not a time"),
        ("1h 30m", "not a time"),
    ],
)
def test_what_is_no_time_is_refused_with_what_was_probably_meant(text: str, said: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_time(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0B"), (1, "1B"), (1025, "1025B"), (1_048_576_000, "1000MiB"), (1 << 30, "1GiB"), (3 << 40, "3TiB")],
)
def test_a_size_is_written_in_the_largest_unit_that_fits(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (30.0, "30s"), (90.0, "90s"), (1800.0, "30m"), (86400.0, "1d"), (0.25, "250ms"), (0.0001, "0.0001s")],
)
def test_a_time_is_written_in_the_largest_unit_that_fits(seconds: float, text: str) -> None:
    assert format_time(seconds) == text


def test_what_is_written_is_read_back_to_exactly_the_same() -> None:
    draw = random.Random(1)
    for _ in range(500):
        size_bytes = draw.randrange(1 << draw.randrange(1, 51))
        assert parse_size(format_size(size_bytes)) == size_bytes
        seconds = draw.choice([draw.uniform(0, 1e6), float(draw.randrange(10**6)), draw.random() / 1e4])
        assert parse_time(format_time(seconds)) == seconds
