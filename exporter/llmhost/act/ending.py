"""Ends processes: exactly those that were looked at, each told once, and told as ended only when it has.

A process file descriptor (pidfd_open(2)) stays that of one process, whatever becomes of its pid. It is opened first,
and only then the start time is compared: from there on nobody else can be meant.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmhost.decide.cleanup_plan import Condition, Ending, Outcome, Result
from llmhost.model.ids import ProcessId
from llmhost.sources.procfs_files import parse_stat

TERMINATE_SECONDS = 10.0  # an engine frees its GPUs and files within that; it is never told twice (vLLM: see end)
KILL_SECONDS = 5.0
TRACKER_SECONDS = 3.0
_BATCH = 256  # descriptors that are open at a time
_EACH_SECONDS = 0.1  # is how often we look whether we are to stop


def end(
    endings: Sequence[Ending],
    *,
    procfs: Path,
    terminate_seconds: float = TERMINATE_SECONDS,
    kill_seconds: float = KILL_SECONDS,
    tracker_seconds: float = TRACKER_SECONDS,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[Outcome]:
    """End them, and tell of each what became of it, in the order in which they ended.

    Each gets one SIGTERM and, where it lives `terminate_seconds` later, SIGKILL. An engine's process ends its children
    itself, by SIGTERM, and a second one kills a vLLM engine amidst its own clean-up: so who has an ancestor among these
    that lives is not told yet. Trackers come last. They ignore SIGTERM, and end by themselves once nobody else has
    their pipe, having unlinked what is registered with them: SIGKILL comes `tracker_seconds` later, and never while
    one of the others lives.

    Once `interrupted` says so, nobody is told any more; who was told and lives is spared, and says so.
    """
    spared = False
    others = [one for one in endings if one.condition is not Condition.TRACKER]
    for batch in _batches(others):
        for outcome in _Party(batch, procfs, interrupted).end(terminate_seconds, kill_seconds, tells=True):
            spared = spared or outcome.result not in {Result.DONE, Result.GONE}
            yield outcome
    for batch in _batches([one for one in endings if one.condition is Condition.TRACKER]):
        if spared or interrupted():
            because = "a process that may hold its pipe lives" if spared else "interrupted before it was told to end"
            yield from (Outcome(step=one, result=Result.SPARED, detail=because) for one in batch)
        else:
            yield from _Party(batch, procfs, interrupted).end(tracker_seconds, kill_seconds, tells=False)


def _batches(endings: Sequence[Ending]) -> Iterator[Sequence[Ending]]:
    for start in range(0, len(endings), _BATCH):
        yield endings[start : start + _BATCH]


@dataclass(slots=True, kw_only=True)
class _Victim:
    ending: Ending
    descriptor: int
    told: bool = False  # SIGTERM was sent
    killed: bool = False


class _Party:
    """Processes that are ended together."""

    def __init__(self, endings: Iterable[Ending], procfs: Path, interrupted: Callable[[], bool]) -> None:
        self._endings = tuple(endings)
        self._procfs = procfs
        self._interrupted = interrupted
        self._began = time.monotonic()
        self._living: dict[int, _Victim] = {}  # by pid

    def end(self, patience_seconds: float, kill_seconds: float, *, tells: bool) -> Iterator[Outcome]:
        try:
            yield from self._identify()
            yield from self._wait(patience_seconds, tells=tells)
            if not self._interrupted():
                yield from self._kill()
                yield from self._wait(kill_seconds, tells=False)
            yield from self._give_up()
        finally:
            for victim in self._living.values():
                os.close(victim.descriptor)

    def _identify(self) -> Iterator[Outcome]:
        for ending in self._endings:
            wanted = ending.process.id
            try:
                descriptor = os.pidfd_open(wanted.pid)
            except ProcessLookupError:
                yield self._outcome(ending, Result.GONE, "it has ended by itself")
                continue
            except OSError as error:
                yield self._outcome(ending, Result.SPARED, f"it cannot be identified: {os.strerror(error.errno or 0)}")
                continue
            found = self._start_ticks(wanted.pid)
            if found == wanted.start_ticks:
                self._living[wanted.pid] = _Victim(ending=ending, descriptor=descriptor)
                continue
            os.close(descriptor)
            if found is None:
                yield self._outcome(ending, Result.GONE, "it has ended by itself")
            else:
                yield self._outcome(ending, Result.SPARED, f"pid {wanted.pid} is another process's by now")

    def _start_ticks(self, pid: int) -> int | None:
        try:
            return parse_stat((self._procfs / str(pid) / "stat").read_bytes()).start_ticks
        except (OSError, ValueError, IndexError):
            return None

    def _wait(self, seconds: float, *, tells: bool) -> Iterator[Outcome]:
        """Wait for all to end. Who was interrupted waits no longer, but tells of those that have ended."""
        until = time.monotonic() + seconds
        while self._living:
            stop = self._interrupted()
            if tells and not stop:
                yield from self._tell()
            left = until - time.monotonic()
            yield from self._ended(0.0 if stop else max(0.0, min(left, _EACH_SECONDS)))
            if stop or left <= 0:
                return

    def _tell(self) -> Iterator[Outcome]:
        for victim in tuple(self._living.values()):
            if not victim.told and not self._has_living_ancestor(victim):
                victim.told = True
                yield from self._send(victim, signal.SIGTERM)

    def _has_living_ancestor(self, victim: _Victim) -> bool:
        """By the parents that were seen as the plan was made: a process's ancestors change only in that they end."""
        seen: set[int] = set()
        parent = victim.ending.process.ppid
        while parent not in seen:
            seen.add(parent)
            above = self._living.get(parent)
            if above is not None:
                return True
            known = next((one.process for one in self._endings if one.process.id.pid == parent), None)
            if known is None:
                return False
            parent = known.ppid
        return False

    def _kill(self) -> Iterator[Outcome]:
        for victim in tuple(self._living.values()):
            victim.killed = True
            yield from self._send(victim, signal.SIGKILL)

    def _send(self, victim: _Victim, number: signal.Signals) -> Iterator[Outcome]:
        try:
            signal.pidfd_send_signal(victim.descriptor, number)
        except ProcessLookupError:
            pass  # it has just ended, as its descriptor tells
        except PermissionError:
            yield self._done_with(victim, Result.DENIED, "we may not: it takes its user, or root")

    def _ended(self, seconds: float) -> Iterator[Outcome]:
        """Tell of those that have ended, after a wait for the first that does."""
        waiting = select.poll()
        victims = {victim.descriptor: victim for victim in self._living.values()}
        for descriptor in victims:
            waiting.register(descriptor, select.POLLIN)
        for descriptor, _ in waiting.poll(1000 * seconds):
            victim = victims[descriptor]
            if victim.killed:
                how = "by SIGKILL"
            else:
                how = "after SIGTERM" if victim.told else "by itself, as what it belonged to had ended"
            yield self._done_with(victim, Result.DONE, how)

    def _give_up(self) -> Iterator[Outcome]:
        for victim in tuple(self._living.values()):
            if victim.killed:
                where = self._where(victim.ending.process.id)
                detail = f"SIGKILL does not end it{where}: it takes a GPU reset or a reboot"
                yield self._done_with(victim, Result.STUCK, detail)
            else:
                told = "interrupted: it has been told to end, and has not yet"
                never = "interrupted before it was told to end"
                yield self._done_with(victim, Result.SPARED, told if victim.told else never)

    def _where(self, process: ProcessId) -> str:
        """Say where in the kernel it hangs, as far as that may be read (proc(5): stat, wchan)."""
        directory = self._procfs / str(process.pid)
        try:
            state = parse_stat((directory / "stat").read_bytes()).state
            function = (directory / "wchan").read_text().strip("0")
        except (OSError, ValueError, IndexError):
            return ""
        return f", state {state}, in {function} of the kernel" if function else f", state {state}"

    def _done_with(self, victim: _Victim, result: Result, detail: str) -> Outcome:
        del self._living[victim.ending.process.id.pid]
        os.close(victim.descriptor)
        return self._outcome(victim.ending, result, detail)

    def _outcome(self, ending: Ending, result: Result, detail: str) -> Outcome:
        return Outcome(step=ending, result=result, detail=detail, seconds=time.monotonic() - self._began)
