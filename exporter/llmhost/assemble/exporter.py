"""The one place that knows the concrete sources: from a configuration to a running exporter."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from llmhost.collect.clock import SystemClock as SystemClock  # noqa: PLC0414 - a part of what is assembled
from llmhost.collect.discover import units_of_interest
from llmhost.collect.driver_pause import DriverPause
from llmhost.collect.history_keeper import HistoryKeeper
from llmhost.collect.observer import Observation, Observer
from llmhost.collect.worker import Clock, Worker
from llmhost.config.paths import Paths as Paths  # noqa: PLC0414
from llmhost.config.schema import Config, PidNamespace
from llmhost.decide.cleanup.context import Around
from llmhost.derive.servers import engine_servers
from llmhost.model.driver_user import DriverUsers
from llmhost.model.engine_command import is_engine_command
from llmhost.model.history.history import History
from llmhost.model.host import Host
from llmhost.model.process import Process, ProcessTable
from llmhost.model.reading import Ok, Reading
from llmhost.model.titles import Titles
from llmhost.model.unit import UnitsReport
from llmhost.model.unit_event import UnitEvent
from llmhost.sources.base import Source
from llmhost.sources.driver_users import read_driver_users
from llmhost.sources.engine.listening import read_listening
from llmhost.sources.engine.source import EngineSource
from llmhost.sources.host import HostSource, read_boot_id
from llmhost.sources.nvml.memory import NvmlMemorySource
from llmhost.sources.nvml.source import NvmlSource
from llmhost.sources.procfs import ProcfsSource
from llmhost.sources.shm.foreign_pid_namespaces import read_strangers
from llmhost.sources.shm.source import ShmSource
from llmhost.sources.systemd.source import SystemdSource
from llmhost.starts.judge import Judge
from llmhost.starts.memory_release import Release
from llmhost.starts.watch import Watch
from llmhost.state.driver_pause import Wish
from llmhost.state.guard_record import GuardRecords

_CLOSE_SECONDS = 1.2  # of a source; each promises a second


def boot_id(paths: Paths) -> str:
    """Tell this boot from others; "" where nothing does."""
    return read_boot_id(paths.procfs)


def driver_users(paths: Paths) -> DriverUsers:
    """Look for who has the driver open. Raises OSError."""
    return read_driver_users(paths.procfs)


def read_around(paths: Paths, asked: Sequence[Process], everybody: Iterable[Process]) -> Around:
    """Read what a clean-up has to know of these processes, and who shares the tmpfs."""
    return Around(
        own_pid=os.getpid(),
        listening=read_listening(paths.procfs, asked),
        strangers=read_strangers(paths.procfs, paths.shm, everybody),
    )


class Exporter:
    """Sources, workers and the observer, made from one configuration."""

    def __init__(
        self,
        config: Config,
        paths: Paths,
        *,
        clock: Clock,
        environment: Mapping[str, str] | None = None,
        bus_address: str | None = None,
        host: Source[Host] | None = None,
        boottime: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        history: History | None = None,
        save: Callable[[History], None] | None = None,
        watch: bool = False,
    ) -> None:
        """Have it ready to look; with `watch` also to act on starts as they happen, from start_watching on.

        `history` is what an earlier run has left, `save` what keeps it for the next one. `environment`, `bus_address`,
        `host` and `boottime` stand in for this process's or host's own, in tests.
        """
        on = config.collectors
        self._started_with = config
        self._config = config
        self._clock = clock
        self._host = Worker("procfs", host or HostSource(procfs=paths.procfs), clock)
        self._nvml_source = (
            NvmlSource(procfs=paths.procfs, environment=environment, monotonic=clock.monotonic) if on.nvml else None
        )
        self._nvml = Worker("nvml", self._nvml_source, clock) if self._nvml_source is not None else None
        wish = Wish(paths.run, boot_id=boot_id(paths), boottime=boottime)
        self._driver_pause = (
            DriverPause(self._nvml_source, wish.seconds_left) if self._nvml_source is not None else None
        )
        self._procfs = (
            ProcfsSource(
                procfs=paths.procfs,
                trust_pid_namespace=config.pid_namespace is PidNamespace.TRUST,
                titles=_titles(config),
                monotonic=clock.monotonic,
            )
            if on.procfs
            else None
        )
        self._processes = Worker("procfs", self._procfs, clock) if self._procfs is not None else None
        self._systemd = (
            SystemdSource(
                patterns=config.units.patterns,
                discover=config.units.discover,
                is_engine_command=lambda argv: bool(is_engine_command(argv)),
                address=bus_address,
                on_event=self._on_event if watch else None,
            )
            if on.systemd
            else None
        )
        self._units = Worker("systemd", self._systemd, clock) if self._systemd is not None else None
        self._shm = (
            ShmSource(
                shm=paths.shm,
                procfs=paths.procfs,
                names=config.shm.kinds,
                grace_seconds=config.policy.segment_grace_seconds,
                trust_pid_namespace=config.pid_namespace is PidNamespace.TRUST,
                monotonic=clock.monotonic,
            )
            if on.shm
            else None
        )
        self._segments = Worker("shm", self._shm, clock) if self._shm is not None else None
        self._engine_source = EngineSource(procfs=paths.procfs) if on.engine else None
        self._engines = Worker("engine", self._engine_source, clock) if self._engine_source is not None else None
        self._guard_runs = Worker("guard", GuardRecords(paths.run), clock)
        self._boottime = boottime
        self._keeper = HistoryKeeper(
            history if history is not None else History(), policy=lambda: self._config.policy, save=save
        )
        self._observer = Observer(
            host=self._host,
            nvml=self._nvml,
            processes=self._processes,
            units=self._units,
            shm=self._segments,
            engines=self._engines,
            guard_runs=self._guard_runs,
            discover=units_of_interest,
            watch=self._watch,
            aim=self._aim,
            attempt_seconds=lambda: self._config.web.deadline_seconds,
            keeper=self._keeper,
            clock=clock,
        )
        self._memory = (
            Worker("nvml memory", NvmlMemorySource(self._nvml_source), clock)
            if watch and self._nvml_source is not None
            else None
        )
        if self._driver_pause is not None:
            self._driver_pause.start()
        for worker in self._workers():
            worker.start()
        self._watching = self._watcher(clock) if watch else None

    def start_watching(self) -> None:
        """Act on starts from now on, where that was asked for, and take a first look, whoever scrapes or not.

        It tells who holds memory and who runs an engine, so that these are watched as well.
        """
        if self._watching is None:
            return
        self._watching.start()
        if self._systemd is not None:
            self._systemd.start()
        until = self._clock.monotonic() + self._config.web.deadline_seconds
        threading.Thread(target=self.observe, args=(until,), name="llmhost-first-look", daemon=True).start()

    def _watcher(self, clock: Clock) -> Watch:
        judge = Judge(
            keeper=self._keeper,
            host=self._host,
            memory=self._memory,
            nvml=self._nvml,
            processes=self._processes,
            lists_due_in_seconds=(
                self._nvml_source.lists_due_in_seconds if self._nvml_source is not None else lambda: 0.0
            ),
            units=lambda: self._watching.units() if self._watching is not None else (),
            config=lambda: self._config,
            clock=clock,
        )
        release = Release(
            keeper=self._keeper, host=self._host, memory=self._memory, config=lambda: self._config, clock=clock
        )
        return Watch(keeper=self._keeper, judge=judge, release=release)

    def _on_event(self, event: UnitEvent) -> None:
        if self._watching is not None:
            self._watching.put(event)

    @property
    def history(self) -> History:
        """All that is remembered by now."""
        return self._keeper.history

    def observe(self, deadline: float) -> Observation:
        return self._observer.observe(deadline)

    def configure(self, config: Config) -> tuple[str, ...]:
        """Take what can change while running; give the keys that differ from what was started and need a restart."""
        self._config = config
        if self._procfs is not None:
            self._procfs.configure(titles=_titles(config))
        if self._shm is not None:
            self._shm.configure(names=config.shm.kinds, grace_seconds=config.policy.segment_grace_seconds)
        if self._systemd is not None:
            self._systemd.configure(patterns=config.units.patterns, discover=config.units.discover)
        return _needs_restart(self._started_with, config)

    def close(self) -> None:
        """Let go of everything, also of what hangs; all at once, so that it takes no longer than the slowest."""
        if self._driver_pause is not None:
            self._driver_pause.close(0.0)
        if self._watching is not None:
            self._watching.close(_CLOSE_SECONDS)  # what comes later is found by the next run
        closing = [threading.Thread(target=worker.close, daemon=True) for worker in self._workers()]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(_CLOSE_SECONDS)

    def _watch(self, names: Iterable[str]) -> None:
        if self._systemd is not None and self._config.units.discover:
            self._systemd.watch(names)

    def _aim(self, processes: Reading[ProcessTable], units: Reading[UnitsReport]) -> None:
        if self._engine_source is None:
            return
        if not isinstance(processes, Ok) or not isinstance(units, Ok):
            return  # whoever was asked before still is: one look that failed says nothing of the servers
        young_from = self._boottime() - self._config.policy.ready_seconds
        servers = engine_servers(
            processes.value,
            units.value,
            self._config.engines,
            young_from_ticks=young_from * os.sysconf("SC_CLK_TCK"),
        )
        self._engine_source.aim(servers)

    def _workers(self) -> tuple[Worker[object], ...]:
        workers = (
            self._host,
            self._nvml,
            self._memory,
            self._processes,
            self._units,
            self._segments,
            self._engines,
            self._guard_runs,
        )
        return tuple(worker for worker in workers if worker is not None)  # type: ignore[misc]


def _titles(config: Config) -> Titles:
    return Titles((row.pattern, row.engine, row.role) for row in config.titles)


def _needs_restart(old: Config, new: Config) -> tuple[str, ...]:
    changed = {
        "collectors": old.collectors != new.collectors,
        "host.pid_namespace": old.pid_namespace != new.pid_namespace,
        "web.listen": old.web.listen != new.web.listen,
        "web.max_connections": old.web.max_connections != new.web.max_connections,
    }
    return tuple(key for key, differs in changed.items() if differs)
