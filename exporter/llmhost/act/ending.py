"""Ends processes: exactly those of the plan, each with one SIGTERM, reported as ended only when they have.

A process file descriptor (pidfd_open(2)) refers to one process, also when its pid is reused. It is opened first, and
only then the start time is compared: from there on no other process can be hit.
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

TERMINATE_SECONDS = 10.0  # an engine frees its GPUs and files within that; it never gets a second SIGTERM (see end)
KILL_SECONDS = 5.0
TRACKER_SECONDS = 3.0
_BATCH_SIZE = 256  # descriptors that are open at a time
_POLL_SECONDS = 0.1  # between two checks for an interrupt
_ALONE_SHARE = 0.25  # of the time for all, which children have to end by themselves after their ancestors


def end(
    endings: Sequence[Ending],
    *,
    procfs: Path,
    terminate_seconds: float = TERMINATE_SECONDS,
    kill_seconds: float = KILL_SECONDS,
    tracker_seconds: float = TRACKER_SECONDS,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[Outcome]:
    """End processes, and yield their outcomes in the order in which they ended.

    Each gets one SIGTERM and, if it lives `terminate_seconds` later, SIGKILL. An engine terminates its own children by
    SIGTERM, and a second one kills a vLLM engine amidst its own clean-up. So a process gets none while an ancestor in
    the batch lives, nor for a while after that: the ancestor may have sent one, or the process may notice that it is
    gone (a vLLM worker does, and ends within 3 s). Trackers come last. They ignore SIGTERM, and end by themselves once
    no other process has their pipe, having unlinked what is registered with them. They get SIGKILL `tracker_seconds`
    later, and never while one of the others lives.

    Once `interrupted` returns True, no further signal is sent; a process that got one and lives is reported as spared.
    """
    spared = False
    processes = [ending for ending in endings if ending.condition is not Condition.TRACKER]
    for batch in _batches(processes):
        for outcome in _Batch(batch, procfs, interrupted).end(terminate_seconds, kill_seconds, terminates=True):
            spared = spared or outcome.result not in {Result.DONE, Result.GONE}
            yield outcome
    for batch in _batches([ending for ending in endings if ending.condition is Condition.TRACKER]):
        if spared or interrupted():
            because = "a process that may hold its pipe lives" if spared else "interrupted before it was told to end"
            yield from (Outcome(step=step, result=Result.SPARED, detail=because) for step in batch)
        else:
            yield from _Batch(batch, procfs, interrupted).end(tracker_seconds, kill_seconds, terminates=False)


def _batches(endings: Sequence[Ending]) -> Iterator[Sequence[Ending]]:
    for start in range(0, len(endings), _BATCH_SIZE):
        yield endings[start : start + _BATCH_SIZE]


@dataclass(slots=True, kw_only=True)
class _EndingProcess:
    ending: Ending
    descriptor: int
    had_ancestor: bool = False  # an ancestor in the batch was alive
    alone_since: float | None = None  # the time since which none is, on CLOCK_MONOTONIC
    terminated: bool = False  # SIGTERM was sent
    killed: bool = False  # SIGKILL was sent


class _Batch:
    """Processes that are ended together. Use it once."""

    def __init__(self, endings: Iterable[Ending], procfs: Path, interrupted: Callable[[], bool]) -> None:
        self._endings = tuple(endings)
        self._procfs = procfs
        self._interrupted = interrupted
        self._began = time.monotonic()
        self._parents = {ending.process.id.pid: ending.process.ppid for ending in self._endings}
        self._living: dict[int, _EndingProcess] = {}  # by pid

    def end(self, seconds: float, kill_seconds: float, *, terminates: bool) -> Iterator[Outcome]:
        try:
            yield from self._identify()
            yield from self._wait(seconds, terminates=terminates)
            if not self._interrupted():
                yield from self._kill()
                yield from self._wait(kill_seconds, terminates=False)
            yield from self._give_up()
        finally:
            for process in self._living.values():
                os.close(process.descriptor)

    def _identify(self) -> Iterator[Outcome]:
        for ending in self._endings:
            wanted = ending.process.id
            try:
                descriptor = os.pidfd_open(wanted.pid)
            except ProcessLookupError:
                yield self._outcome(ending, Result.GONE, "it has ended by itself")
                continue
            except OSError as error:
                detail = f"it cannot be identified: {os.strerror(error.errno or 0)}"
                yield self._outcome(ending, Result.FAILED, detail)
                continue
            found = self._stat(wanted.pid)
            if found is not None and found.start_ticks == wanted.start_ticks:
                self._living[wanted.pid] = _EndingProcess(ending=ending, descriptor=descriptor)
                continue
            if found is not None:
                yield self._outcome(ending, Result.SPARED, f"pid {wanted.pid} is another process's by now")
            elif _has_ended(descriptor):
                yield self._outcome(ending, Result.GONE, "it has ended by itself")
            else:
                detail = "it cannot be identified: /proc does not show it"
                yield self._outcome(ending, Result.FAILED, detail)
            os.close(descriptor)

    def _stat(self, pid: int) -> Stat | None:
        try:
            return parse_stat((self._procfs / str(pid) / "stat").read_bytes())
        except (OSError, ValueError, IndexError):
            return None

    def _wait(self, seconds: float, *, terminates: bool) -> Iterator[Outcome]:
        """Wait for all to end. Once interrupted, wait no longer, but report those that have ended."""
        until = time.monotonic() + seconds
        while self._living:
            interrupted = self._interrupted()
            if terminates and not interrupted:
                yield from self._terminate(_ALONE_SHARE * seconds)
            remaining = until - time.monotonic()
            yield from self._ended(0.0 if interrupted else max(0.0, min(remaining, _POLL_SECONDS)))
            if interrupted or remaining <= 0:
                return

    def _terminate(self, alone_seconds: float) -> Iterator[Outcome]:
        now = time.monotonic()
        for process in tuple(self._living.values()):
            if process.terminated:
                continue
            if self._has_living_ancestor(process):
                process.had_ancestor, process.alone_since = True, None
                continue
            process.alone_since = now if process.alone_since is None else process.alone_since
            if not process.had_ancestor or now - process.alone_since >= alone_seconds:
                process.terminated = True
                yield from self._send(process, signal.SIGTERM)

    def _has_living_ancestor(self, process: _EndingProcess) -> bool:
        """Look for one by the parents as they are now, and as they were when the plan was made."""
        pid = process.ending.process.id.pid
        return self._is_below(pid, self._parent_now) or self._is_below(pid, self._parents.get)

    def _is_below(self, pid: int, parent_of: Callable[[int], int | None]) -> bool:
        visited = {pid}
        above = parent_of(pid)
        while above is not None and above not in visited:
            if above in self._living:
                return True
            visited.add(above)
            above = parent_of(above)
        return False

    def _parent_now(self, pid: int) -> int | None:
        found = self._stat(pid)
        return found.ppid if found is not None else None

    def _kill(self) -> Iterator[Outcome]:
        for process in tuple(self._living.values()):
            process.killed = True
            yield from self._send(process, signal.SIGKILL)

    def _send(self, process: _EndingProcess, number: signal.Signals) -> Iterator[Outcome]:
        try:
            signal.pidfd_send_signal(process.descriptor, number)
        except ProcessLookupError:
            pass  # it has just ended, as its descriptor tells
        except PermissionError:
            yield self._finish(process, Result.DENIED, "we may not: it takes its user, or root")
        except OSError as error:
            yield self._finish(process, Result.FAILED, os.strerror(error.errno or 0))

    def _ended(self, seconds: float) -> Iterator[Outcome]:
        """Wait for the first to end, and yield the outcomes of all that have ended."""
        waiting = select.poll()
        living = {process.descriptor: process for process in self._living.values()}
        for descriptor in living:
            waiting.register(descriptor, select.POLLIN)
        for descriptor, _ in waiting.poll(1000 * seconds):
            process = living[descriptor]
            if process.killed:
                how = "by SIGKILL"
            else:
                how = "after SIGTERM" if process.terminated else "by itself, as what it belonged to had ended"
            yield self._finish(process, Result.DONE, how)

    def _give_up(self) -> Iterator[Outcome]:
        for process in tuple(self._living.values()):
            if process.killed:
                where = self._kernel_place(process.ending.process.id)
                detail = f"SIGKILL does not end it{where}: it takes a GPU reset or a reboot"
                yield self._finish(process, Result.STUCK, detail)
            else:
                begun = "interrupted: it has been told to end, and has not yet"
                not_begun = "interrupted before it was told to end"
                yield self._finish(process, Result.SPARED, begun if process.terminated else not_begun)

    def _kernel_place(self, process: ProcessId) -> str:
        """Describe the place in the kernel where a process hangs, if it can be read (proc(5): stat, wchan)."""
        stat = self._stat(process.pid)
        if stat is None:
            return ""
        state = stat.state
        try:
            function = (self._procfs / str(process.pid) / "wchan").read_text().strip("0")
        except OSError:
            function = ""
        return f", state {state}, in {function} of the kernel" if function else f", state {state}"

    def _finish(self, process: _EndingProcess, result: Result, detail: str) -> Outcome:
        del self._living[process.ending.process.id.pid]
        os.close(process.descriptor)
        return self._outcome(process.ending, result, detail)

    def _outcome(self, ending: Ending, result: Result, detail: str) -> Outcome:
        return Outcome(step=ending, result=result, detail=detail, seconds=time.monotonic() - self._began)


def _has_ended(descriptor: int) -> bool:
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(0))
