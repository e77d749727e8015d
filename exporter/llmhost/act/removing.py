"""Removes files of shared memory of which it is proven, at that moment, that nobody has them or comes for them."""

import errno
import fcntl
import json
import os
import secrets
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from llmhost.act import lease_program
from llmhost.decide.cleanup_plan import Outcome, Removal, Result
from llmhost.model.segment_names import as_made, hidden_name

SETTLE_SECONDS = 0.01  # for an opener to arrive who looked the name up before it was hidden
MOST_SECONDS = 1.0  # that a file takes; an opener waits no longer than that for us, whatever happens to our child


class BusyError(Exception):
    """Another clean-up is at work on the same tmpfs. str() is one line."""


class Remover:
    """Removes file after file below `shm`, one at a time, each wholly or not at all. Use it in a `with`.

    Raises BusyError, and OSError where `shm` cannot be opened. The lock on the directory (flock(2)) needs no file and
    no privilege; who holds it keeps nobody but another Remover from anything.
    """

    def __init__(
        self, shm: Path, *, settle_seconds: float = SETTLE_SECONDS, most_seconds: float = MOST_SECONDS
    ) -> None:
        self._settle_seconds = settle_seconds
        self._most_seconds = most_seconds
        self._root = os.open(shm, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._child: _Child | None = None
        try:
            fcntl.flock(self._root, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._root)
            raise BusyError(f"another llmhost is cleaning {shm} up") from None

    def remove(self, removal: Removal) -> Outcome:
        """Remove exactly the file that was looked at. What the step waits for (`after`) is the caller's matter."""
        began = time.monotonic()
        result, detail = self._removed(removal)
        return Outcome(step=removal, result=result, detail=detail, seconds=time.monotonic() - began)

    def _removed(self, removal: Removal) -> tuple[Result, str]:
        segment = removal.segment
        if "\\" in segment.path or "\n" in segment.path:  # model.segment: bytes that are no text are escaped
            return Result.SPARED, "its name cannot be told for certain"
        hidden = hidden_name(as_made(segment.path).rpartition("/")[2], secrets.token_hex(4))
        asked = lease_program.Asked(
            path=segment.path,
            hidden=hidden,
            device=segment.id.device,
            inode=segment.id.inode,
            changed_at=segment.changed_at,
            settle_seconds=self._settle_seconds,
        )
        told = self._asked(asked)
        if told is None:
            return self._mended(asked)
        return Result(told.result), told.detail

    def _asked(self, asked: lease_program.Asked) -> lease_program.Told | None:
        """Have the child do it; None where it does not answer in time, and then it has been ended."""
        self._child = self._child or _Child(self._root)
        answer = self._child.answer(json.dumps(asked._asdict()).encode() + b"\n", self._most_seconds)
        if answer is None:
            self._end_child()
            return None
        return lease_program.Told(**json.loads(answer))

    def _mended(self, asked: lease_program.Asked) -> tuple[Result, str]:
        """Give a file its name back that the child had hidden as it was ended; its lease has gone with it."""
        late = f"the check took longer than {self._most_seconds:g} s"
        *folders, name = asked.path.split("/")
        directory = os.dup(self._root)
        try:
            for folder in folders:
                below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
                os.close(directory)
                directory = below
            try:
                os.link(asked.hidden, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
            except FileExistsError:
                return Result.SPARED, f"{late}, and another has its name meanwhile: it is called {asked.hidden} now"
            os.unlink(asked.hidden, dir_fd=directory)
        except OSError as error:
            if error.errno != errno.ENOENT:
                return Result.SPARED, f"{late}; it may be called {asked.hidden} now: {os.strerror(error.errno or 0)}"
            return self._never_hidden(directory, name, late)
        finally:
            os.close(directory)
        return Result.SPARED, late

    @staticmethod
    def _never_hidden(directory: int, name: str, late: str) -> tuple[Result, str]:
        """Tell of a file that was not hidden any more, or not yet, when the child was ended."""
        try:
            os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError:
            return Result.DONE, late
        return Result.SPARED, late

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def close(self) -> None:
        self._end_child()
        os.close(self._root)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Child:
    """The process that holds the leases: one thread, none of our imports, nothing of our environment."""

    def __init__(self, root: int) -> None:
        asked, self._asking = os.pipe()
        self._answers, answering = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", lease_program.__file__, str(root)],
            stdin=asked,
            stdout=answering,
            pass_fds=(root,),
            env={},
            cwd="/",
            process_group=0,  # what a terminal sends us is not for it: its step is done whole
        )
        os.close(asked)
        os.close(answering)

    def answer(self, line: bytes, seconds: float) -> bytes | None:
        """Give its line in answer; None where it has not come by then, or never will."""
        until = time.monotonic() + seconds
        found = b""
        with suppress(BrokenPipeError):
            os.write(self._asking, line)
            while not found.endswith(b"\n"):
                ready, _, _ = select.select([self._answers], [], [], max(0.0, until - time.monotonic()))
                piece = os.read(self._answers, 4096) if ready else b""
                if not piece:
                    return None
                found += piece
        return found or None

    def end(self) -> None:
        """End it, also where it is stopped; what it held is free with that."""
        os.close(self._asking)
        os.close(self._answers)
        self._process.kill()
        self._process.wait()
