"""Removal of shared-memory segments that provably nobody has open or mapped, or is about to open."""

import json
import os
import secrets
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from llmhost.act import lease_program
from llmhost.act.lease_program import RemovalRequest, Reply
from llmhost.decide.cleanup.steps import Outcome, Removal, Result
from llmhost.model.segment_names import as_made, hidden_name
from llmhost.runtime.bounded_call import BoundedCall
from llmhost.runtime.line_child import ChildEndedError, LineChild

SETTLE_SECONDS = 0.01  # for an opener to arrive who looked the name up before it was hidden
MOST_SECONDS = 1.0  # that a file takes; an opener waits no longer than that for us, whatever happens to our child
_START_SECONDS = 10.0  # for the child, from a cold disk on a busy machine: nothing is held meanwhile


class _NoAnswerError(Exception):
    """The child does not answer; the text says why, as the predicate of a sentence."""


class Remover:
    """Removes file after file below `shm`, one at a time, each wholly or not at all. Use it in a `with`.

    Two at once spare a file for each other, as each sees that somebody has it.
    """

    def __init__(
        self, shm: Path, *, settle_seconds: float = SETTLE_SECONDS, most_seconds: float = MOST_SECONDS
    ) -> None:
        self._settle_seconds = settle_seconds
        self._most_seconds = most_seconds
        self._shm = shm
        self._root = -1  # until there is something to remove
        self._child: LineChild | None = None

    def remove(self, removal: Removal) -> Outcome:
        """Remove exactly the file that was looked at. The caller has waited for what it is to come after (`after`)."""
        began = time.monotonic()
        result, detail = self._removed(removal)
        return Outcome(step=removal, result=result, detail=detail, seconds=time.monotonic() - began)

    def _removed(self, removal: Removal) -> tuple[Result, str]:
        segment = removal.segment
        if "\\" in segment.path:  # model.segment: bytes that are no text are escaped, and a backslash looks like that
            return Result.FAILED, "its name cannot be told for certain"
        request = RemovalRequest(
            path=segment.path,
            hidden=hidden_name(as_made(segment.path).rpartition("/")[2], secrets.token_hex(4)),
            device=segment.id.device,
            inode=segment.id.inode,
            changed_at=segment.changed_at,
            settle_seconds=self._settle_seconds,
        )
        try:
            child = self._child = self._child or self._started()
        except OSError as error:
            return Result.FAILED, f"cannot check it: {error.strerror}"
        try:
            reply = Reply(**json.loads(_answer(child, self._most_seconds, request)))
        except _NoAnswerError as error:
            self._child = None
            child.end()
            return self._restored(request, f"the check {error}")
        except BaseException:  # we are interrupted, and our child is not
            self._close_child()
            raise
        return Result(reply.result), reply.detail

    def _restored(self, request: RemovalRequest, why: str) -> tuple[Result, str]:
        restoring = BoundedCall(lambda: _restored(self._root, request, why), name="llmhost-restoring")
        try:
            return restoring.result(time.monotonic() + self._most_seconds)
        except TimeoutError:  # its folder is a user's file system by now, and does not answer
            return Result.FAILED, f"{why}, and so does its folder; it may be called {request.hidden} now"

    def _started(self) -> LineChild:
        if self._root < 0:
            self._root = os.open(self._shm, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return _started(self._root)

    def _close_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.finish(self._most_seconds)

    def close(self) -> None:
        try:
            self._close_child()
        finally:
            if self._root >= 0:
                os.close(self._root)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _restored(root: int, request: RemovalRequest, why: str) -> tuple[Result, str]:
    """Give a file its name back that the child had hidden as it was ended; its lease has gone with it."""
    directory = None
    try:
        directory, name = lease_program.directory_of(root, request.path)
        with suppress(FileNotFoundError):  # it was not hidden yet, or not any more
            lease_program.put_back(directory, name, request.hidden)
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return Result.DONE, why
    except FileExistsError:
        return Result.FAILED, f"{why}, and another was made of its name meanwhile: it is called {request.hidden} now"
    except OSError as error:
        return Result.FAILED, f"{why}; it may be called {request.hidden} now: {os.strerror(error.errno or 0)}"
    finally:
        if directory is not None:
            os.close(directory)
    is_there = (found.st_dev, found.st_ino) == (request.device, request.inode)
    return (Result.FAILED, why) if is_there else (Result.GONE, f"{why}; another file has its name by now")


def _started(root: int) -> LineChild:
    """Start the process that holds the leases (one thread, none of our imports) and wait for it. Raises OSError."""
    child = LineChild(
        [sys.executable, "-I", "-S", lease_program.__file__, str(root)], pass_fds=(root,), directory=Path("/")
    )
    try:
        _answer(child, _START_SECONDS)
    except _NoAnswerError as error:
        child.end()
        raise ChildProcessError(0, f"{sys.executable} {error}") from None
    except BaseException:
        child.end()
        raise
    return child


def _answer(child: LineChild, seconds: float, request: RemovalRequest | None = None) -> bytes:
    """Ask, and return the line that comes. Raises _NoAnswerError."""
    try:
        if request is not None:
            child.ask(json.dumps(request._asdict()).encode())
        line = child.answer(time.monotonic() + seconds)
    except ChildEndedError:
        raise _NoAnswerError("was ended by somebody") from None
    if line is None:
        raise _NoAnswerError(f"took longer than {seconds:g} s")
    return line
