"""Looks that are shared: how old one may be, and from which two rates are told."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.fakes.values import snapshot

from llmhost.collect.observer import Observation
from llmhost.collect.recent_observations import RecentObservations
from llmhost.model.history.history import History


class Host:
    """Looks that say at what time they were made, on a clock that the test turns."""

    def __init__(self) -> None:
        self.now = 100.0
        self.looks = 0
        self.late = 0.0  # seconds before now that the next look says it was made
        self.gate: threading.Event | None = None
        self.entered = threading.Event()
        self.recent = RecentObservations(self.observe, self)

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def observe(self, deadline: float) -> Observation:
        assert deadline == self.now + 8
        self.looks += 1
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(5)
        return Observation(snapshot=snapshot(at_monotonic=self.now - self.late), history=History(), health=())

    def within(self, seconds: float) -> tuple[float, float | None, float]:
        """Say when the look was made, when the one before, and how old it is."""
        since = self.recent.within(seconds, self.now + 8)
        before = since.before.at_monotonic if since.before is not None else None
        return since.observation.snapshot.at_monotonic, before, since.age_seconds

    def scrape(self) -> None:
        self.recent.observe(self.now + 8)


def test_a_look_serves_until_it_is_too_old() -> None:
    host = Host()
    assert host.within(5) == (100, None, 0)
    host.now = 105
    assert host.within(5) == (100, None, 5)
    assert host.looks == 1
    host.now = 105.5
    assert host.within(5) == (105.5, 100, 0)
    assert host.looks == 2


def test_the_look_of_a_scrape_serves_too_and_a_scrape_always_looks() -> None:
    host = Host()
    host.scrape()
    host.now = 103
    assert host.within(5) == (100, None, 3)
    host.scrape()
    assert host.looks == 2
    assert host.within(5) == (103, 100, 0)
    assert host.looks == 2


def test_those_who_come_during_a_look_get_it_too() -> None:
    host = Host()
    host.gate = threading.Event()
    with ThreadPoolExecutor(4) as askers:
        asked = [askers.submit(host.within, 5) for _ in range(4)]
        assert host.entered.wait(5)
        host.gate.set()
        assert [one.result(5) for one in asked] == [(100, None, 0)] * 4
    assert host.looks == 1


def test_a_look_that_fails_is_the_askers_alone() -> None:
    host = Host()
    broken = RecentObservations(lambda _: (_ for _ in ()).throw(RuntimeError("a bug")), host)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a bug"):
            broken.within(5, 108)


def test_rates_are_told_from_looks_that_are_a_second_apart_however_often_somebody_looks() -> None:
    host = Host()
    told = []
    for tenth in range(0, 40, 4):  # each 0.4 s
        host.now = 100 + tenth / 10
        host.scrape()
        at, before, _ = host.within(5)
        told.append(None if before is None else round(at - before, 1))
    # looks that are kept to compare with: 0.0, 1.2, 2.4, 3.6
    assert told == [None, None, None, 1.2, 1.6, 2.0, 1.2, 1.6, 2.0, 1.2]


def test_what_was_delivered_long_ago_is_no_rate_of_now() -> None:
    host = Host()
    host.scrape()
    host.now = 220
    assert host.within(5) == (220, 100, 0)
    host.now = 341
    assert host.within(5) == (341, None, 0)


def test_a_look_that_began_earlier_and_ended_later_is_not_the_latest() -> None:
    host = Host()
    host.scrape()
    host.late, host.now = 2.0, 101.0
    host.scrape()
    assert host.within(5) == (100, None, 1)
