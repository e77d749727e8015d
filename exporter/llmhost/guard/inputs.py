"""The files that a run of the guard begins with: the config, and the exporter's history.

Both may lie where nothing answers (a network file system, a disk that fails), and a guard that hangs starts nothing. So
each is read in a thread of its own, and read again a second after it has failed, until it is there.
"""

import os
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from llmhost.assemble.sources import Sources
from llmhost.config.paths import DEFAULT_CONFIG, DEFAULT_STATE
from llmhost.config.schema import Config
from llmhost.decide.guard.trouble import FILE_SECONDS
from llmhost.guard.request import GuardRequest
from llmhost.model.history.history import History
from llmhost.model.reading import Cause, Failed, Ok, Reading
from llmhost.runtime.bounded_call import BoundedCall

_AGAIN_SECONDS = 1.0  # between two tries

T = TypeVar("T")


class WrongUseError(Exception):
    """str() is one line, fit for a terminal."""


class FileReading(Generic[T]):
    """One file, from now on."""

    def __init__(self, read: Callable[[], T], *, name: str, silent: str, strict: bool) -> None:
        """`silent` tells people that it does not answer. `strict` raises what is wrong with it: a person can fix it.

        In a service's start that must not keep a fleet from starting.
        """
        self._read = read
        self._name = name
        self._silent = silent
        self._strict = strict
        self._call: BoundedCall[T] | None = None
        self._began = time.monotonic()
        self._again_at = self._began
        self._told_silent = False
        self._is_read = False
        self._begin_when_due()

    def take(self) -> Reading[T] | None:
        """Give what has come since the last time; None: nothing has. Raises WrongUseError if it is strict."""
        if self._is_read:
            return None
        call = self._begin_when_due()
        if call is None:
            return None
        if not call.is_done:
            return self._late()
        try:
            value = call.result(time.monotonic())
        except WrongUseError as error:
            if self._strict:
                raise
            return self._failed(Cause.MALFORMED, str(error))
        except OSError as error:  # of a disk that fails, or a stale mount
            return self._failed(Cause.UNKNOWN, f"{error.filename}: {error.strerror}")
        self._is_read = True
        return Ok(value)

    def _failed(self, cause: Cause, why: str) -> Failed:
        self._call, self._again_at = None, time.monotonic() + _AGAIN_SECONDS
        return Failed(cause, why)

    def _begin_when_due(self) -> BoundedCall[T] | None:
        if self._call is None and time.monotonic() >= self._again_at:
            self._call = BoundedCall(self._read, name=f"llmhost-{self._name}")
        return self._call

    def _late(self) -> Failed | None:
        if self._told_silent or time.monotonic() - self._began < FILE_SECONDS:
            return None
        self._told_silent = True
        return Failed(Cause.TIMEOUT, self._silent)


class Files:
    """Both, from now on."""

    def __init__(self, request: GuardRequest, sources: Sources, *, strict: bool) -> None:
        config = request.config or DEFAULT_CONFIG
        self.config = FileReading(
            lambda: _config(request), name="config", silent=f"the config does not answer: {config}", strict=strict
        )
        state = request.state_directory or DEFAULT_STATE
        self.history = FileReading(
            lambda: _history(request, sources, strict=strict),
            name="history",
            silent=f"{state} does not answer",
            strict=strict,
        )


def _config(request: GuardRequest) -> Config:
    if request.config is None and not os.path.lexists(DEFAULT_CONFIG):
        return Config()
    from llmhost.config.load import ConfigError, load  # takes time, and mostly there is none

    try:
        return load(request.config)
    except ConfigError as error:
        raise WrongUseError(str(error)) from None


def _history(request: GuardRequest, sources: Sources, *, strict: bool) -> History:
    """Read the exporter's history. $STATE_DIRECTORY is the guarded service's, not the exporter's."""
    if request.state_directory is None and not DEFAULT_STATE.is_dir():
        return History(boot_id=sources.boot_id)
    from llmhost.runtime.trusted_path import trusted_owners
    from llmhost.state.directory import StoreError  # takes time
    from llmhost.state.history_file import HISTORY
    from llmhost.state.saved_history import read_history

    if request.state_directory is None and not os.access(DEFAULT_STATE / HISTORY, os.R_OK):
        return History(boot_id=sources.boot_id)  # there is none yet, or it is not for us
    try:
        saved = read_history(request.state_directory, sources.boot_id, {}, owners=trusted_owners())
    except StoreError as error:
        raise WrongUseError(str(error)) from None
    if saved.fault and (request.state_directory is not None or not strict):
        raise WrongUseError(saved.fault)
    return saved.history
