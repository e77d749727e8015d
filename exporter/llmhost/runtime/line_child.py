"""A child process that is asked line by line over pipes, and never waited for without a limit."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PIECE_BYTES = 1 << 16
_END_SECONDS = 0.2  # for a child that has closed its stdout to end
_DEATH_SECONDS = 1.0  # for a killed one


class ChildEndedError(Exception):
    """No answer will come any more; the text says why."""


class LineChild:
    """A child that reads questions from its stdin and writes answers to its stdout, each one line.

    `pid` and `kill` are for any thread, all else for one thread at a time.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        most_answer_bytes: int = 1 << 16,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start it. Raises OSError.

        It has a process group of its own: Ctrl-C is for us, and the child ends when its stdin does.
        """
        self._most_answer_bytes = most_answer_bytes
        self._monotonic = monotonic
        self._received = bytearray()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            pass_fds=pass_fds,
            env=environment,
            cwd=directory,
            process_group=0,
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError
        self._questions = self._process.stdin
        self._answers = self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, question: bytes) -> None:
        """Write one line. One question at a time fits into the pipe's buffer. Raises ChildEndedError."""
        try:
            os.write(self._questions.fileno(), question + b"\n")
        except BrokenPipeError:
            raise ChildEndedError(self._how_it_ended()) from None

    def answer(self, until: float, wake: int | None = None) -> bytes | None:
        """Wait for one line until then on the clock; None if it has not come.

        `wake` is a file descriptor that ends the wait when it becomes readable. Raises ChildEndedError.
        """
        poll = select.poll()
        poll.register(self._answers.fileno(), select.POLLIN)
        if wake is not None:
            poll.register(wake, select.POLLIN)
        while b"\n" not in self._received:
            ready = [fd for fd, _ in poll.poll(max(0.0, until - self._monotonic()) * 1000)]
            if wake in ready or not ready:
                return None
            data = os.read(self._answers.fileno(), _PIECE_BYTES)
            if not data or len(self._received) > self._most_answer_bytes:
                raise ChildEndedError(self._how_it_ended() if not data else "its answer has no end")
            self._received += data
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received = bytearray(rest)
        return line

    def alive(self) -> bool:
        return self._process.poll() is None

    def ended(self, within_seconds: float) -> bool:
        """Wait for its end; False for one that goes on, as a killed one does that the kernel keeps (state D)."""
        try:
            self._process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def finish(self, within_seconds: float) -> None:
        """Let it end by itself, when it has done what it does; by force after that time."""
        self._questions.close()
        self.ended(within_seconds)
        self.end()

    def end(self) -> None:
        """Kill it, also where it is stopped, and close the pipes. A child that the kernel keeps is left."""
        self.kill()
        self.close()
        if not self.ended(_DEATH_SECONDS):
            self.abandon()

    def kill(self) -> None:
        """Kill it without waiting."""
        self._process.kill()

    def close(self) -> None:
        """Close the pipes."""
        self._questions.close()
        self._answers.close()

    def abandon(self) -> None:
        """Forget a killed child that does not end; init will reap it after us."""
        if self._process.poll() is None:
            self._process.returncode = -signal.SIGKILL  # or else its finaliser warns of a running process

    def _how_it_ended(self) -> str:
        if not self.ended(_END_SECONDS):
            return "it closed its end and runs on"
        status = self._process.returncode
        return f"it was ended by signal {-status}" if status < 0 else f"it ended with status {status}"
