"""The ledger's file, `ledger.json` in the state directory."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from llmhost import __version__
from llmhost.model.history.history import Ledger
from llmhost.derive.history.resume import resumed
from llmhost.state.directory import OwnDirectory, StoreError, read_file, secure
from llmhost.state.history_document import MOST_BYTES, document_of, ledger_of, words

LEDGER = "ledger.json"
SYNCED = "ledger.json.synced"  # as it was a while ago, but surely on the disk

log = logging.getLogger(__name__)


class LedgerStore:
    """Keeps the ledger of one exporter. Nobody else can have the directory meanwhile; any thread may save."""

    def __init__(
        self, directory: Path, *, most_bytes: int = MOST_BYTES, epoch_seconds: Callable[[], float] = time.time
    ) -> None:
        """Take hold of the directory; raises StoreError where it cannot be used, or another llmhost uses it."""
        self._directory = OwnDirectory(directory)
        self._most_bytes = most_bytes
        self._epoch_seconds = epoch_seconds
        self._written = words()
        self._lock = Lock()
        self._closed = False

    @property
    def path(self) -> Path:
        return self._directory.path / LEDGER

    def load(self, boot_id: str) -> Ledger | None:
        """Give what still counts of the ledger that is there; None where there is none.

        A file that is no ledger of ours is put aside for whoever wants to look at it, and said in the log; the copy of
        it that is on the disk is taken then.
        """
        try:
            ledger = ledger_of(self._directory.read(LEDGER, self._most_bytes))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._put_aside(_reason(error))
            try:
                ledger = ledger_of(self._directory.read(SYNCED, self._most_bytes))
            except (OSError, ValueError):
                return None
            log.warning("history goes on from %s", self._directory.path / SYNCED)
        return resumed(ledger, boot_id)

    def save(self, ledger: Ledger, *, durable: bool) -> None:
        """Write the whole ledger, or leave the file as it is and raise StoreError. Durable: also if the power fails."""
        with self._lock:
            if self._closed:
                return  # by somebody who was late: what was saved last, at the end, stands
            try:
                content = document_of(
                    ledger,
                    saved_at=self._epoch_seconds(),
                    llmhost=__version__,
                    written=self._written,
                    most_bytes=self._most_bytes,
                )
            except (TypeError, ValueError, AttributeError, LookupError) as error:
                raise StoreError(f"{self.path} cannot be written, by a bug in llmhost: {error}") from error
            self._directory.replace(LEDGER, content, durable=durable)

    def secure(self) -> None:
        """Keep a copy of what was saved last, also if the power fails. Waits for the disk; raises StoreError."""
        with self._lock:
            if self._closed:
                return
            directory = self._directory.handle()
        try:
            secure(directory, LEDGER, SYNCED)
        except OSError as error:
            raise StoreError(f"{self._directory.path / SYNCED} cannot be written: {error.strerror}") from error
        finally:
            os.close(directory)

    def close(self) -> None:
        """Let go of the directory; after it nothing is saved."""
        with self._lock:
            self._closed = True
            self._directory.close()

    def _put_aside(self, reason: str) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._epoch_seconds()))
        try:
            aside = self._directory.put_aside(LEDGER, stamp)
        except StoreError as error:
            log.error("%s is no ledger that can be used (%s), and %s", self.path, reason, error)  # noqa: TRY400 - no bug
        else:
            log.error("%s is no ledger that can be used (%s): it is put aside as %s", self.path, reason, aside)


class UnreadableLedgerError(StoreError):
    """There is a ledger, and it cannot be read: no mistake of whoever named the directory."""


def open_for_reading(directory: Path, boot_id: str, *, owners: frozenset[int] | None = None) -> Ledger | None:
    """Give the ledger as it was saved last, whoever has the directory, and change nothing; None where there is none.

    A start that is not judged yet stays so in the same boot: the exporter that will may be running. Raises StoreError
    where the directory is none, UnreadableLedgerError where the file is none of ours or not to be read.
    """
    path = directory / LEDGER
    try:
        ledger = ledger_of(read_file(path, MOST_BYTES, owners=owners))
    except FileNotFoundError as error:
        if directory.is_dir():
            return None
        raise StoreError(f"{directory} cannot be used: {error.strerror}") from error
    except NotADirectoryError as error:
        raise StoreError(f"{directory} cannot be used: {error.strerror}") from error
    except (OSError, ValueError) as error:
        raise UnreadableLedgerError(f"{path} is no ledger that can be used: {_reason(error)}") from error
    return ledger if boot_id and ledger.boot_id == boot_id else resumed(ledger, boot_id)


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
