"""One NVML child process, seen from the exporter: asked, waited for, killed, and never waited for without a limit."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from llmhost.model.reading import StuckCall
from llmhost.sources.nvml import current_call as crumbs
from llmhost.sources.nvml import xid_counters as tallies
from llmhost.sources.nvml.current_call import Crumb, CrumbReader
from llmhost.sources.nvml.wire import Question
from llmhost.sources.nvml.xid_counters import Seen, TallyReader, XidKey

_MOST_ANSWER_BYTES = 16 << 20  # 32 GPUs with 2048 processes are 5 MB
_REAP_STEP_SECONDS = 0.01


class ChildEndedError(Exception):
    """The child is gone; the text says how."""


class Child:
    """A running child. All but `crumb`, `stuck`, `doing` and `kill` are for one thread at a time."""

    def __init__(
        self,
        *,
        python: str,
        procfs: Path,
        environment: Mapping[str, str] | None,
        unsupported_seconds: float,
        wake: int,
        monotonic: Callable[[], float],
    ) -> None:
        """Start it. `wake` is a file descriptor that ends any wait when it becomes readable."""
        self.has_answered = False
        self._wake = wake
        self._monotonic = monotonic
        self._received = bytearray()
        crumb, tally = crumbs.create(), tallies.create()
        options = ["--procfs", str(procfs), "--unsupported-seconds", str(unsupported_seconds)]
        options += ["--crumb-fd", str(crumb), "--tally-fd", str(tally)]
        self._crumb = CrumbReader(crumb)
        self._tally = TallyReader(tally)
        try:
            self._process = subprocess.Popen(
                # -P: the directory that the exporter was started in has no say in what is imported; -I: nor has the
                # environment, where it has none in ours
                [python, "-I" if sys.flags.isolated else "-P", "-m", "llmhost.sources.nvml.child.worker", *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                pass_fds=(crumb, tally),
                env=None if environment is None else {**os.environ, **environment},
                process_group=0,  # Ctrl-C is for us: the child ends when its stdin does
            )
        except OSError:
            self._crumb.close()
            self._tally.close()
            raise
        finally:
            os.close(crumb)
            os.close(tally)
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError
        self._questions = self._process.stdin
        self._answers = self._process.stdout
        os.set_blocking(self._answers.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def crumb(self) -> Crumb | None:
        """Say which call it is in; from any thread."""
        try:
            return self._crumb.read()
        except ValueError:  # let go of meanwhile
            return None

    def stuck(self) -> StuckCall | None:
        crumb = self.crumb()
        if crumb is None:
            return None
        return StuckCall(crumb.call, "" if crumb.gpu is None else str(crumb.gpu), self._seconds_in(crumb))

    def doing(self) -> str:
        crumb = self.crumb()
        if crumb is None:
            return "the NVML child is in no call: starting, stopped, or idle"
        about = "" if crumb.gpu is None else f" on GPU {crumb.gpu}"
        return f"{crumb.call}{about} for {self._seconds_in(crumb):.1f} s"

    def xids(self) -> Mapping[XidKey, Seen]:
        """Return the XID events that it has seen since it started; also when it has ended."""
        return self._tally.read()

    def ask(self, question: Question) -> None:
        """Raise ChildEndedError when nobody is there to be asked."""
        line = json.dumps(question).encode() + b"\n"
        try:
            os.write(self._questions.fileno(), line)  # one question at a time fits into the pipe's buffer
        except BrokenPipeError:
            raise ChildEndedError(self._how_it_ended()) from None

    def answer(self, until: float) -> bytes | None:
        """Wait for one line until then on the clock; None if it has not come, or if the wait was ended by `wake`."""
        poll = select.poll()
        poll.register(self._answers.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while b"\n" not in self._received:
            remaining = until - self._monotonic()
            ready = [fd for fd, _ in poll.poll(max(0.0, remaining) * 1000)]
            if self._wake in ready or not ready:
                return None
            data = os.read(self._answers.fileno(), 1 << 16)
            if not data or len(self._received) > _MOST_ANSWER_BYTES:
                raise ChildEndedError(self._how_it_ended() if not data else "its answer has no end")
            self._received += data
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received = bytearray(rest)
        self.has_answered = True
        return line

    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill it without waiting; from any thread."""
        self._process.kill()

    def reaped(self, within_seconds: float) -> bool:
        """Wait for the end of a killed child; False for one that the kernel does not let go of (state D)."""
        until = time.monotonic() + within_seconds
        while self._process.poll() is None:
            if time.monotonic() >= until:
                return False
            time.sleep(_REAP_STEP_SECONDS)
        return True

    def let_go(self) -> None:
        """Close what connects us to it."""
        self._questions.close()
        self._answers.close()
        self._crumb.close()
        self._tally.close()

    def give_up(self) -> None:
        """Forget a killed child that cannot be reaped; init will reap it after us."""
        if self._process.poll() is None:
            self._process.returncode = -signal.SIGKILL  # or else its finaliser warns of a running process

    def _seconds_in(self, crumb: Crumb) -> float:
        return max(0.0, self._monotonic() - crumb.since)

    def _how_it_ended(self) -> str:
        if not self.reaped(0.2):
            return "it closed its end and runs on"
        status = self._process.returncode
        return f"it was ended by signal {-status}" if status < 0 else f"it ended with status {status}"
