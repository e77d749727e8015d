"""The host as a command sees it: read by the exporter's own parts, with the history that the exporter has saved."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from llmhost.assemble.exporter import Exporter
from llmhost.assemble.sources import Sources
from llmhost.collect.clock import SystemClock
from llmhost.config.load import load_or_defaults
from llmhost.config.paths import DEFAULT_CONFIG, Paths
from llmhost.derive.host_view import HostView, host_view
from llmhost.model.reading import Ok
from llmhost.model.snapshot import Snapshot
from llmhost.state.saved_history import read_history

_RATE_SECONDS = 1.0  # between the two snapshots that rates are taken from


class HostReader:
    """Reads the host each time it is asked. Close it, or use it in a `with`."""

    def __init__(
        self, config_file: Path | None, state_directory: Path | None, paths: Paths, *, units: Sequence[str] = ()
    ) -> None:
        """Read config and history; `units` are watched beside those of the config.

        Where the config has a mistake, all goes by the defaults, and `config_fault` says what it is. Raises ConfigError
        for a file that was given and cannot be read, and StoreError for a directory that was given and is none.
        """
        self._config_file = config_file or DEFAULT_CONFIG
        config, self.config_fault = load_or_defaults(config_file)
        patterns = (*config.units.patterns, *units)
        self.config = replace(config, units=replace(config.units, patterns=patterns))
        saved = read_history(state_directory, Sources(paths=paths).boot_id)
        self._history_fault = saved.fault
        self._clock = SystemClock()
        self._exporter = Exporter(self.config, paths, clock=self._clock, history=saved.history)
        self._before: Snapshot | None = None

    def read(self) -> HostView:
        """Read once, by the deadline of the config; from the second time on with rates."""
        observation = self._exporter.observe(self._clock.monotonic() + self.config.web.deadline_seconds)
        view = host_view(
            observation.snapshot,
            observation.history,
            self.config,
            before=self._before,
            history_fault=self._history_fault,
            config_file=str(self._config_file),
            config_fault=self.config_fault,
        )
        self._before = observation.snapshot
        return view

    def read_with_rates(self) -> HostView:
        """Read twice, a second apart, where an engine answers."""
        view = self.read()
        engines = view.snapshot.engines
        if not isinstance(engines, Ok) or not any(isinstance(answer.samples, Ok) for answer in engines.value.answers):
            return view
        time.sleep(_RATE_SECONDS)
        return self.read()

    def close(self) -> None:
        self._exporter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
