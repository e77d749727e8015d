"""The age of a segment on the clock of processes' starts, which nobody sets. Pure.

A file has its time from the wall clock. If that was stepped forward since by an hour, the file seems to be an hour
older than it is, and then older than the process that made it.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from llmhost.model.clock_offset import ClockOffset
from llmhost.model.history.history import History
from llmhost.model.host import Host
from llmhost.model.segment import Segment

CLOCK_SECONDS = 1.0  # by which times of one event may differ (ticks, jiffies, NTP)


def latest_change(segment: Segment, history: History, host: Host) -> float:
    """Give the latest time at which a segment can have been changed last; infinity where that is unknown.

    In seconds on CLOCK_BOOTTIME. What an observation has found unchanged, was changed before, whatever the clock says.
    """
    latest = latest_at(history.clock_offsets, segment.changed_at)
    if history.unheld_changed_at.get(segment.id) == segment.changed_at:
        seen_at = history.unheld_since.get(segment.id, math.inf)
        latest = min(latest, seen_at + host.boottime_ahead_seconds)
    return latest


def latest_at(offsets: Sequence[ClockOffset], stamp: float) -> float:
    """Give the latest time on CLOCK_BOOTTIME at which the wall clock can have shown `stamp`; infinity where unknown.

    Between two known offsets it was set, or steered, from one to the other at any time. Before the first it may have
    been anything: what fits into no time since, is of then.
    """
    if not offsets or stamp - offsets[-1].seconds > offsets[-1].boottime + CLOCK_SECONDS:  # or it was set back
        return math.inf
    for later, earlier in pairwise(reversed(offsets)):
        low, high = sorted((earlier.seconds, later.seconds))
        if earlier.boottime - CLOCK_SECONDS <= stamp - low and stamp - high <= later.boottime + CLOCK_SECONDS:
            return min(stamp - low, later.boottime)
    return offsets[0].boottime
