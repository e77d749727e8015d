"""The exporter: one config's sources, the observer over them, the history, and the watch over starts."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from llmhost.assemble.sources import Sources
from llmhost.collect.driver_pause import DriverPause
from llmhost.collect.history_keeper import HistoryKeeper
from llmhost.collect.observer import Observation, Observer
from llmhost.collect.worker import Clock
from llmhost.config.paths import Paths
from llmhost.config.schema import Config
from llmhost.derive.remembered import gpus_to_miss, remembered_units
from llmhost.derive.servers import engine_servers
from llmhost.derive.units_of_interest import units_of_interest
from llmhost.model.history.history import History
from llmhost.model.host import Host
from llmhost.model.process import ProcessTable
from llmhost.model.reading import Ok, Reading
from llmhost.model.unit import UnitsReport
from llmhost.model.unit_event import UnitEvent
from llmhost.sources.base import Source
from llmhost.starts.judge import Judge
from llmhost.starts.memory_release import ReleaseTimer
from llmhost.starts.watch import StartWatcher
from llmhost.state.driver_pause import PauseRequest

_CLOSE_SECONDS = 1.2  # of the watch


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
        """Start what an observation needs; with `watch`, start_watching starts what acts on starts as they happen.

        `history` is what an earlier run has left, `save` what keeps it for the next one. `environment`, `bus_address`,
        `host` and `boottime` stand in for this process's or host's own, in tests.
        """
        history = history or History()
        self._started_with = config
        self._clock = clock
        self._boottime = boottime
        self._sources = sources = Sources(
            config,
            paths,
            clock=clock,
            on_unit_event=self._on_event if watch else None,
            environment=environment,
            bus_address=bus_address,
            host=host,
            seen_gpus=gpus_to_miss(history, config.gpus.expected),
        )
        sources.systemd.watch(remembered_units(history))
        request = PauseRequest(paths.run, boot_id=sources.boot_id, boottime=boottime)
        self._driver_pause = DriverPause(sources.driver, request.remaining_seconds)
        if config.collectors.nvml:
            self._driver_pause.start()  # before anything is read
        self._keeper = HistoryKeeper(history, policy=lambda: sources.config.policy, save=save)
        self._observer = Observer(
            host=sources.host,
            nvml=sources.nvml,
            processes=sources.processes,
            units=sources.units,
            segments=sources.segments,
            engines=sources.engines,
            guard_runs=sources.guard_runs,
            discover=units_of_interest,
            watch=sources.systemd.watch,
            set_targets=self._set_targets,
            attempt_seconds=lambda: sources.config.web.deadline_seconds,
            keeper=self._keeper,
            clock=clock,
        )
        self._watching = self._watcher() if watch else None

    def start_watching(self) -> None:
        """Act on starts from now on, and observe once without waiting for a scrape.

        The observation finds the units that hold memory or run an engine, so that these are watched too.
        """
        if self._watching is None:
            return
        self._watching.start()
        self._sources.systemd.start()
        until = self._clock.monotonic() + self._sources.config.web.deadline_seconds
        threading.Thread(target=self.observe, args=(until,), name="llmhost-first-look", daemon=True).start()

    def _watcher(self) -> StartWatcher:
        sources = self._sources
        judge = Judge(
            keeper=self._keeper,
            host=sources.host,
            memory=sources.nvml_memory,
            nvml=sources.nvml,
            processes=sources.processes,
            lists_due_in_seconds=sources.driver.lists_due_in_seconds,
            units=lambda: self._watching.units() if self._watching is not None else (),
            find_units=self._find_units,
            config=lambda: sources.config,
            clock=self._clock,
        )
        release = ReleaseTimer(
            keeper=self._keeper,
            host=sources.host,
            memory=sources.nvml_memory,
            config=lambda: sources.config,
            clock=self._clock,
        )
        return StartWatcher(keeper=self._keeper, judge=judge, release=release)

    def _find_units(self, names: Iterable[str], deadline: float) -> UnitsReport:
        self._sources.systemd.watch(names)
        return self._sources.systemd.read(deadline)

    def _on_event(self, event: UnitEvent) -> None:
        if self._watching is not None:
            self._watching.put(event)

    @property
    def history(self) -> History:
        """The history as of the last observation or event."""
        return self._keeper.history

    def observe(self, deadline: float) -> Observation:
        return self._observer.observe(deadline)

    def configure(self, config: Config) -> tuple[str, ...]:
        """Take what can change while running; give the keys that differ from what was started and need a restart."""
        self._sources.configure(config)
        return _needs_restart(self._started_with, config)

    def close(self) -> None:
        """Let go of everything, also of what hangs."""
        self._driver_pause.close(0.0)
        if self._watching is not None:
            self._watching.close(_CLOSE_SECONDS)  # what comes later is found by the next run
        self._sources.close()

    def _set_targets(self, processes: Reading[ProcessTable], units: Reading[UnitsReport]) -> None:
        if not isinstance(processes, Ok) or not isinstance(units, Ok):
            return  # the servers of before stay: one failed observation says nothing of them
        config = self._sources.config
        young_from = self._boottime() - config.policy.ready_seconds
        servers = engine_servers(
            processes.value,
            units.value,
            config.engines,
            young_from_ticks=young_from * os.sysconf("SC_CLK_TCK"),
        )
        self._sources.engine.set_servers(servers)


def _needs_restart(old: Config, new: Config) -> tuple[str, ...]:
    changed = {
        "collectors": old.collectors != new.collectors,
        "host.pid_namespace": old.pid_namespace != new.pid_namespace,
        "web.listen": old.web.listen != new.web.listen,
        "web.max_connections": old.web.max_connections != new.web.max_connections,
    }
    return tuple(key for key, differs in changed.items() if differs)
