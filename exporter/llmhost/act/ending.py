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

from llmhost.decide.cleanup.steps import Condition, Ending, Outcome, Result
from llmhost.model.ids import ProcessId
from llmhost.sources.procfs_files import Stat, parse_stat

TERMINATE_SECONDS = 10.0  # an engine frees its GPUs and files within that; it is never told twice (vLLM: see end)
KILL_SECONDS = 5.0
TRACKER_SECONDS = 3.0
_BATCH = 256  # descriptors that are open at a time
_EACH_SECONDS = 0.1  # is how often we look whether we are to stop
_ALONE_SHARE = 0.25  # of the time for all: that children have to end by themselves after who is above them


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
    that lives is not told yet, and has a while after that: it may have been told by them, or notice that they are gone
    (a vLLM worker does, and ends within 3 s). Trackers come last. They ignore SIGTERM, and end by themselves once
    nobody else has their pipe, having unlinked what is registered with them: SIGKILL comes `tracker_seconds` later, and
    never while one of the others lives.

    Once `interrupted` says so, nobody is told any more; who was told and lives is spared, and says so.
    """
    spared = False
    others = [ending for ending in endings if ending.condition is not Condition.TRACKER]
    for batch in _batches(others):
        for outcome in _Party(batch, procfs, interrupted).end(terminate_seconds, kill_seconds, tells=True):
            spared = spared or outcome.result not in {Result.DONE, Result.GONE}
            yield outcome
    for batch in _batches([ending for ending in endings if ending.condition is Condition.TRACKER]):
        if spared or interrupted():
            because = "a process that may hold its pipe lives" if spared else "interrupted before it was told to end"
            yield from (Outcome(step=step, result=Result.SPARED, detail=because) for step in batch)
        else:
            yield from _Party(batch, procfs, interrupted).end(tracker_seconds, kill_seconds, tells=False)


def _batches(endings: Sequence[Ending]) -> Iterator[Sequence[Ending]]:
    for start in range(0, len(endings), _BATCH):
        yield endings[start : start + _BATCH]


@dataclass(slots=True, kw_only=True)
class _Victim:
    ending: Ending
    descriptor: int
    was_below: bool = False  # an ancestor among these lived
    alone_since: float | None = None  # and since when none does
    told: bool = False  # SIGTERM was sent
    killed: bool = False


class _Party:
    """Processes that are ended together."""

    def __init__(self, endings: Iterable[Ending], procfs: Path, interrupted: Callable[[], bool]) -> None:
        self._endings = tuple(endings)
        self._procfs = procfs
        self._interrupted = interrupted
        self._began = time.monotonic()
        self._parents = {ending.process.id.pid: ending.process.ppid for ending in self._endings}
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
            found = self._stat(wanted.pid)
            if found is not None and found.start_ticks == wanted.start_ticks:
                self._living[wanted.pid] = _Victim(ending=ending, descriptor=descriptor)
                continue
            if found is not None:
                yield self._outcome(ending, Result.SPARED, f"pid {wanted.pid} is another process's by now")
            elif _has_ended(descriptor):
                yield self._outcome(ending, Result.GONE, "it has ended by itself")
            else:
                yield self._outcome(ending, Result.SPARED, "it cannot be identified: /proc does not show it")
            os.close(descriptor)

    def _stat(self, pid: int) -> Stat | None:
        try:
            return parse_stat((self._procfs / str(pid) / "stat").read_bytes())
        except (OSError, ValueError, IndexError):
            return None

    def _wait(self, seconds: float, *, tells: bool) -> Iterator[Outcome]:
        """Wait for all to end. Who was interrupted waits no longer, but tells of those that have ended."""
        until = time.monotonic() + seconds
        while self._living:
            stop = self._interrupted()
            if tells and not stop:
                yield from self._tell(_ALONE_SHARE * seconds)
            left = until - time.monotonic()
            yield from self._ended(0.0 if stop else max(0.0, min(left, _EACH_SECONDS)))
            if stop or left <= 0:
                return

    def _tell(self, alone_seconds: float) -> Iterator[Outcome]:
        now = time.monotonic()
        for victim in tuple(self._living.values()):
            if victim.told:
                continue
            if self._has_living_ancestor(victim):
                victim.was_below, victim.alone_since = True, None
                continue
            victim.alone_since = now if victim.alone_since is None else victim.alone_since
            if not victim.was_below or now - victim.alone_since >= alone_seconds:
                victim.told = True
                yield from self._send(victim, signal.SIGTERM)

    def _has_living_ancestor(self, victim: _Victim) -> bool:
        """By the parents as they are now, and as they were when the plan was made."""
        pid = victim.ending.process.id.pid
        return self._is_below(pid, self._parent_now) or self._is_below(pid, self._parents.get)

    def _is_below(self, pid: int, parent_of: Callable[[int], int | None]) -> bool:
        seen = {pid}
        above = parent_of(pid)
        while above is not None and above not in seen:
            if above in self._living:
                return True
            seen.add(above)
            above = parent_of(above)
        return False

    def _parent_now(self, pid: int) -> int | None:
        found = self._stat(pid)
        return found.ppid if found is not None else None

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
        stat = self._stat(process.pid)
        if stat is None:
            return ""
        state = stat.state
        try:
            function = (self._procfs / str(process.pid) / "wchan").read_text().strip("0")
        except OSError:
            function = ""
        return f", state {state}, in {function} of the kernel" if function else f", state {state}"

    def _done_with(self, victim: _Victim, result: Result, detail: str) -> Outcome:
        del self._living[victim.ending.process.id.pid]
        os.close(victim.descriptor)
        return self._outcome(victim.ending, result, detail)

    def _outcome(self, ending: Ending, result: Result, detail: str) -> Outcome:
        return Outcome(step=ending, result=result, detail=detail, seconds=time.monotonic() - self._began)


def _has_ended(descriptor: int) -> bool:
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(0))
