"""Records of guard runs: a file for each unit in `guards/` of the run directory, which is empty after a boot.

A guard replaces its unit's file as a whole (rename(2)), and adds to its counts. Several guards may do so at once. Files
of users other than root and our own are ignored.
"""

import contextlib
import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from llmhost.model.guard_run import GuardRun, GuardVerdict
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause
from llmhost.runtime.trusted_path import trusted_owners
from llmhost.sources.base import SourceError
from llmhost.state.directory import StoreError, read_file
from llmhost.state.json_codec import DecodeError, EncodeCache, codec_of
from llmhost.state.run_directory import make_directory, replace_in, trusted_directory

FORMAT = "llmhost guard record"
VERSION = 1
FOLDER = "guards"
_LOCK = ".lock"
_LOCK_SECONDS = 0.2  # a guard that was stopped as it wrote is not waited for any longer
_LOCK_STEP_SECONDS = 0.01
_MOST_BYTES = 64 << 10
_MOST_RECORDS = 1000

log = logging.getLogger(__name__)


def record(run_directory: Path, unit: UnitId, verdict: GuardVerdict, *, at: float, wait_seconds: float) -> None:
    """Add a run to the unit's record. Raises StoreError."""
    folder = run_directory / FOLDER
    if "/" in unit.name or unit.name.startswith("."):
        raise StoreError(f"{unit.name} is no unit's name")
    try:
        make_directory(folder)
        with trusted_directory(folder) as directory, _lock(directory):
            try:
                before = dict(_read(folder / unit.name).runs_total)
            except (OSError, ValueError):  # none yet, or not one of ours
                before = {}
            before[verdict] = before.get(verdict, 0) + 1
            run = GuardRun(unit=unit, at=at, wait_seconds=wait_seconds, verdict=verdict, runs_total=before)
            replace_in(directory, unit.name, _document(run))
    except OSError as error:
        raise StoreError(f"{folder / unit.name} cannot be written: {error.strerror}") from error


class GuardRecords:
    """Source[tuple[GuardRun, ...]]: the latest run of each unit's guard, by unit; () where no guard ever ran."""

    def __init__(self, run_directory: Path) -> None:
        self._folder = run_directory / FOLDER
        self._logged: set[str] = set()

    def read(self, deadline: float) -> tuple[GuardRun, ...]:
        """Read all records. Raises SourceError(NO_PERMISSION, UNKNOWN, TIMEOUT)."""
        try:
            names = sorted(path.name for path in self._folder.iterdir() if not path.name.startswith("."))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            cause = Cause.NO_PERMISSION if isinstance(error, PermissionError) else Cause.UNKNOWN
            raise SourceError(cause, f"{self._folder}: {error.strerror}") from error
        found = []
        for name in names[:_MOST_RECORDS]:
            if time.monotonic() > deadline:
                raise SourceError(Cause.TIMEOUT, self.doing())
            try:
                run = _read(self._folder / name)
                if run.unit.name != name:
                    raise ValueError(f"it is of {run.unit.name[:80]}")  # noqa: TRY301 - handled as any other fault of it
                found.append(run)
            except FileNotFoundError:  # replaced meanwhile
                continue
            except (OSError, ValueError) as error:
                if name not in self._logged:
                    self._logged.add(name)
                    log.warning("%s is no valid record of a guard: %s", self._folder / name, error)
        return tuple(found)

    def doing(self) -> str:
        return f"reading {self._folder}"

    def close(self) -> None:
        """Nothing is held open."""


def _document(run: GuardRun) -> bytes:
    head = json.dumps({"format": FORMAT, "version": VERSION}, separators=(",", ":"))[:-1]
    return f'{head},"run":{codec_of(GuardRun).encode(run, EncodeCache())}}}\n'.encode("ascii")


def _read(path: Path) -> GuardRun:
    """Read a record; raises OSError, or ValueError for a file that is none, or of another user."""
    document = json.loads(read_file(path, _MOST_BYTES, owners=trusted_owners()).decode())
    if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
        raise DecodeError(f'it does not say "format": "{FORMAT}", "version": {VERSION}')
    return cast("GuardRun", codec_of(GuardRun).decode(document.get("run")))


@contextlib.contextmanager
def _lock(directory: int) -> Iterator[None]:
    """Keep other guards of this unit from counting at the same time, but do not wait for one that is stopped."""
    lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=directory)
    try:
        until = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(_LOCK_STEP_SECONDS)
        yield
    finally:
        os.close(lock)
