"""The latest time since boot at which a wall clock that may have been set can have shown a file's time.

Offsets are (seconds since boot, seconds of the wall clock at boot); the boot was at 1000 by the right clock.
"""

import math

import pytest

from llmhost.derive.segment_age import latest_at
from llmhost.model.clock_offset import ClockOffset

NEVER_SET = ((5.0, 1000.0), (9000.0, 1000.0))
FORWARD = ((5.0, 1000.0), (4000.0, 1000.0), (4060.0, 4600.0), (9000.0, 4600.0))  # by an hour, at about 4030
FORWARD_AT_BOOT = ((5.0, -6200.0), (30.0, 1000.0), (9000.0, 1000.0))  # from two hours ago, as NTP came
BACK = ((5.0, 4600.0), (4000.0, 4600.0), (4060.0, 1000.0), (9000.0, 1000.0))
STEERED = ((5.0, 1000.0), (8000.0, 1001.5), (9000.0, 1001.6))
UNKNOWN_BEFORE = ((8000.0, 1000.0), (9000.0, 1000.0))


@pytest.mark.parametrize(
    ("offsets", "stamp", "latest"),
    [
        (NEVER_SET, 3000.0, 2000.0),
        (NEVER_SET, 10_000.0, 9000.0),
        (NEVER_SET, 900.0, 5.0),  # before systemd began: a file system that outlived the boot, or a clock set early
        (NEVER_SET, 10_500.0, math.inf),  # from the future: it was ahead for a while
        (FORWARD, 3000.0, 2000.0),
        (FORWARD, 4900.0, 3900.0),  # by the clock as it is now it seems to be of 300 s after boot
        (FORWARD, 5010.0, 4010.0),  # amid the step: it was before it
        (FORWARD, 8640.0, 4060.0),  # amid the step, or after it
        (FORWARD, 6600.0, 4060.0),  # no clock that is known has shown it; amid the step at the latest
        (FORWARD, 9600.0, 5000.0),
        (FORWARD_AT_BOOT, 3000.0, 2000.0),
        (FORWARD_AT_BOOT, -6180.0, 20.0),
        (BACK, 3000.0, 5.0),  # no clock that is known has shown it: before systemd began
        (BACK, 6600.0, 5600.0),  # also of 2000 s by the clock before; the later counts
        (BACK, 8500.0, 7500.0),
        (BACK, 10_200.0, math.inf),
        (STEERED, 3000.0, 2000.0),
        (STEERED, 9500.0, 8498.5),
        (UNKNOWN_BEFORE, 9500.0, 8500.0),
        (UNKNOWN_BEFORE, 3000.0, 8000.0),  # by a clock that nobody saw
        (((9000.0, 1000.0),), 3000.0, 9000.0),
        ((), 3000.0, math.inf),
    ],
)
def test_a_files_time_is_taken_by_the_clock_as_it_was_set_then(
    offsets: tuple[tuple[float, float], ...], stamp: float, latest: float
) -> None:
    assert latest_at([ClockOffset(*offset) for offset in offsets], stamp) == latest
