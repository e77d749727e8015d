"""Letting go of the driver while somebody wishes it: when it begins and ends, and what is said of it."""

import logging
import re
import threading
import time
from collections.abc import Callable

import pytest

from llmhost.collect.driver_pause import DriverPause


class Driver:
    """Notes what it is told; children that hang are given by the test."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.hanging: tuple[int, ...] = ()
        self.news = threading.Condition()

    def release(self, why: str) -> tuple[int, ...]:
        self._note(why)
        return self.hanging

    def resume(self) -> None:
        self._note("resume")

    def wait(self, number: int) -> None:
        with self.news:
            assert self.news.wait_for(lambda: len(self.told) >= number, 10)

    def _note(self, what: str) -> None:
        with self.news:
            self.told.append(what)
            self.news.notify_all()


class Wished:
    """Wished for so many seconds from now on."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds
        self.asked = threading.Semaphore(0)

    def __call__(self) -> float:
        self.asked.release()
        return max(0.0, self.until - time.monotonic())

    def wait_for_looks(self, number: int) -> None:
        while self.asked.acquire(blocking=False):
            pass
        for _ in range(number):
            assert self.asked.acquire(timeout=10)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [re.sub(r"\d\d:\d\d:\d\d", "TIME", message) for message in caplog.messages]


def test_it_has_let_go_before_start_comes_back_and_says_each_thing_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    driver, wished = Driver(), Wished(300.0)
    driver_pause = DriverPause(driver, wished)
    driver_pause.start()
    try:
        assert len(driver.told) == 1
        assert re.fullmatch(r"until \d\d:\d\d:\d\d, as llmhost release asks", driver.told[0])
        wished.wait_for_looks(2)  # the same wish: nothing new
        assert len(driver.told) == 1
        wished.until += 300.0
        driver.wait(2)
        wished.until = 0.0
        driver.wait(3)
        wished.wait_for_looks(2)
    finally:
        driver_pause.close(2.0)
    assert [what.split()[0] for what in driver.told] == ["until", "until", "resume"]
    let_go = "the driver is let go of until TIME, as llmhost release asks"
    assert lines(caplog) == [let_go, let_go, "the driver may be read again: the release is over"]


def test_a_child_that_hangs_is_ended_again_and_again_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    driver, wished = Driver(), Wished(3000.0)
    driver.hanging = (77,)
    driver_pause = DriverPause(driver, wished)
    driver_pause.start()
    try:
        driver.wait(3)
        driver.hanging = ()
        driver.wait(4)
        wished.wait_for_looks(3)
    finally:
        driver_pause.close(2.0)
    assert len(driver.told) in {4, 5}  # one may have begun before the child was gone
    assert lines(caplog) == [
        "the driver is let go of until TIME, as llmhost release asks",
        "NVML child 77 hangs in the driver and does not die: it has the driver open still",
        "the NVML children that hung are gone",
    ]


def test_nothing_is_done_where_nobody_wishes_anything(caplog: pytest.LogCaptureFixture) -> None:
    driver, wished = Driver(), Wished(0.0)
    driver_pause = DriverPause(driver, wished)
    driver_pause.start()
    wished.wait_for_looks(2)
    driver_pause.close(2.0)
    assert (driver.told, caplog.messages) == ([], [])


def test_a_bug_does_not_end_the_looking() -> None:
    driver = Driver()
    answers: list[Callable[[], float]] = [lambda: 1 / 0, lambda: 300.0]

    def wished() -> float:
        return (answers.pop(0) if len(answers) > 1 else answers[0])()

    driver_pause = DriverPause(driver, wished)
    driver_pause.start()
    driver.wait(1)
    driver_pause.close(2.0)
