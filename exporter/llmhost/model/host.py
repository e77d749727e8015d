"""The host itself, as the kernel shows it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """`boottime_ahead_seconds` is CLOCK_BOOTTIME − CLOCK_MONOTONIC: time spent in suspend.

    It turns a process's start ticks into systemd's monotonic times.
    """

    boot_id: str
    ticks_per_second: int
    boottime_ahead_seconds: float
    memory_total_bytes: int
    memory_available_bytes: int
