"""Recent observations, for callers that accept one of some seconds ago."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from llmhost.collect.observer import Observation
from llmhost.collect.worker import Clock
from llmhost.model.snapshot import Snapshot

APART_SECONDS: Final = 1.0  # between two observations that a rate is worked out from, at least
LONGEST_SECONDS: Final = 120.0  # and at most: older counters say nothing about now


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentObservation:
    """An observation, and an earlier one to work out rates, if there is one that fits."""

    observation: Observation
    before: Snapshot | None
    age_seconds: float


class RecentObservations:
    """Safe to use from several threads."""

    def __init__(self, observe: Callable[[float], Observation], clock: Clock) -> None:
        self._observe = observe
        self._clock = clock
        self._observing = threading.Lock()
        self._noting = threading.Lock()
        self._latest: Observation | None = None
        self._marks: tuple[Snapshot, ...] = ()  # two at most, some time apart, for rates

    def observe(self, deadline: float) -> Observation:
        """Observe anew."""
        observation = self._observe(deadline)
        self._note(observation)
        return observation

    def within(self, seconds: float, deadline: float) -> RecentObservation:
        """Give the latest observation if it is not older than that, else a new one; callers meanwhile get the same."""
        found = self._found(seconds)
        if found is None:
            with self._observing:
                found = self._found(seconds)
                if found is None:
                    self.observe(deadline)
                    found = self._found(None)
        assert found is not None  # noqa: S101 - just noted
        return found

    def _found(self, seconds: float | None) -> RecentObservation | None:
        with self._noting:
            latest, marks = self._latest, self._marks
        if latest is None:
            return None
        at = latest.snapshot.at_monotonic
        age = self._clock.monotonic() - at
        if seconds is not None and age > seconds:
            return None
        fitting = [mark for mark in marks if APART_SECONDS <= at - mark.at_monotonic <= LONGEST_SECONDS]
        return RecentObservation(observation=latest, before=fitting[-1] if fitting else None, age_seconds=max(0.0, age))

    def _note(self, observation: Observation) -> None:
        with self._noting:
            snapshot, latest = observation.snapshot, self._latest
            if latest is not None and snapshot.at_monotonic < latest.snapshot.at_monotonic:
                return  # it took longer than one that began later
            self._latest = observation
            if not self._marks or snapshot.at_monotonic - self._marks[-1].at_monotonic >= APART_SECONDS:
                self._marks = (*self._marks, snapshot)[-2:]
