"""The wall clock in the history: its offset at the observations, and at times that systemd notes by two clocks."""

from llmhost.derive.history.bounds import MAX_CLOCK_OFFSETS
from llmhost.model.clock_offset import ClockOffset
from llmhost.model.reading import Ok
from llmhost.model.snapshot import Snapshot

_SAME_SECONDS = 0.25  # NTP steers by some seconds a day at most: an offset every few hours


def next_clock_offsets(before: tuple[ClockOffset, ...], snapshot: Snapshot) -> tuple[ClockOffset, ...]:
    """Add the offset at a snapshot, by time. Of those that are the same in a row, the first and the last are kept."""
    if not isinstance(snapshot.host, Ok):
        return before
    suspended = snapshot.host.value.boottime_ahead_seconds
    boottime = snapshot.at_monotonic + suspended
    if before and before[-1].boottime >= boottime:  # two may observe at once
        return before
    found = set(before)
    if isinstance(snapshot.units, Ok) and suspended < _SAME_SECONDS:  # else systemd's clock stood still for a while
        found |= {ClockOffset(monotonic, at - monotonic) for at, monotonic in snapshot.units.value.boot_times}
    offsets = sorted(found, key=lambda offset: offset.boottime)
    now = ClockOffset(boottime, snapshot.at - boottime)
    if len(offsets) > 1 and all(_are_same(offsets[-2], offset) for offset in (offsets[-1], now)):
        offsets.pop()
    return (*offsets, now)[-MAX_CLOCK_OFFSETS:]


def _are_same(one: ClockOffset, other: ClockOffset) -> bool:
    return abs(one.seconds - other.seconds) <= _SAME_SECONDS
