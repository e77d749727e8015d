"""Recent observations: how old one may be, and from which two rates are worked out."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.fakes.values import snapshot

from llmhost.collect.observer import Observation
from llmhost.collect.recent_observations import RecentObservations
from llmhost.model.history.history import History


class Host:
    """Observations with the time when they were made, on a clock that the test turns."""

    def __init__(self) -> None:
        self.now = 100.0
        self.observed = 0
        self.late = 0.0  # seconds before now of the next observation
        self.gate: threading.Event | None = None
        self.entered = threading.Event()
        self.recent = RecentObservations(self.observe, self)

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def observe(self, deadline: float) -> Observation:
        assert deadline == self.now + 8
        self.observed += 1
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(5)
        return Observation(snapshot=snapshot(at_monotonic=self.now - self.late), history=History(), health=())

    def within(self, seconds: float) -> tuple[float, float | None, float]:
        """Give the time of the observation, that of the one before, and its age."""
        since = self.recent.within(seconds, self.now + 8)
        before = since.before.at_monotonic if since.before is not None else None
        return since.observation.snapshot.at_monotonic, before, since.age_seconds

    def scrape(self) -> None:
        self.recent.observe(self.now + 8)


def test_an_observation_serves_until_it_is_too_old() -> None:
    host = Host()
    assert host.within(5) == (100, None, 0)
    host.now = 105
    assert host.within(5) == (100, None, 5)
    assert host.observed == 1
    host.now = 105.5
    assert host.within(5) == (105.5, 100, 0)
    assert host.observed == 2


def test_the_observation_of_a_scrape_serves_too_and_a_scrape_always_observes() -> None:
    host = Host()
    host.scrape()
    host.now = 103
    assert host.within(5) == (100, None, 3)
    host.scrape()
    assert host.observed == 2
    assert host.within(5) == (103, 100, 0)
    assert host.observed == 2


def test_callers_during_an_observation_get_it_too() -> None:
    host = Host()
    host.gate = threading.Event()
    with ThreadPoolExecutor(4) as callers:
        pending = [callers.submit(host.within, 5) for _ in range(4)]
        assert host.entered.wait(5)
        host.gate.set()
        assert [future.result(5) for future in pending] == [(100, None, 0)] * 4
    assert host.observed == 1


def test_an_observation_that_fails_is_its_callers_alone() -> None:
    host = Host()
    broken = RecentObservations(lambda _: (_ for _ in ()).throw(RuntimeError("a bug")), host)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a bug"):
            broken.within(5, 108)


def test_rates_come_from_observations_that_are_a_second_apart_however_often_there_is_one() -> None:
    host = Host()
    apart = []
    for tenth in range(0, 40, 4):  # each 0.4 s
        host.now = 100 + tenth / 10
        host.scrape()
        at, before, _ = host.within(5)
        apart.append(None if before is None else round(at - before, 1))
    # observations that are kept to compare with: 0.0, 1.2, 2.4, 3.6
    assert apart == [None, None, None, 1.2, 1.6, 2.0, 1.2, 1.6, 2.0, 1.2]


def test_counters_of_long_ago_give_no_rate() -> None:
    host = Host()
    host.scrape()
    host.now = 220
    assert host.within(5) == (220, 100, 0)
    host.now = 341
    assert host.within(5) == (341, None, 0)


def test_an_observation_that_began_earlier_and_ended_later_is_not_the_latest() -> None:
    host = Host()
    host.scrape()
    host.late, host.now = 2.0, 101.0
    host.scrape()
    assert host.within(5) == (100, None, 1)
