"""The concrete sources of the guard, which must be up in a moment.

Each is imported when it is started, the driver's first: its child starts up while the rest is read in.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from llmhost.collect.worker import Clock, Worker
from llmhost.config.schema import Config, PidNamespace
from llmhost.model.gpu import NvmlReport
from llmhost.model.host import Host
from llmhost.model.ids import ProcessId
from llmhost.model.process import Placement, Process, ProcessTable
from llmhost.model.reading import Reading
from llmhost.model.segment import SharedMemory
from llmhost.model.unit import UnitsReport
from llmhost.sources.base import Source
from llmhost.sources.nvml.source import NvmlMemorySource, NvmlSource

FIRST_SECONDS = 5.0  # for the first answer: a machine that boots has much to do
_DRIVER_BACKOFF_SECONDS = (0.2, 1.0)  # a driver that is not loaded yet is waited for


class Gpus:
    """The driver: memory alone, and everything."""

    def __init__(self, *, procfs: Path, clock: Clock, environment: Mapping[str, str] | None = None) -> None:
        self._clock = clock
        self.source = NvmlSource(
            procfs=procfs, environment=environment, failure_backoff=_DRIVER_BACKOFF_SECONDS, monotonic=clock.monotonic
        )
        self.memory: Worker[NvmlReport] = Worker("nvml memory", NvmlMemorySource(self.source), clock)
        self.lists: Worker[NvmlReport] = Worker("nvml", self.source, clock)
        self.memory.start()
        self.lists.start()

    def ask(self) -> None:
        """Have the driver's child start up, and wait for nothing."""
        self.memory.ask(self._clock.monotonic() + FIRST_SECONDS)

    def close(self) -> None:
        self.source.close()


class Surroundings:
    """The host, its processes, and systemd's view of some units."""

    def __init__(self, config: Config, *, procfs: Path, clock: Clock, units: tuple[str, ...]) -> None:
        from llmhost.sources.host import HostSource  # noqa: PLC0415 - see above
        from llmhost.sources.procfs import ProcfsSource  # noqa: PLC0415
        from llmhost.sources.systemd.source import SystemdSource  # noqa: PLC0415

        self._units = units
        self._systemd = SystemdSource(patterns=units, discover=False, is_engine_command=lambda _argv: False)
        self.units: Worker[UnitsReport] = Worker("systemd", self._systemd, clock)
        self.host: Worker[Host] = Worker("host", HostSource(procfs=procfs), clock)
        self.processes: Worker[ProcessTable] = Worker(
            "procfs",
            ProcfsSource(
                procfs=procfs,
                trust_pid_namespace=config.pid_namespace is PidNamespace.TRUST,
                monotonic=clock.monotonic,
            ),
            clock,
        )
        if units:
            self._systemd.start()
        for worker in (self.units, self.host, self.processes):
            worker.start()

    def watch(self, units: set[str]) -> bool:
        """Have systemd tell of these as well: they hold memory. Gives whether there is one that it did not tell of."""
        new = units - set(self._units)
        if new:
            self._units = (*self._units, *sorted(new))
            self._systemd.configure(patterns=self._units, discover=False)
        return bool(new)

    def close(self) -> None:
        self._systemd.close()


def own_placement(procfs: Path) -> Placement:
    """Find the unit that this process is in. Raises OSError where /proc does not tell."""
    from llmhost.sources.cgroup import parse_cgroup  # noqa: PLC0415 - see above

    return parse_cgroup((procfs / "self/cgroup").read_text())


def age_seconds(procfs: Path, pid: int, boottime_seconds: float) -> float:
    """Say for how long a process has been running; 0.0 where that cannot be read."""
    from llmhost.sources.procfs_files import parse_stat  # noqa: PLC0415 - see above

    try:
        stat = parse_stat((procfs / str(pid) / "stat").read_bytes())
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, boottime_seconds - stat.start_ticks / os.sysconf("SC_CLK_TCK"))


def shm_source(config: Config, *, procfs: Path, shm: Path, clock: Clock) -> Source[SharedMemory]:
    from llmhost.sources.shm.source import ShmSource  # noqa: PLC0415 - see above

    return ShmSource(
        shm=shm,
        procfs=procfs,
        names=config.shm.kinds,
        grace_seconds=config.policy.segment_grace_seconds,
        trust_pid_namespace=config.pid_namespace is PidNamespace.TRUST,
        monotonic=clock.monotonic,
    )


def read_listening(procfs: Path, processes: Iterable[Process]) -> Mapping[ProcessId, Reading[bool]]:
    """Tell of each whether it listens."""
    from llmhost.sources.engine import listening  # noqa: PLC0415 - see above

    return listening.read_listening(procfs, processes)


def shm_free_bytes(shm: Path) -> int | None:
    try:
        found = os.statvfs(shm)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
