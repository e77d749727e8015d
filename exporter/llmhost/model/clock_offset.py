"""What the wall clock showed at a time: it may be set, and then says nothing about what was before or after what."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """CLOCK_REALTIME − CLOCK_BOOTTIME at a time; the latter is never set, and counts a suspend."""

    boottime: float  # the time, in seconds on CLOCK_BOOTTIME
    seconds: float
