"""A driver pause: when it begins and ends, and what is logged of it."""

import logging
import re
import threading
import time
from collections.abc import Callable

import pytest

from llmhost.collect.driver_pause import DriverPause


class Driver:
    """Notes the calls that it gets; children that hang are given by the test."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.hanging: tuple[int, ...] = ()
        self.news = threading.Condition()

    def pause(self, why: str) -> tuple[int, ...]:
        self._note(why)
        return self.hanging

    def resume(self) -> None:
        self._note("resume")

    def wait(self, number: int) -> None:
        with self.news:
            assert self.news.wait_for(lambda: len(self.calls) >= number, 10)

    def _note(self, what: str) -> None:
        with self.news:
            self.calls.append(what)
            self.news.notify_all()


class Requested:
    """A request for so many seconds from now on."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds
        self.requested = threading.Semaphore(0)

    def __call__(self) -> float:
        self.requested.release()
        return max(0.0, self.until - time.monotonic())

    def wait_for_checks(self, number: int) -> None:
        while self.requested.acquire(blocking=False):
            pass
        for _ in range(number):
            assert self.requested.acquire(timeout=60)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [re.sub(r"\d\d:\d\d:\d\d", "TIME", message) for message in caplog.messages]


def test_the_pause_is_in_force_when_start_comes_back_and_each_change_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    driver, requested = Driver(), Requested(300.0)
    driver_pause = DriverPause(driver, requested)
    driver_pause.start()
    try:
        assert len(driver.calls) == 1
        assert re.fullmatch(r"until \d\d:\d\d:\d\d, as llmhost release asks", driver.calls[0])
        requested.wait_for_checks(2)  # the same request: nothing new
        assert len(driver.calls) == 1
        requested.until += 300.0
        driver.wait(2)
        requested.until = 0.0
        driver.wait(3)
        requested.wait_for_checks(2)
    finally:
        driver_pause.close(2.0)
    assert [what.split()[0] for what in driver.calls] == ["until", "until", "resume"]
    paused = "the driver is paused until TIME, as llmhost release asks"
    assert lines(caplog) == [paused, paused, "the driver is read again: the pause is over"]


def test_a_child_that_hangs_is_ended_again_and_again_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    driver, requested = Driver(), Requested(3000.0)
    driver.hanging = (77,)
    driver_pause = DriverPause(driver, requested)
    driver_pause.start()
    try:
        driver.wait(3)
        driver.hanging = ()
        driver.wait(4)
        requested.wait_for_checks(3)
    finally:
        driver_pause.close(2.0)
    assert len(driver.calls) in {4, 5}  # one may have begun before the child was gone
    assert lines(caplog) == [
        "the driver is paused until TIME, as llmhost release asks",
        "NVML child 77 hangs in the driver and does not die: it has the driver open still",
        "the NVML children that hung are gone",
    ]


def test_nothing_is_done_without_a_request(caplog: pytest.LogCaptureFixture) -> None:
    driver, requested = Driver(), Requested(0.0)
    driver_pause = DriverPause(driver, requested)
    driver_pause.start()
    requested.wait_for_checks(2)
    driver_pause.close(2.0)
    assert (driver.calls, caplog.messages) == ([], [])


def test_a_bug_does_not_end_the_thread() -> None:
    driver = Driver()
    answers: list[Callable[[], float]] = [lambda: 1 / 0, lambda: 300.0]

    def requested() -> float:
        return (answers.pop(0) if len(answers) > 1 else answers[0])()

    driver_pause = DriverPause(driver, requested)
    driver_pause.start()
    driver.wait(1)
    driver_pause.close(2.0)
