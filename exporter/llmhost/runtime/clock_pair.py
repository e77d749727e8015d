"""Two clocks read at one time: whoever is kept waiting between the two reads, sees them too far apart."""

import math
from collections.abc import Callable

_TRIES = 10
_CLOSE_SECONDS = 1e-4


def read_together(first: Callable[[], float], second: Callable[[], float]) -> tuple[float, float]:
    """Read the second clock between two reads of the first, a few times if that takes long; gives the closest pair."""
    pair, least = (0.0, 0.0), math.inf
    for _ in range(_TRIES):
        before, between, after = first(), second(), first()
        if after - before < least:
            pair, least = ((before + after) / 2, between), after - before
        if least <= _CLOSE_SECONDS:
            break
    return pair
