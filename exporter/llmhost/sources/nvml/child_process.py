"""NVML child processes, seen from the exporter."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from llmhost.model.reading import Cause, StuckCall
from llmhost.runtime.line_child import LineChild
from llmhost.sources.base import SourceError
from llmhost.sources.nvml import current_call, xid_counters
from llmhost.sources.nvml.current_call import CurrentCall, CurrentCallReader
from llmhost.sources.nvml.wire import Question
from llmhost.sources.nvml.xid_counters import XidCount, XidCounterReader, XidKey

_MOST_ANSWER_BYTES = 16 << 20  # 32 GPUs with 2048 processes are 5 MB
_MOST_ABANDONED = 2  # children that were killed and do not die


class NvmlChild:
    """A running child. `pid`, `current_call`, `stuck`, `doing` and `kill` are for any thread, all else for one."""

    def __init__(
        self,
        *,
        python: str,
        procfs: Path,
        environment: Mapping[str, str] | None,
        unsupported_seconds: float,
        monotonic: Callable[[], float],
    ) -> None:
        """Start it. Raises OSError; ChildEndedError comes of questions and answers."""
        self.has_answered = False
        self._monotonic = monotonic
        memory = call_fd, xids_fd = current_call.create(), xid_counters.create()
        options = ["--procfs", str(procfs), "--unsupported-seconds", str(unsupported_seconds)]
        options += ["--current-call-fd", str(call_fd), "--xid-counters-fd", str(xids_fd)]
        self._call = CurrentCallReader(call_fd)
        self._xids = XidCounterReader(xids_fd)
        try:
            self._process = LineChild(
                # -P: the directory that the exporter was started in has no say in what is imported; -I: nor has the
                # environment, where it has none in ours
                [python, "-I" if sys.flags.isolated else "-P", "-m", "llmhost.sources.nvml.child.worker", *options],
                pass_fds=memory,
                environment=None if environment is None else {**os.environ, **environment},
                most_answer_bytes=_MOST_ANSWER_BYTES,
                monotonic=monotonic,
            )
        except OSError:
            self._close_memory()
            raise
        finally:
            for descriptor in memory:
                os.close(descriptor)
        self.alive = self._process.alive
        self.kill = self._process.kill
        self.ended = self._process.ended
        self.abandon = self._process.abandon

    @property
    def pid(self) -> int:
        return self._process.pid

    def current_call(self) -> CurrentCall | None:
        """Return the call that it is in."""
        try:
            return self._call.read()
        except ValueError:  # closed meanwhile
            return None

    def stuck(self) -> StuckCall | None:
        call = self.current_call()
        if call is None:
            return None
        return StuckCall(call.name, "" if call.gpu is None else str(call.gpu), self._seconds_in(call))

    def doing(self) -> str:
        call = self.current_call()
        if call is None:
            return "the NVML child is in no call: starting, stopped, or idle"
        about = "" if call.gpu is None else f" on GPU {call.gpu}"
        return f"{call.name}{about} for {self._seconds_in(call):.1f} s"

    def xids(self) -> Mapping[XidKey, XidCount]:
        """Return the XID events that it has seen since it started; also when it has ended."""
        return self._xids.read()

    def ask(self, question: Question) -> None:
        self._process.ask(json.dumps(question).encode())

    def answer(self, until: float, wake: int) -> bytes | None:
        """Wait for one line until then on the clock, or until `wake` is readable; None if none has come."""
        line = self._process.answer(until, wake)
        self.has_answered = self.has_answered or line is not None
        return line

    def close(self) -> None:
        """Close what connects us to it."""
        self._process.close()
        self._close_memory()

    def _close_memory(self) -> None:
        self._call.close()
        self._xids.close()

    def _seconds_in(self, call: CurrentCall) -> float:
        return max(0.0, self._monotonic() - call.since)


class NvmlChildren:
    """The children of one source: started one at a time, and those that were killed and do not die."""

    def __init__(self, start: Callable[[], NvmlChild]) -> None:
        self._start = start
        self._undead: list[NvmlChild] = []

    def start(self) -> NvmlChild:
        """Start one. Raises OSError; SourceError(TIMEOUT) where too many hang already."""
        hanging = self.undead()
        if len(hanging) >= _MOST_ABANDONED:
            pids = " and ".join(str(pid) for pid in hanging)
            raise SourceError(Cause.TIMEOUT, f"NVML children {pids} hang in the driver and cannot be killed")
        return self._start()

    def end(self, child: NvmlChild, within_seconds: float) -> None:
        """Kill it, and wait no longer than that for its end."""
        child.kill()
        if not child.ended(within_seconds):
            self._undead.append(child)

    def undead(self) -> tuple[int, ...]:
        """Reap those that have died at last; give the pids of the others."""
        self._undead = [child for child in self._undead if not child.ended(0.0)]
        return tuple(child.pid for child in self._undead)

    def abandon_all(self) -> None:
        for child in self._undead:
            child.abandon()
        self._undead = []
