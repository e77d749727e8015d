"""The history's file, `history.json` in the state directory."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from llmhost import __version__
from llmhost.derive.history.resume import resumed
from llmhost.model.history.history import History
from llmhost.state.directory import OwnDirectory, StoreError, read_file, sync_copy
from llmhost.state.history_document import MOST_BYTES, document_of, encode_cache, history_of

HISTORY = "history.json"
SYNCED = "history.json.synced"  # as it was a while ago, but surely on the disk

log = logging.getLogger(__name__)


class HistoryFile:
    """Keeps the history of one exporter, which alone has the directory meanwhile. Any thread may save."""

    def __init__(
        self, directory: Path, *, most_bytes: int = MOST_BYTES, epoch_seconds: Callable[[], float] = time.time
    ) -> None:
        """Open and lock the directory; raises StoreError where it cannot be used, or another llmhost uses it."""
        self._directory = OwnDirectory(directory)
        self._most_bytes = most_bytes
        self._epoch_seconds = epoch_seconds
        self._cache = encode_cache()
        self._lock = Lock()
        self._closed = False

    @property
    def path(self) -> Path:
        return self._directory.path / HISTORY

    def load(self, boot_id: str) -> History | None:
        """Read the history, as it is after a restart; None where there is none.

        A file that is no history of ours is put aside for later inspection, with a line in the log. Then the synced
        copy is read.
        """
        try:
            history = history_of(self._directory.read(HISTORY, self._most_bytes))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._put_aside(_reason(error))
            try:
                history = history_of(self._directory.read(SYNCED, self._most_bytes))
            except (OSError, ValueError):
                return None
            log.warning("history goes on from %s", self._directory.path / SYNCED)
        return resumed(history, boot_id)

    def save(self, history: History, *, durable: bool) -> None:
        """Write the whole history durably, or leave the file as it is and raise StoreError."""
        with self._lock:
            if self._closed:
                return  # too late: the last saving, at the end of the exporter, stands
            try:
                content = document_of(
                    history,
                    saved_at=self._epoch_seconds(),
                    llmhost=__version__,
                    cache=self._cache,
                    most_bytes=self._most_bytes,
                )
            except (TypeError, ValueError, AttributeError, LookupError) as error:
                raise StoreError(f"{self.path} cannot be written, by a bug in llmhost: {error}") from error
            self._directory.replace(HISTORY, content, durable=durable)

    def sync(self) -> None:
        """Make a copy of what was saved last that survives a power failure. Waits for the disk; raises StoreError."""
        with self._lock:
            if self._closed:
                return
            directory = self._directory.handle()
        try:
            sync_copy(directory, HISTORY, SYNCED)
        except OSError as error:
            raise StoreError(f"{self._directory.path / SYNCED} cannot be written: {error.strerror}") from error
        finally:
            os.close(directory)

    def close(self) -> None:
        """Close the directory; nothing is saved after that."""
        with self._lock:
            self._closed = True
            self._directory.close()

    def _put_aside(self, reason: str) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._epoch_seconds()))
        try:
            aside = self._directory.put_aside(HISTORY, stamp)
        except StoreError as error:
            log.error("%s is no history that can be used (%s), and %s", self.path, reason, error)  # noqa: TRY400 - no bug
        else:
            log.error("%s is no history that can be used (%s): it is put aside as %s", self.path, reason, aside)


class UnreadableHistoryError(StoreError):
    """There is a history, and it cannot be read: the directory as such is in order."""


def open_for_reading(directory: Path, boot_id: str, *, owners: frozenset[int] | None = None) -> History | None:
    """Read the history that was saved last, also while an exporter runs, and change nothing; None where there is none.

    A start without a verdict keeps none in the same boot: the exporter that will judge it may be running. Raises
    StoreError where the directory is none, UnreadableHistoryError where the file cannot be read or is none of ours.
    """
    path = directory / HISTORY
    try:
        history = history_of(read_file(path, MOST_BYTES, owners=owners))
    except FileNotFoundError as error:
        if directory.is_dir():
            return None
        raise StoreError(f"{directory} cannot be used: {error.strerror}") from error
    except NotADirectoryError as error:
        raise StoreError(f"{directory} cannot be used: {error.strerror}") from error
    except (OSError, ValueError) as error:
        raise UnreadableHistoryError(f"{path} is no history that can be used: {_reason(error)}") from error
    return history if boot_id and history.boot_id == boot_id else resumed(history, boot_id)


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
