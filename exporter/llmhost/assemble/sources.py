"""The sources of one process: each is made, and its worker started, when it is first asked for.

A source is also imported only then, and its types only for the type checker: the guard has 0.3 s for its first verdict,
and a module that cannot be imported costs only those who ask for its source.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn, TypeVar

from llmhost.collect.clock import SystemClock
from llmhost.collect.worker import DisabledWorker, Worker
from llmhost.config.paths import Paths
from llmhost.config.schema import CollectorsConfig, Config, PidNamespace
from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from llmhost.collect.worker import Clock
    from llmhost.decide.cleanup.context import ProcessContext
    from llmhost.model.driver_user import DriverUsers
    from llmhost.model.engine import EngineServer, EnginesReport
    from llmhost.model.gpu import NvmlReport, SeenGpus
    from llmhost.model.guard_run import GuardRun
    from llmhost.model.host import Host
    from llmhost.model.ids import ProcessId
    from llmhost.model.process import Placement, Process, ProcessTable
    from llmhost.model.process_use import ProcessUse
    from llmhost.model.reading import Reading, StuckCall
    from llmhost.model.segment import SharedMemory
    from llmhost.model.unit import UnitsReport
    from llmhost.model.unit_event import UnitEvent
    from llmhost.sources.base import Source
    from llmhost.sources.engine.source import EngineSource
    from llmhost.sources.nvml.source import NvmlSource
    from llmhost.sources.procfs import ProcfsSource
    from llmhost.sources.shm.source import ShmSource
    from llmhost.sources.systemd.source import SystemdSource

T = TypeVar("T")

DRIVER_BACKOFF_SECONDS = (1.0, 60.0)
GUARD_DRIVER_BACKOFF_SECONDS = (0.2, 1.0)  # the guard waits for a driver that is not loaded yet
_CLOSE_SECONDS = 1.2  # of a source; each promises a second


class Sources:
    """Workers and their sources, by one config; a collector that is switched off has a DisabledWorker.

    The config may be given later, by `configure`: only the driver's child is started without it. A worker may be used
    from any thread, but is first asked for by one thread.
    """

    def __init__(
        self,
        config: Config | None = None,
        paths: Paths | None = None,
        *,
        clock: Clock | None = None,
        driver_backoff_seconds: tuple[float, float] = DRIVER_BACKOFF_SECONDS,
        on_unit_event: Callable[[UnitEvent], None] | None = None,
        environment: Mapping[str, str] | None = None,
        bus_address: str | None = None,
        host: Source[Host] | None = None,
        seen_gpus: SeenGpus | None = None,
    ) -> None:
        """Start nothing yet. `seen_gpus` are those of an earlier exporter in this boot.

        `environment`, `bus_address` and `host` stand in for this host's own, in tests.
        """
        self.config = config or Config()
        self.paths = paths or Paths()
        self.clock = clock or SystemClock()
        self._driver_backoff_seconds = driver_backoff_seconds
        self._on_unit_event = on_unit_event
        self._environment = environment
        self._bus_address = bus_address
        self._host_source = host
        self._seen_gpus = seen_gpus
        self._closing: list[Callable[[], None]] = []

    # workers

    @cached_property
    def host(self) -> Worker[Host]:
        from llmhost.sources.host import HostSource

        return self._worker("procfs", self._host_source or HostSource(procfs=self.paths.procfs))

    @cached_property
    def nvml(self) -> Worker[NvmlReport]:
        return self._worker("nvml", self.driver)

    @cached_property
    def nvml_memory(self) -> Worker[NvmlReport]:
        """Memory alone, by the same child as `nvml`."""
        from llmhost.sources.nvml.source import NvmlMemorySource

        driver = self.driver
        return self._worker("nvml memory", driver if isinstance(driver, DisabledSource) else NvmlMemorySource(driver))

    @cached_property
    def processes(self) -> Worker[ProcessTable]:
        return self._worker("procfs", self._procfs)

    @cached_property
    def units(self) -> Worker[UnitsReport]:
        return self._worker("systemd", self.systemd)

    @cached_property
    def segments(self) -> Worker[SharedMemory]:
        return self._worker("shm", self.shm)

    @cached_property
    def engines(self) -> Worker[EnginesReport]:
        return self._worker("engine", self.engine)

    @cached_property
    def guard_runs(self) -> Worker[tuple[GuardRun, ...]]:
        from llmhost.state.guard_record import GuardRecords

        return self._worker("guard", GuardRecords(self.paths.run))

    # sources, for what is not a reading

    @cached_property
    def driver(self) -> NvmlSource | DisabledSource:
        if not self.config.collectors.nvml:
            return DisabledSource()
        from llmhost.sources.nvml.source import NvmlSource

        source = NvmlSource(
            procfs=self.paths.procfs,
            environment=self._environment,
            failure_backoff=self._driver_backoff_seconds,
            seen=self._seen_gpus,
            is_needless=self._needs_no_driver,
            monotonic=self.clock.monotonic,
        )
        self._closing.append(source.close)
        return source

    @cached_property
    def systemd(self) -> SystemdSource | DisabledSource:
        if not self.config.collectors.systemd:
            return DisabledSource()
        from llmhost.derive.command import starts_an_engine
        from llmhost.sources.systemd.source import SystemdSource

        return SystemdSource(
            patterns=self.config.units.patterns,
            discover=self.config.units.discover,
            is_engine_command=starts_an_engine,
            address=self._bus_address,
            on_event=self._on_unit_event,
        )

    @cached_property
    def shm(self) -> ShmSource | DisabledSource:
        if not self.config.collectors.shm:
            return DisabledSource()
        from llmhost.sources.shm.source import ShmSource

        return ShmSource(
            shm=self.paths.shm,
            procfs=self.paths.procfs,
            names=self.config.shm.kinds,
            grace_seconds=self.config.policy.segment_grace_seconds,
            trust_pid_namespace=self.config.pid_namespace is PidNamespace.TRUST,
            monotonic=self.clock.monotonic,
        )

    @cached_property
    def engine(self) -> EngineSource | DisabledSource:
        if not self.config.collectors.engine:
            return DisabledSource()
        from llmhost.sources.engine.source import EngineSource

        return EngineSource(procfs=self.paths.procfs)

    @cached_property
    def _procfs(self) -> ProcfsSource | DisabledSource:
        if not self.config.collectors.procfs:
            return DisabledSource()
        from llmhost.model.titles import Titles
        from llmhost.sources.procfs import ProcfsSource

        return ProcfsSource(
            procfs=self.paths.procfs,
            trust_pid_namespace=self.config.pid_namespace is PidNamespace.TRUST,
            titles=Titles((row.pattern, row.engine, row.role) for row in self.config.titles),
            monotonic=self.clock.monotonic,
        )

    def _needs_no_driver(self) -> bool:
        """Say whether the host has no NVIDIA device, and the config expects none."""
        from llmhost.sources.pci import has_nvidia_device

        return not self.config.gpus.expected and has_nvidia_device(self.paths.sysfs) is False

    # what is read at once, without a worker

    @cached_property
    def boot_id(self) -> str:
        """This boot's id; "" where /proc does not have it."""
        from llmhost.sources.host import read_boot_id

        return read_boot_id(self.paths.procfs)

    def own_placement(self) -> Placement:
        """Return the unit that this process is in. Raises OSError."""
        from llmhost.sources.cgroup import read_own_placement

        return read_own_placement(self.paths.procfs)

    def process_age_seconds(self, pid: int) -> float:
        """Return the age of a process; 0.0 where that cannot be read."""
        from llmhost.sources.procfs_files import read_age_seconds

        boottime_seconds = time.clock_gettime(time.CLOCK_BOOTTIME)
        return read_age_seconds(self.paths.procfs, pid, boottime_seconds)

    def start_ticks(self, pid: int) -> int | None:
        """Return when a process started, in ticks since boot; None where there is none."""
        from llmhost.sources.procfs_files import read_start_ticks

        return read_start_ticks(self.paths.procfs, pid)

    def shm_free_bytes(self) -> int | None:
        from llmhost.sources.host import read_free_bytes

        return read_free_bytes(self.paths.shm)

    def process_use(
        self, processes: Iterable[Process], everybody: Iterable[Process]
    ) -> Mapping[ProcessId, Reading[ProcessUse]]:
        """Tell for each process how others may use it, of everybody."""
        from llmhost.sources.process_use.read import read_process_use

        return read_process_use(self.paths.procfs, processes, everybody)

    def process_context(self, candidates: Iterable[Process], everybody: Sequence[Process]) -> ProcessContext:
        """Read the facts that a clean-up plan needs beside a snapshot: who uses them, and sharers of the tmpfs."""
        from llmhost.decide.cleanup.context import ProcessContext
        from llmhost.sources.shm.foreign_pid_namespaces import read_foreign_pids

        return ProcessContext(
            own_pid=os.getpid(),
            uses=self.process_use(candidates, everybody),
            foreign_pids=read_foreign_pids(self.paths.procfs, self.paths.shm, everybody),
        )

    def driver_users(self) -> DriverUsers:
        """Return the processes that have the driver open. Raises OSError.

        llmhost is run by root, by whoever runs this, and by the owner of the run directory.
        """
        from llmhost.sources.driver_users import read_driver_users

        return read_driver_users(self.paths.procfs, {0, os.geteuid(), self.paths.run.stat().st_uid})

    # for all of them

    def configure(self, config: Config) -> None:
        """Take a config. Of sources that are made already, what they read changes, and not whether there are any."""
        self.config = config
        trusted = config.pid_namespace is PidNamespace.TRUST
        made = vars(self)
        if "_procfs" in made:
            from llmhost.model.titles import Titles

            titles = Titles((row.pattern, row.engine, row.role) for row in config.titles)
            self._procfs.configure(titles=titles)
            self._procfs.trust_pid_namespace(trusted=trusted)
        if "shm" in made:
            self.shm.configure(names=config.shm.kinds, grace_seconds=config.policy.segment_grace_seconds)
            self.shm.trust_pid_namespace(trusted=trusted)
        if "systemd" in made:
            self.systemd.configure(patterns=config.units.patterns, discover=config.units.discover)

    def close(self, within_seconds: float = _CLOSE_SECONDS) -> None:
        """Close all that was made, also what hangs, all at once; what takes longer than this ends with us."""
        until = time.monotonic() + within_seconds
        closing = [threading.Thread(target=close, daemon=True) for close in self._closing]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(max(0.0, until - time.monotonic()))

    def _worker(self, collector: str, source: Source[T] | DisabledSource) -> Worker[T]:
        if isinstance(source, DisabledSource):
            return DisabledWorker(collector)
        worker = Worker(collector, source, self.clock)
        self._closing.append(worker.close)
        worker.start()
        return worker


