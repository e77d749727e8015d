"""Where `serve` keeps its history: which state directory, and what there is to say of it."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llmhost.model.history.history import Ledger
from llmhost.state.directory import StoreError
from llmhost.state.saving import Saving
from llmhost.state.history_file import LedgerStore, UnreadableLedgerError, open_for_reading

USUAL = Path("/var/lib/llmhost")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What earlier runs have left, and the way to leave something; without a store there is none."""

    ledger: Ledger
    store: LedgerStore | None = None
    save: Saving | None = None
    fault: str = ""  # why there is no store, though there is a directory

    def tell(self) -> None:
        """Say in the log where history is kept."""
        if self.store is not None:
            log.info("history is kept in %s; units in it: %d", self.store.path, len(self.ledger.units))
        elif self.fault:
            log.warning("history is kept in memory only, and lost at the end: %s", self.fault)
        else:
            log.info("history is kept in memory only, and lost at the end: say with --state-dir where to keep it")

    def close(self, ledger: Ledger) -> None:
        """Save for the last time, so that it stays also if the power fails, and let go of the directory."""
        if self.store is not None and self.save is not None:
            self.save(ledger, durable=True)
            self.store.close()


def opened(given: Path | None, boot_id: str, environment: Mapping[str, str] | None = None) -> Memory:
    """Open the state directory; StoreError where one was given and cannot be used. Any other is done without."""
    directory = given or _found(environment)
    if directory is None:
        return Memory(ledger=Ledger(boot_id=boot_id))
    try:
        store = LedgerStore(directory)
    except StoreError as error:
        if given is not None:
            raise
        return Memory(ledger=Ledger(boot_id=boot_id), fault=str(error))
    return Memory(ledger=store.load(boot_id) or Ledger(boot_id=boot_id), store=store, save=Saving(store))


def recalled(given: Path | None, boot_id: str, environment: Mapping[str, str] | None = None) -> Memory:
    """Read what was saved last, and change nothing. Raises StoreError where a directory was given that is none."""
    directory = given or _found(environment)
    ledger, fault = None, ""
    if directory is not None:
        try:
            ledger = open_for_reading(directory, boot_id)
        except StoreError as error:
            if given is not None and not isinstance(error, UnreadableLedgerError):
                raise
            fault = str(error)
            log.warning("there is no history: %s", error)
    return Memory(ledger=ledger or Ledger(boot_id=boot_id), fault=fault)


def _found(environment: Mapping[str, str] | None) -> Path | None:
    """Find what systemd made for us (systemd.exec(5), $STATE_DIRECTORY: absolute paths, separated by colons)."""
    named = (os.environ if environment is None else environment).get("STATE_DIRECTORY", "").split(":")[0]
    if named:
        return Path(named)
    return USUAL if USUAL.is_dir() else None
