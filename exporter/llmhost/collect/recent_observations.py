"""The latest looks, whoever asked for them, for those who can do with one of some seconds ago."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from llmhost.collect.observer import Observation
from llmhost.collect.worker import Clock
from llmhost.model.snapshot import Snapshot

APART_SECONDS: Final = 1.0  # at least are two looks that a rate is told from
LONGEST_SECONDS: Final = 120.0  # at most: what was delivered before says nothing of now


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """A look, and an earlier one to tell rates by, if there is one that suits."""

    observation: Observation
    before: Snapshot | None
    age_seconds: float


class RecentObservations:
    """Safe to use from several threads."""

    def __init__(self, observe: Callable[[float], Observation], clock: Clock) -> None:
        self._observe = observe
        self._clock = clock
        self._one_looks = threading.Lock()
        self._noting = threading.Lock()
        self._latest: Observation | None = None
        self._marks: tuple[Snapshot, ...] = ()  # two at most, some time apart: rates are told from one of them

    def observe(self, deadline: float) -> Observation:
        """Look anew."""
        observation = self._observe(deadline)
        self._note(observation)
        return observation

    def within(self, seconds: float, deadline: float) -> Since:
        """Give the latest look if it is not older than that, else look anew; who asks meanwhile gets the same."""
        found = self._found(seconds)
        if found is None:
            with self._one_looks:
                found = self._found(seconds)
                if found is None:
                    self.observe(deadline)
                    found = self._found(None)
        assert found is not None  # noqa: S101 - just noted
        return found

    def _found(self, seconds: float | None) -> Since | None:
        with self._noting:
            latest, marks = self._latest, self._marks
        if latest is None:
            return None
        at = latest.snapshot.at_monotonic
        age = self._clock.monotonic() - at
        if seconds is not None and age > seconds:
            return None
        suit = [mark for mark in marks if APART_SECONDS <= at - mark.at_monotonic <= LONGEST_SECONDS]
        return Since(observation=latest, before=suit[-1] if suit else None, age_seconds=max(0.0, age))

    def _note(self, observation: Observation) -> None:
        with self._noting:
            snapshot, latest = observation.snapshot, self._latest
            if latest is not None and snapshot.at_monotonic < latest.snapshot.at_monotonic:
                return  # it took longer than one that began later
            self._latest = observation
            if not self._marks or snapshot.at_monotonic - self._marks[-1].at_monotonic >= APART_SECONDS:
                self._marks = (*self._marks, snapshot)[-2:]
