"""Processes, observed one time after another at times that the test says, and the orphans among them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from tests.fakes.values import snapshot

from llmhost.config.schema import Policy
from llmhost.derive.history.processes import next_orphan_since
from llmhost.derive.orphans import Orphan, orphans
from llmhost.derive.trackers import TrackerState, tracker_states
from llmhost.model.gpu import Gpu
from llmhost.model.ids import ProcessId
from llmhost.model.process import ProcessTable
from llmhost.model.reading import Ok
from llmhost.model.unit import Unit
from llmhost.sources.procfs import ProcfsSource


class ObservedProcesses:
    """Keeps what the history keeps of orphans. `pids` are the processes that count, by pid; all others are ignored."""

    def __init__(self, procfs: Path = Path("/proc"), names: Callable[[], Mapping[int, str]] | None = None) -> None:
        self._now = 0.0
        self._source = ProcfsSource(procfs=procfs, trust_pid_namespace=True, monotonic=lambda: self._now)
        self._names = names
        self._since: Mapping[ProcessId, float] = {}
        self._found: frozenset[ProcessId] = frozenset()
        self.table = ProcessTable(by_pid={}, unreadable=0)

    def orphans(
        self, at: float, *, units: Iterable[Unit] | None = None, gpus: Iterable[Gpu] | None = None
    ) -> dict[str, Orphan]:
        """Observe, `at` seconds on the clock, and give the orphans by name, or by pid where they have none."""
        self._now = 1000.0 + at
        self.table = self._source.read(self._now + 10)
        taken = replace(
            snapshot(processes=(), units=units, gpus=gpus, at_monotonic=self._now), processes=Ok(self.table)
        )
        self._since = next_orphan_since(self._since, taken)
        found = orphans(taken, self._since, 0.0, Policy())  # watched since long before
        assert isinstance(found, Ok)
        self._found = frozenset(orphan.process.id for orphan in found.value)
        return {name: orphan for orphan in found.value if (name := self._name(orphan.process.id.pid)) is not None}

    def trackers(self) -> dict[str, TrackerState]:
        """States at the last observation."""
        states = tracker_states(self.table, self._found)
        return {name: state for process, state in states.items() if (name := self._name(process.pid)) is not None}

    def _name(self, pid: int) -> str | None:
        return str(pid) if self._names is None else self._names().get(pid)
