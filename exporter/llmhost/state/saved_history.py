"""The history in the state directory: opened by `serve`, only read by the commands and the guard."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llmhost.config.paths import DEFAULT_STATE
from llmhost.model.history.history import History
from llmhost.state.directory import StoreError
from llmhost.state.history_file import HistoryFile, UnreadableHistoryError, open_for_reading
from llmhost.state.saving import HistorySaver

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedHistory:
    """The history as it was saved, and the way to save it again; without a file it is in memory only."""

    history: History
    file: HistoryFile | None = None
    save: HistorySaver | None = None
    fault: str = ""  # why the directory's history is not used

    def log_where(self) -> None:
        """Log where history is kept."""
        if self.file is not None:
            log.info("history is kept in %s; units in it: %d", self.file.path, len(self.history.units))
        elif self.fault:
            log.warning("history is kept in memory only, and lost at the end: %s", self.fault)
        else:
            log.info("history is kept in memory only, and lost at the end: say with --state-dir where to keep it")

    def close(self, history: History) -> None:
        """Save for the last time, so that it survives a power failure, and release the directory."""
        if self.file is not None and self.save is not None:
            self.save(history, durable=True)
            self.file.close()


def open_history(given: Path | None, boot_id: str, environment: Mapping[str, str] | None = None) -> SavedHistory:
    """Open the state directory. Raises StoreError where one was given and cannot be used; does without any other."""
    directory = given or _found(environment)
    if directory is None:
        return SavedHistory(history=History(boot_id=boot_id))
    try:
        file = HistoryFile(directory)
    except StoreError as error:
        if given is not None:
            raise
        return SavedHistory(history=History(boot_id=boot_id), fault=str(error))
    return SavedHistory(history=file.load(boot_id) or History(boot_id=boot_id), file=file, save=HistorySaver(file))


def read_history(
    given: Path | None,
    boot_id: str,
    environment: Mapping[str, str] | None = None,
    *,
    owners: frozenset[int] | None = None,
) -> SavedHistory:
    """Read what was saved last, and change nothing; with `owners` only a file of one of these users counts.

    Raises StoreError where a directory was given that is none.
    """
    directory = given or _found(environment)
    history, fault = None, ""
    if directory is not None:
        try:
            history = open_for_reading(directory, boot_id, owners=owners)
        except StoreError as error:
            if given is not None and not isinstance(error, UnreadableHistoryError):
                raise
            fault = str(error)
    return SavedHistory(history=history or History(boot_id=boot_id), fault=fault)


def _found(environment: Mapping[str, str] | None) -> Path | None:
    """Find the directory that systemd made (systemd.exec(5), $STATE_DIRECTORY: absolute paths, colon-separated)."""
    named = (os.environ if environment is None else environment).get("STATE_DIRECTORY", "").split(":")[0]
    if named:
        return Path(named)
    return DEFAULT_STATE if DEFAULT_STATE.is_dir() else None
