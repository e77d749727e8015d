"""The history is saved before a page is made from it, and a disk that hangs takes no page with it."""

import threading
import time

import pytest
from tests.fakes.values import snapshot

from llmhost.collect.history_keeper import HistoryKeeper
from llmhost.config.schema import Policy
from llmhost.model.history.history import History


def test_an_observation_is_saved_before_save_returns() -> None:
    saved: list[History] = []
    keeper = HistoryKeeper(History(), policy=Policy, save=saved.append)
    for at in (100.0, 200.0):
        history = keeper.add_observation(snapshot(processes=[], at_monotonic=at))
        keeper.save()
        assert saved[-1] is history
    keeper.save()
    assert len(saved) == 2, "nothing is new"


def test_two_simultaneous_savings_are_both_saved() -> None:
    saved: list[History] = []
    go = threading.Event()

    def slowly(history: History) -> None:
        go.wait(5)
        saved.append(history)

    keeper = HistoryKeeper(History(), policy=Policy, save=slowly)
    kept: list[bool] = []

    def keep(at: float) -> None:
        history = keeper.add_observation(snapshot(processes=[], at_monotonic=at))
        keeper.save(5.0)
        assert history.processes_at is not None
        kept.append(any((saved_history.processes_at or 0.0) >= history.processes_at for saved_history in saved))

    keepers = [threading.Thread(target=keep, args=(at,)) for at in (100.0, 200.0, 300.0)]
    for thread in keepers:
        thread.start()
    go.set()
    for thread in keepers:
        thread.join(5)
    assert kept == [True, True, True]


def test_a_disk_that_hangs_is_waited_for_a_while_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    hung = threading.Event()

    def hang(_history: History) -> None:
        hung.wait(10)

    keeper = HistoryKeeper(History(), policy=Policy, save=hang)
    for at in (100.0, 200.0):
        keeper.add_observation(snapshot(processes=[], at_monotonic=at))
        began = time.monotonic()
        keeper.save(0.1)
        assert time.monotonic() - began < 5
    assert caplog.messages == ["history is not saved yet after 0.1 s: the disk is slow, or hangs"]
    hung.set()
