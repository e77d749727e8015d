"""The files that a run of the guard begins with: the config, and the exporter's history.

Both may lie where nothing answers (a network file system, a disk that fails), and a guard that hangs starts nothing.
"""

import logging
import os
import time
from dataclasses import dataclass

from llmhost.assemble.sources import Sources
from llmhost.config.paths import DEFAULT_CONFIG, DEFAULT_STATE
from llmhost.config.schema import Config
from llmhost.guard.request import GuardRequest
from llmhost.model.history.history import History
from llmhost.runtime.bounded_call import BoundedCall

log = logging.getLogger(__name__)

_READ_SECONDS = 3.0  # for both together


class WrongUseError(Exception):
    """str() is one line, fit for a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    config: Config
    history: History
    fault: str = ""  # why the config is not used


def read_files(request: GuardRequest, sources: Sources, *, strict: bool) -> Files:
    """Read both, within _READ_SECONDS; without, there are defaults and no history.

    Raises WrongUseError for what is wrong with either if `strict`: a person sees it, and can fix it. In a
    service's start it must not keep a fleet from starting.
    """
    until = time.monotonic() + _READ_SECONDS
    reading_config = BoundedCall(lambda: _config(request), name="llmhost-config")
    reading_history = BoundedCall(lambda: _history(request, sources), name="llmhost-history")
    config, history, fault = Config(), History(), ""
    try:
        config = reading_config.result(until)
    except (WrongUseError, TimeoutError) as error:
        if strict and isinstance(error, WrongUseError):
            raise
        fault = str(error) or f"the config does not answer: {request.config or DEFAULT_CONFIG}"
    try:
        history = reading_history.result(until)
    except (WrongUseError, TimeoutError) as error:
        if strict and isinstance(error, WrongUseError):
            raise
        where = request.state_directory or DEFAULT_STATE
        log.warning("there is no history: %s", str(error) or f"{where} does not answer")
    return Files(config=config, history=history, fault=fault)


def _config(request: GuardRequest) -> Config:
    if request.config is None and not os.path.lexists(DEFAULT_CONFIG):
        return Config()
    from llmhost.config.load import ConfigError, load  # takes time, and mostly there is none

    try:
        return load(request.config)
    except ConfigError as error:
        raise WrongUseError(str(error)) from None


def _history(request: GuardRequest, sources: Sources) -> History:
    """Read the exporter's history. $STATE_DIRECTORY is the guarded service's, not the exporter's."""
    if request.state_directory is None and not DEFAULT_STATE.is_dir():
        return History(boot_id=sources.boot_id)
    from llmhost.runtime.trusted_path import trusted_owners
    from llmhost.state.directory import StoreError  # takes time
    from llmhost.state.saved_history import read_history

    try:
        saved = read_history(request.state_directory, sources.boot_id, {}, owners=trusted_owners())
    except StoreError as error:
        raise WrongUseError(str(error)) from None
    if saved.fault and request.state_directory is not None:
        raise WrongUseError(saved.fault)
    return saved.history
