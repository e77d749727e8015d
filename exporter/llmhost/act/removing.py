"""Removes files of shared memory of which it is proven, at that moment, that nobody has them or comes for them."""

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
from llmhost.act.lease_program import Asked, Told
from llmhost.decide.cleanup.steps import Outcome, Removal, Result
from llmhost.model.segment_names import as_made, hidden_name

SETTLE_SECONDS = 0.01  # for an opener to arrive who looked the name up before it was hidden
MOST_SECONDS = 1.0  # that a file takes; an opener waits no longer than that for us, whatever happens to our child
_START_SECONDS = 10.0  # for the child, from a cold disk on a busy machine: nothing is held meanwhile
_DEATH_SECONDS = 1.0


class BusyError(Exception):
    """Another clean-up is at work on the same tmpfs. str() is one line."""


class Remover:
    """Removes file after file below `shm`, one at a time, each wholly or not at all. Use it in a `with`.

    Raises BusyError, and OSError where `shm` cannot be opened. The lock on the directory (flock(2)) needs no file and
    no privilege; who holds it keeps nobody but another Remover from anything. Our child has it too, until it ends.
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
        if "\\" in segment.path:  # model.segment: bytes that are no text are escaped, and a backslash looks like that
            return Result.SPARED, "its name cannot be told for certain"
        asked = Asked(
            path=segment.path,
            hidden=hidden_name(as_made(segment.path).rpartition("/")[2], secrets.token_hex(4)),
            device=segment.id.device,
            inode=segment.id.inode,
            changed_at=segment.changed_at,
            settle_seconds=self._settle_seconds,
        )
        try:
            child = self._child = self._child or _Child(self._root)
        except OSError as error:
            return Result.DENIED, f"cannot check it: {error.strerror}"
        try:
            told = Told(**json.loads(child.answer(self._most_seconds, asked._asdict())))
        except (TimeoutError, EOFError) as error:
            self._child = None
            child.kill()
            return _mended(self._root, asked, f"the check {error}")
        except BaseException:  # we are interrupted, and our child is not
            self._close_child()
            raise
        return Result(told.result), told.detail

    def _close_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.finish(self._most_seconds)

    def close(self) -> None:
        try:
            self._close_child()
        finally:
            os.close(self._root)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _mended(root: int, asked: Asked, why: str) -> tuple[Result, str]:
    """Give a file its name back that the child had hidden as it was ended; its lease has gone with it."""
    directory = None
    try:
        directory, name = lease_program.directory_of(root, asked.path)
        with suppress(FileNotFoundError):  # it was not hidden yet, or not any more
            lease_program.put_back(directory, name, asked.hidden)
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return Result.DONE, why
    except FileExistsError:
        return Result.SPARED, f"{why}, and another was made of its name meanwhile: it is called {asked.hidden} now"
    except OSError as error:
        return Result.SPARED, f"{why}; it may be called {asked.hidden} now: {os.strerror(error.errno or 0)}"
    finally:
        if directory is not None:
            os.close(directory)
    is_there = (found.st_dev, found.st_ino) == (asked.device, asked.inode)
    return (Result.SPARED, why) if is_there else (Result.GONE, f"{why}; another file has its name by now")


class _Child:
    """The process that holds the leases: one thread, and none of our imports."""

    def __init__(self, root: int) -> None:
        """Start it, and wait until it is there. Raises OSError."""
        asked, self._asking = os.pipe()
        self._answers, answering = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", lease_program.__file__, str(root)],
                stdin=asked,
                stdout=answering,
                pass_fds=(root,),
                cwd="/",
                process_group=0,  # what a terminal sends us is not for it: its step is done whole
            )
        except OSError:
            self._let_go()
            raise
        finally:
            os.close(asked)
            os.close(answering)
        try:
            self.answer(_START_SECONDS)
        except (TimeoutError, EOFError) as error:
            self.kill()
            raise ChildProcessError(0, f"{sys.executable} {error}") from None
        except BaseException:
            self.kill()
            raise

    def answer(self, seconds: float, question: object = None) -> bytes:
        """Ask, and give the line that comes. Raises TimeoutError, and EOFError where none will come any more."""
        until = time.monotonic() + seconds
        found = b""
        if question is not None:
            try:
                os.write(self._asking, json.dumps(question).encode() + b"\n")
            except BrokenPipeError:
                raise EOFError("was ended by somebody") from None
        answers = select.poll()
        answers.register(self._answers, select.POLLIN)
        while not found.endswith(b"\n"):
            if not answers.poll(max(0.0, until - time.monotonic()) * 1000):
                raise TimeoutError(f"took longer than {seconds:g} s")
            piece = os.read(self._answers, 4096)
            if not piece:
                raise EOFError("was ended by somebody")
            found += piece
        return found

    def finish(self, seconds: float) -> None:
        """Let it end by itself, when it has done what it does; by force after that time."""
        os.close(self._asking)
        self._asking = -1
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            self._let_go()

    def kill(self) -> None:
        """End it, also where it is stopped; what it held is free with that. One that hangs in the kernel is left."""
        self._let_go()
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_DEATH_SECONDS)

    def _let_go(self) -> None:
        for descriptor in (self._asking, self._answers):
            if descriptor >= 0:
                os.close(descriptor)
        self._asking = self._answers = -1
