"""Source of the host's processes, from /proc (proc(5)).

Files are read raw, not by psutil: at 2,000 processes a read takes 15 to 30 ms of CPU, psutil's iterator 130 ms for
less (no cgroups). Only stat is read of every process every time; the rest is kept by identity and read again

- when start time or comm changed, or the process is younger than a minute (exec, setproctitle, a move to its cgroup);
- always for an engine's processes, and for all processes of a service that has one;
- in rotation for all others, so that nothing is older than a minute.

Pipes are read anew each time, of few processes, and for no longer than a budget (`procfs_pipes`).

Limits. Where hidepid (or ProtectProc=) hides the processes of others, there is no table at all: a partial one would
make holders of GPU memory look gone. Arguments are kept up to 64 KiB per process. The command line of a process that
holds its own memory lock in the kernel may block the read; `doing` then names it.
"""

import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from llmhost.model.engines import settled_roles
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Process, ProcessTable, Role
from llmhost.model.reading import Cause
from llmhost.model.titles import NO_TITLES, Titles
from llmhost.sources.base import SourceError
from llmhost.sources.cgroup import NOWHERE, parse_cgroup
from llmhost.sources.narrowed_view import require_host_cgroups, require_host_pids
from llmhost.sources.procfs_files import (
    DIRECTORY_FLAGS,
    ENDED_ERRNOS,
    KERNEL_THREAD_FLAG,
    Stat,
    parse_cmdline,
    parse_stat,
    small_file,
    text_of,
    whole_file,
)
from llmhost.sources.procfs_pipes import MOST_SECONDS, NoPipes, Pipes, PipeScanner, is_of_interest, read_pipes

KEPT_SECONDS = 60  # the greatest age of what is known of a process beyond its stat


@dataclass(frozen=True, slots=True)
class _Known:
    """A process as it was last read, with `role` by itself, and what shows if that is still true."""

    process: Process
    stat: bytes  # as it was read
    comm: bytes
    readable: bool
    pipes_wanted: bool  # its pipes are read anew each time


