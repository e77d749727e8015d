"""What the guard is told by files: the config, and what the exporter remembers.

Both may lie where nothing answers (a network file system, a disk that fails), and a guard that hangs starts nothing.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from llmhost.config.schema import Config
from llmhost.guard.request import GuardRequest
from llmhost.model.history.history import History

T = TypeVar("T")

log = logging.getLogger(__name__)

_USUAL_CONFIG = Path("/etc/llmhost/llmhost.yml")
_USUAL_STATE = Path("/var/lib/llmhost")
_READ_SECONDS = 3.0  # for both together


class WrongUseError(Exception):
    """str() is one line, fit for a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    config: Config
    history: History
    fault: str = ""  # why the config is not the one that somebody wrote


def read_told(given: GuardRequest, procfs: Path, *, needed: bool) -> Told:
    """Read both, within _READ_SECONDS; without, there are defaults and no history.

    Raises WrongUseError for what is wrong with either, where they are `needed`: somebody sees it who can mend it. In a
    service's start it must not keep a fleet from starting.
    """
    until = time.monotonic() + _READ_SECONDS
    config, history = _Reading(lambda: _config(given)), _Reading(lambda: _history(given, procfs))
    fault = ""
    try:
        found = config.answer(until)
    except (WrongUseError, TimeoutError) as error:
        if needed and isinstance(error, WrongUseError):
            raise
        found = Config()
        fault = str(error) or f"the config does not answer: {given.config or _USUAL_CONFIG}"
    try:
        remembered = history.answer(until)
    except (WrongUseError, TimeoutError) as error:
        if needed and isinstance(error, WrongUseError):
            raise
        where = given.state_directory or _USUAL_STATE
        log.warning("there is no history: %s", str(error) or f"{where} does not answer")
        remembered = History()
    return Told(config=found, history=remembered, fault=fault)


class _Reading(Generic[T]):
    """Something that is read in a thread of its own, which is left behind where it hangs."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._found: list[T] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="llmhost-told", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found.append(self._read())
        except Exception as error:  # noqa: BLE001 - whoever asks gets it
            self._error = error

    def answer(self, until: float) -> T:
        """Give what was read, or raise what came of it; TimeoutError when that has not come `until` then."""
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._error is not None:
            raise self._error
        if not self._found:
            raise TimeoutError
        return self._found[0]


def _config(given: GuardRequest) -> Config:
    if given.config is None and not os.path.lexists(_USUAL_CONFIG):
        return Config()
    from llmhost.config.load import ConfigError, load  # noqa: PLC0415 - takes time, and mostly there is none

    try:
        return load(given.config, default=_USUAL_CONFIG)
    except ConfigError as error:
        raise WrongUseError(str(error)) from None


def _history(given: GuardRequest, procfs: Path) -> History:
    """Read what the exporter remembers. $STATE_DIRECTORY is the service's that is guarded, not ours."""
    directory = given.state_directory or _USUAL_STATE
    try:
        boot_id = (procfs / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot_id = ""
    if given.state_directory is None and not directory.is_dir():
        return History(boot_id=boot_id)
    from llmhost.state.directory import StoreError, trusted_owners  # noqa: PLC0415 - takes time
    from llmhost.state.history_file import open_for_reading  # noqa: PLC0415

    try:
        found = open_for_reading(directory, boot_id, owners=trusted_owners())
    except StoreError as error:
        if given.state_directory is not None:
            raise WrongUseError(str(error)) from None
        found = None
    return found or History(boot_id=boot_id)
