"""A store of a history for the time of a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llmhost.state.history_file import HistoryFile

SAVED_AT = 1764468000.0  # 2025-11-30T02:00:00Z


@contextmanager
def store_in(directory: Path, *, most_bytes: int = 16 << 20, at: float = SAVED_AT) -> Iterator[HistoryFile]:
    store = HistoryFile(directory, most_bytes=most_bytes, epoch_seconds=lambda: at)
    try:
        yield store
    finally:
        store.close()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())
