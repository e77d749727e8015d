"""Bounds of the history: users can make any number of names of units, processes and segments."""

from collections.abc import Mapping
from itertools import islice
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

MAX_UNITS = 1000
MAX_PROCESSES = 4096
MAX_SEGMENTS = 10_000
MAX_CLOCK_OFFSETS = 100


def newest(entries: Mapping[K, V], most: int) -> Mapping[K, V]:
    """Leave out the first entries where there are more than `most`; new ones go to the end."""
    if len(entries) <= most:
        return entries
    return dict(islice(entries.items(), len(entries) - most, None))