class DisabledSource:
    """In place of a source whose collector is switched off: it does nothing, and has nothing to read."""

    def read(self, deadline: float) -> NoReturn:  # noqa: ARG002 - as each Source has it
        raise SourceError(Cause.DISABLED)

    def own_unit(self, deadline: float) -> NoReturn:  # noqa: ARG002 - as SystemdSource has it
        raise SourceError(Cause.DISABLED)

    def start(self) -> None: ...

    def watch(self, names: Iterable[str]) -> None: ...

    def configure(self, **settings: object) -> None: ...

    def trust_pid_namespace(self, *, trusted: bool) -> None: ...

    def set_servers(self, servers: tuple[EngineServer, ...]) -> None: ...

    def lists_due_in_seconds(self) -> float:
        return 0.0

    def pause(self, why: str) -> tuple[int, ...]:  # noqa: ARG002 - as NvmlSource has it
        return ()

    def resume(self) -> None: ...

    def close(self) -> None: ...

    def doing(self) -> str:
        return "nothing"

    def stuck(self) -> StuckCall | None:
        return None


def guard_config(config: Config, units: tuple[str, ...]) -> Config:
    """Make the config of the guard's sources: every collector is on, and systemd is asked for these units alone."""
    return replace(config, units=replace(config.units, patterns=units, discover=False), collectors=CollectorsConfig())
