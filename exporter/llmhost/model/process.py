"""Processes, as /proc shows them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llmhost.model.ids import ProcessId, UnitId


class Role(StrEnum):
    """The part of an engine that a process is, from its command line (design: Role)."""

    API_SERVER = "api_server"
    LAUNCHER = "launcher"
    COORDINATOR = "coordinator"
    CORE = "core"
    WORKER = "worker"
    TRACKER = "tracker"
    OTHER = "other"


class Home(StrEnum):
    """The place of a process in the cgroup tree."""

    SERVICE = "service"  # a *.service of the system manager or of a user's
    CONTAINER = "container"  # a container's or pod's scope
    SESSION = "session"  # a login session's scope, or a user's service manager itself
    SCOPE = "scope"  # any other scope: a unit of its own, which is no service
    NONE = "none"  # no unit: kernel threads, the root cgroup, a cgroup that systemd did not make


@dataclass(frozen=True, slots=True)
class Placement:
    """The unit of a process by its cgroup path, never guessed from uid or name."""

    home: Home
    unit: UnitId | None = None  # of SERVICE only
    container_id: str = ""
    scope: UnitId | None = None  # of SCOPE only
    cgroup: str = field(default="", compare=False)  # of NONE, for people: one that is neither a slice nor the root


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    id: ProcessId
    ppid: int
    pgrp: int
    session: int
    state: str  # one letter, proc(5): R S D Z T I …
    kernel_thread: bool
    uid: int | None  # owner of /proc/PID; None when it vanished
    comm: str  # at most 15 bytes
    argv: tuple[str, ...]  # () for zombies, kernel threads, and where it could not be read
    placement: Placement
    engine: str  # "vllm", "sglang", …, or "" when it is no known engine's process
    role: Role
    pipes: Mapping[int, int] | None = None
    """fd → pipe inode, where it matters (derive/parentage).

    Of trackers, of children of engines and of multiprocessing whose parent is no living engine's process, of the
    parents of both, and of other holders of a tracker's pipe that were found. None for all others, and where they could
    not be read, or would have cost too much.
    """
    pipes_denied: bool = False  # they matter, and reading them takes root, or the owner (proc(5): /proc/PID/fd)

    @property
    def name(self) -> str:
        """The pid and title that people see; the title also where the kernel cuts it in comm."""
        title = self.argv[0] if self.engine and self.argv and "::" in self.argv[0] else self.comm
        return f"{self.id.pid} {title}"

    @property
    def zombie(self) -> bool:
        return self.state in "ZX"

    @property
    def pipes_unread(self) -> bool:
        """They were neither read nor denied: nothing follows from their absence."""
        return self.pipes is None and not self.pipes_denied


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTable:
    by_pid: Mapping[int, Process]
    unreadable: int  # processes that could not be read in full, or not at all
    denied: frozenset[int] = frozenset()  # pids of processes that could not be read at all
    read_from_ticks: int | None = None  # begin of the reading in start ticks: later processes may be missing
    read_at_monotonic: float | None = None  # the same in seconds on CLOCK_MONOTONIC
    unknown_holders: frozenset[int] = frozenset()  # trackers whose pipe an unknown process may hold
    children: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # ppid → pids

    def of(self, process: ProcessId) -> Process | None:
        """Find exactly this process, not another with its pid."""
        found = self.by_pid.get(process.pid)
        return found if found is not None and found.id == process else None
