"""A request for a driver pause: the file `release` in the run directory, written by the command `llmhost release`.

Its time is on CLOCK_BOOTTIME, which nobody sets and which counts a suspend, and it is valid for the boot that it names:
after another it is over, also where the run directory is not empty then. The latest request replaces the one before.
A file that is neither root's nor of our own user is ignored.
"""

import json
import logging
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

from llmhost.runtime.trusted_path import trusted_owners
from llmhost.state.directory import StoreError, read_file
from llmhost.state.run_directory import make_directory, replace_in, trusted_directory

FORMAT = "llmhost driver release"
VERSION = 1
NAME = "release"
MOST_SECONDS = 3600.0
_MOST_BYTES = 4096
_ROUNDING_SECONDS = 1.0

log = logging.getLogger(__name__)


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def ask(run_directory: Path, *, boot_id: str, until_boottime_seconds: float) -> None:
    """Write a request. Raises StoreError."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "boot_id": boot_id,
        "until_boottime_seconds": float(until_boottime_seconds),
    }
    try:
        make_directory(run_directory)
        with trusted_directory(run_directory) as directory:
            replace_in(directory, NAME, json.dumps(document).encode() + b"\n")
    except OSError as error:
        raise StoreError(f"{run_directory / NAME} cannot be written: {error.strerror}") from error


def withdraw(run_directory: Path) -> bool:
    """Remove the request; False where there was none. Raises StoreError."""
    try:
        with trusted_directory(run_directory) as directory:
            os.unlink(NAME, dir_fd=directory)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(f"{run_directory / NAME} cannot be removed: {error.strerror}") from error
    return True


class PauseRequest:
    """The request that is in force. The file is read only when it has changed: else a check costs one stat(2)."""

    def __init__(self, run_directory: Path, *, boot_id: str, boottime: Callable[[], float] = boottime) -> None:
        self._path = run_directory / NAME
        self._boot_id = boot_id
        self._boottime = boottime
        self._read_stat: tuple[int, ...] | None = None
        self._until = -math.inf

    def remaining_seconds(self) -> float:
        """Return the rest of the pause; 0.0 where none is requested."""
        try:
            found = self._path.lstat()
        except OSError:
            self._read_stat, self._until = None, -math.inf
            return 0.0
        current = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if current != self._read_stat:
            self._read_stat, self._until = current, -math.inf
            try:
                self._until = self._read()
            except FileNotFoundError:  # withdrawn at this moment
                self._read_stat = None
            except (OSError, ValueError) as error:
                log.warning("%s is no valid request: %s", self._path, error)
        return max(0.0, self._until - self._boottime())

    def _read(self) -> float:
        document = json.loads(read_file(self._path, _MOST_BYTES, owners=trusted_owners()).decode())
        if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
            raise ValueError(f'it does not say "format": "{FORMAT}", "version": {VERSION}')
        if document.get("boot_id") != self._boot_id:
            return -math.inf  # over, and no mistake
        until = document.get("until_boottime_seconds")
        if not isinstance(until, float) or not until <= self._boottime() + MOST_SECONDS + _ROUNDING_SECONDS:
            raise ValueError(f"its time is none, or more than {MOST_SECONDS:.0f} s ahead")
        return until
