import logging

import pytest

from llmhost.runtime.log_throttle import MOST_KINDS, MOST_TEXTS, OnceLog, ThrottledLog

LOGGER = logging.getLogger("throttle")


def test_each_kind_is_logged_once_a_minute_with_the_number_held_back(caplog: pytest.LogCaptureFixture) -> None:
    now = [5.0]
    log = ThrottledLog(LOGGER, clock=lambda: now[0])
    for kind in ("a", "a", "a", "b"):
        log.log(logging.WARNING, kind, f"{kind} failed")
    now[0] += 59.9
    log.log(logging.WARNING, "a", "a failed")
    now[0] += 0.2
    log.log(logging.WARNING, "a", "a failed")
    log.log(logging.WARNING, "b", "b failed")
    assert caplog.messages == [
        "a failed",
        "b failed",
        "a failed (3 more like this since the last such line)",
        "b failed",
    ]


def test_kinds_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    log = ThrottledLog(LOGGER, clock=lambda: 5.0)
    for kind in range(MOST_KINDS + 1):
        log.log(logging.WARNING, str(kind), "line")
    log.log(logging.WARNING, "0", "line")  # forgotten with the others, so it is logged again
    assert len(caplog.messages) == MOST_KINDS + 2


def test_each_text_is_logged_once_and_texts_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    log = OnceLog(LOGGER)
    for text in range(MOST_TEXTS + 1):
        log.warning(str(text))
        log.warning(str(text))
    assert caplog.messages == [str(text) for text in range(MOST_TEXTS)]
