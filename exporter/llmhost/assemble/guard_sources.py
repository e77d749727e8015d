"""The parts of Sources by the names that the guard has for them."""

from collections.abc import Mapping
from pathlib import Path

from llmhost.assemble.sources import GUARD_DRIVER_BACKOFF_SECONDS, Sources, guard_config
from llmhost.collect.worker import Clock
from llmhost.config.paths import Paths
from llmhost.config.schema import Config

FIRST_SECONDS = 5.0  # for the first answer: a machine that boots has much to do


class Gpus:
    """The driver: memory alone, and everything."""

    def __init__(self, *, procfs: Path, clock: Clock, environment: Mapping[str, str] | None = None) -> None:
        self.sources = Sources(
            paths=Paths(procfs=procfs),
            clock=clock,
            driver_backoff_seconds=GUARD_DRIVER_BACKOFF_SECONDS,
            environment=environment,
        )
        self.source = self.sources.driver
        self.memory = self.sources.nvml_memory
        self.lists = self.sources.nvml

    def ask(self) -> None:
        """Have the driver's child start up, and wait for nothing."""
        self.memory.ask(self.sources.clock.monotonic() + FIRST_SECONDS)

    def close(self) -> None:
        self.sources.close()


class Surroundings:
    """The host, its processes, and systemd's view of some units."""

    def __init__(self, sources: Sources, config: Config, units: tuple[str, ...]) -> None:
        self._units = units
        self._config = config
        self.sources = sources
        sources.configure(guard_config(config, units))
        self.units, self.host, self.processes = sources.units, sources.host, sources.processes
        if units:
            sources.systemd.start()

    def watch(self, units: set[str]) -> bool:
        """Have systemd tell of these as well: they hold memory. Gives whether there is one that it did not tell of."""
        new = units - set(self._units)
        if new:
            self._units = (*self._units, *sorted(new))
            self.sources.configure(guard_config(self._config, self._units))
        return bool(new)
