"""The wall clock at one observation. It may be set, and then proves no order of events."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """CLOCK_REALTIME − CLOCK_BOOTTIME at a time; the latter is never set, and counts a suspend."""

    boottime: float  # the time, in seconds on CLOCK_BOOTTIME
    seconds: float