class ProcfsSource:
    """Source of the process table. `clock` is CLOCK_BOOTTIME in seconds, the clock of start ticks.

    `monotonic` is the clock of deadlines, CLOCK_MONOTONIC in seconds.

    With `trust_pid_namespace` the pids seen are taken for those that NVML and cgroups mean, wherever we run.
    """

    def __init__(
        self,
        *,
        procfs: Path,
        trust_pid_namespace: bool,
        titles: Titles = NO_TITLES,
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._procfs = str(procfs)
        self._trust_pid_namespace = trust_pid_namespace
        self._titles = self._titles_read_with = titles
        self._anew = False  # classify all anew: what is known was by other titles
        self._clock = clock
        self._monotonic = monotonic
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")
        self._known: dict[int, _Known] = {}
        self._engine_units: frozenset[UnitId] = frozenset()
        self._pipes = PipeScanner()
        self._read_at = 0.0
        self._doing: str | int = "idle"  # a number: reading that process

    def read(self, deadline: float) -> ProcessTable:
        """Read all processes; one that ends meanwhile is not in the table.

        Raises SourceError: NO_PROCFS when there is no process at all, PID_NAMESPACE when the pids are not the host's,
        CGROUP_NAMESPACE when the cgroups are not, NO_PERMISSION when processes of others are hidden, TIMEOUT past the
        deadline.
        """
        try:
            return self._read(deadline)
        finally:
            self._doing = "idle"

    def configure(self, *, titles: Titles) -> None:
        """Classify by other titles from the next read on; called from another thread."""
        self._titles = titles

    def trust_pid_namespace(self, *, trusted: bool) -> None:
        """Trust ours, or not, from the next read on; called from another thread."""
        self._trust_pid_namespace = trusted

    def doing(self) -> str:
        doing = self._doing
        return doing if isinstance(doing, str) else f"reading process {doing}"

    def close(self) -> None:
        """Nothing is held open between reads."""

    def _read(self, deadline: float) -> ProcessTable:
        began = self._monotonic()
        pids = self._pids()
        if not self._trust_pid_namespace:
            require_host_pids(self._procfs)
        require_host_cgroups(self._procfs)
        now = self._clock()
        window = min(max(int(now) - int(self._read_at), 0), KEPT_SECONDS) if self._known else KEPT_SECONDS
        first = int(now) - window + 1
        young_from = (now - KEPT_SECONDS) * self._ticks_per_second
        if self._titles != self._titles_read_with:
            self._titles_read_with, self._anew = self._titles, True
        known: dict[int, _Known] = {}
        denied: set[int] = set()
        for count, pid in enumerate(pids):
            if self._monotonic() > deadline:
                self._known |= known  # so that the next read gets further
                raise SourceError(Cause.TIMEOUT, f"{count} of {len(pids)} processes read")
            self._doing = pid
            before = self._known.get(pid)
            due = before is None or (
                self._anew
                or (pid - first) % KEPT_SECONDS < window
                or before.process.id.start_ticks > young_from
                or bool(before.process.engine)
                or before.process.placement.unit in self._engine_units
            )
            try:
                known[pid] = self._process(pid, before, due=due)
            except OSError as error:
                if error.errno not in ENDED_ERRNOS:
                    denied.add(pid)
            except (ValueError, IndexError):
                denied.add(pid)
        if 1 not in known:  # every PID namespace has its pid 1
            raise SourceError(Cause.NO_PERMISSION, self._hidden(listed=1 in pids))
        self._known, self._read_at, self._anew = known, now, False
        self._engine_units = frozenset(
            entry.process.placement.unit
            for entry in known.values()
            if entry.process.engine and entry.process.placement.unit
        )
        table = self._table(known.values(), denied, deadline)
        return replace(table, read_from_ticks=int(now * self._ticks_per_second), read_at_monotonic=began)

    def _table(self, known: Collection[_Known], denied: set[int], deadline: float) -> ProcessTable:
        by_pid = {entry.process.id.pid: entry.process for entry in known}
        engines = [process for process in by_pid.values() if process.engine]
        for pid, role in settled_roles(engines, by_pid).items():
            by_pid[pid] = replace(by_pid[pid], role=role)

        until = min(self._monotonic() + MOST_SECONDS, deadline)

        def pipes_of(process: Process) -> Pipes | NoPipes:
            self._doing = process.id.pid
            return read_pipes(f"{self._procfs}/{process.id.pid}", process.id.start_ticks)

        report = self._pipes.scan(
            by_pid,
            [entry.process.id.pid for entry in known if entry.pipes_wanted],
            pipes_of,
            self._read_at,
            has_time=lambda: self._monotonic() < until,
            all_listed=not denied,
        )
        for pid, pipes in report.pipes.items():
            by_pid[pid] = replace(by_pid[pid], pipes=pipes)
        for pid in report.denied:
            by_pid[pid] = replace(by_pid[pid], pipes_denied=True)
        children: dict[int, list[int]] = {}
        for pid, process in by_pid.items():
            children.setdefault(process.ppid, []).append(pid)
        return ProcessTable(
            by_pid=by_pid,
            unreadable=len(denied) + sum(not entry.readable for entry in known),
            denied=frozenset(denied),
            unknown_holders=report.unknown_holders,
            children={ppid: tuple(pids) for ppid, pids in children.items()},
        )

    def _pids(self) -> list[int]:
        self._doing = f"listing {self._procfs}"
        try:
            pids = sorted(int(name) for name in os.listdir(self._procfs) if name.isdecimal())  # noqa: PTH208  # bare names
        except OSError as error:
            raise SourceError(Cause.NO_PROCFS, f"{self._procfs}: {error.strerror}") from error
        if not pids:
            raise SourceError(Cause.NO_PROCFS, f"{self._procfs}: no processes in it")
        return pids

    def _process(self, pid: int, before: _Known | None, *, due: bool) -> _Known:
        """Read one process, of what is known and not due only its stat. Raises OSError, ValueError, IndexError."""
        root = f"{self._procfs}/{pid}"
        if before is not None and not due:
            data = small_file(f"{root}/stat", None)
            if data == before.stat:  # most processes sleep, and then not even their counters move
                return before
            stat = parse_stat(data)
            if stat.start_ticks == before.process.id.start_ticks and stat.comm == before.comm:
                return _kept(before, data, stat)
        directory = os.open(root, DIRECTORY_FLAGS)
        try:  # all through one directory: a pid that is reused meanwhile fails with ESRCH instead of being mixed up
            data = small_file("stat", directory)
            stat = parse_stat(data)
            if before is not None and stat.start_ticks == before.process.id.start_ticks and stat.state in "ZX":
                return _kept(before, data, stat)
            return _fresh(pid, data, stat, directory, self._titles_read_with)
        finally:
            os.close(directory)

    def _hidden(self, *, listed: bool) -> str:
        how = "cannot be read" if listed else "is not listed"
        return (
            f"process 1 {how} in {self._procfs}: processes of other users are hidden from us (mount option hidepid, "
            "or ProtectProc= of our own unit); CAP_SYS_PTRACE, or the group of the option gid=, shows them"
        )


def _fresh(pid: int, data: bytes, stat: Stat, directory: int, titles: Titles) -> _Known:
    kernel_thread = bool(stat.flags & KERNEL_THREAD_FLAG)
    argv: tuple[str, ...] = ()
    placement = NOWHERE
    readable = True
    if not kernel_thread:
        cgroup = whole_file("cgroup", directory)
        cmdline = whole_file("cmdline", directory) if stat.state not in "ZX" else b""
        placement = parse_cgroup(text_of(cgroup)) if cgroup is not None else NOWHERE
        argv = parse_cmdline(cmdline) if cmdline is not None else ()
        readable = cgroup is not None and cmdline is not None
    comm = text_of(stat.comm)
    engine, role = ("", Role.OTHER) if kernel_thread else titles.classify(argv, comm)
    process = Process(
        id=ProcessId(pid, stat.start_ticks),
        ppid=stat.ppid,
        pgrp=stat.pgrp,
        session=stat.session,
        state=stat.state,
        kernel_thread=kernel_thread,
        uid=os.fstat(directory).st_uid,
        comm=comm,
        argv=argv,
        placement=placement,
        engine=engine,
        role=role,
    )
    return _Known(process, data, stat.comm, readable, is_of_interest(process))


def _kept(before: _Known, data: bytes, stat: Stat) -> _Known:
    """Take over another state or parent of the same process; a zombie keeps its role and place, not its arguments."""
    process = before.process
    now = (stat.ppid, stat.pgrp, stat.session, stat.state)
    if now != (process.ppid, process.pgrp, process.session, process.state):
        argv = () if stat.state in "ZX" else process.argv
        process = replace(process, ppid=stat.ppid, pgrp=stat.pgrp, session=stat.session, state=stat.state, argv=argv)
    return _Known(process, data, before.comm, before.readable, before.pipes_wanted)
