"""Exponential back-off."""


class Backoff:
    """Seconds to wait before each retry: from the first to the longest, doubled each time, until a reset."""

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self._first = first_seconds
        self._longest = longest_seconds
        self._next = first_seconds

    def next_seconds(self) -> float:
        seconds, self._next = self._next, min(2 * self._next, self._longest)
        return seconds

    def reset(self) -> None:
        self._next = self._first
