"""HistorySaver while the exporter runs: at once what counts, never at the cost of a page, and logged once."""

import logging
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.histories import BIG, BOOT, WRITTEN_DOWN, with_starts
from tests.fakes.history_files import names, store_in

from llmhost.model.history.history import History
from llmhost.state.directory import StoreError
from llmhost.state.history_document import history_of
from llmhost.state.history_file import HistoryFile
from llmhost.state.saving import HistorySaver


class Clock:
    def __init__(self) -> None:
        self.now = 7.0

    def __call__(self) -> float:
        return self.now


def saved(directory: Path) -> History:
    return history_of((directory / "history.json").read_bytes())


def test_what_outlives_a_boot_is_saved_at_once_and_the_rest_once_a_minute(tmp_path: Path) -> None:
    clock = Clock()
    looked = replace(WRITTEN_DOWN, processes_at=7295.0)
    record = replace(WRITTEN_DOWN.units[BIG], unexpected_stops_total=4)
    counted = replace(looked, units={**looked.units, BIG: record})
    with store_in(tmp_path) as store:
        saving = HistorySaver(store, monotonic=clock)
        saving(WRITTEN_DOWN)
        assert saved(tmp_path) == WRITTEN_DOWN
        clock.now += 59
        saving(looked)
        assert saved(tmp_path) == WRITTEN_DOWN
        saving(counted)
        assert saved(tmp_path) == counted
        clock.now += 59
        saving(replace(counted, processes_at=7300.0))
        assert saved(tmp_path) == counted
        clock.now += 1
        saving(replace(counted, processes_at=7301.0))
        assert saved(tmp_path) == replace(counted, processes_at=7301.0)
        saving(replace(counted, processes_at=7302.0), durable=True)
        assert saved(tmp_path) == replace(counted, processes_at=7302.0)


def test_a_disk_that_is_full_leaves_the_file_as_it_was_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with store_in(tmp_path) as store:
        saving = HistorySaver(store)
        saving(WRITTEN_DOWN, durable=True)
        before = (tmp_path / "history.json").read_bytes()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))  # as EFBIG, in the midst of the file
        try:
            saving(with_starts(50, 10))
            saving(with_starts(51, 10))
            assert (tmp_path / "history.json").read_bytes() == before
            assert names(tmp_path) == ["history.json", "lock"]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        saving(with_starts(50, 10), durable=True)
    file = tmp_path / "history.json"
    assert history_of(file.read_bytes()) == with_starts(50, 10)
    assert caplog.messages == [
        f"history is not saved: {file} cannot be written: File too large; it is tried again",
        f"history is saved again in {file}",
    ]


def test_a_directory_that_was_gone_is_used_again_once_it_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    state = tmp_path / "state"
    state.mkdir()
    with store_in(state) as store:
        saving = HistorySaver(store)
        state.rename(tmp_path / "away")
        saving(WRITTEN_DOWN)
        saving(WRITTEN_DOWN)
        state.mkdir()
        saving(WRITTEN_DOWN, durable=True)
        with pytest.raises(StoreError, match="in use by another llmhost"):
            HistoryFile(state)
        assert store.load(BOOT) == WRITTEN_DOWN
    assert caplog.messages == [
        f"history is not saved: {state} cannot be used: No such file or directory; it is tried again",
        f"history is saved again in {state / 'history.json'}",
    ]


def test_a_copy_is_brought_to_the_disk_every_five_minutes(tmp_path: Path) -> None:
    clock = Clock()

    def synced() -> History:
        saving.wait_until_synced()
        return history_of((tmp_path / "history.json.synced").read_bytes())

    with store_in(tmp_path) as store:
        saving = HistorySaver(store, monotonic=clock)
        saving(WRITTEN_DOWN)
        assert synced() == WRITTEN_DOWN
        clock.now += 299
        saving(History())
        assert synced() == WRITTEN_DOWN
        assert saved(tmp_path) == History()
        clock.now += 60
        saving(with_starts(1, 1))
        assert synced() == with_starts(1, 1)


def test_a_copy_that_cannot_be_made_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    (tmp_path / "history.json.synced").mkdir()
    with store_in(tmp_path) as store:
        saving = HistorySaver(store, monotonic=clock)
        for _ in range(2):
            saving(WRITTEN_DOWN)
            saving.wait_until_synced()
            clock.now += 300
    assert caplog.messages == [
        f"history may be lost if the power fails: {tmp_path / 'history.json.synced'} cannot be written: Is a directory"
    ]
