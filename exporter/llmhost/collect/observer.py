"""An observation: one pass over all workers, within a deadline, stamped with one time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from llmhost.collect.history_keeper import HistoryKeeper
from llmhost.collect.worker import DISABLED, Clock, CollectorHealth, Ticket, Worker
from llmhost.derive.remembered import with_vanished_units
from llmhost.model.engine import EnginesReport
from llmhost.model.gpu import NvmlReport
from llmhost.model.guard_run import GuardRun
from llmhost.model.history.history import History
from llmhost.model.host import Host
from llmhost.model.process import ProcessTable
from llmhost.model.reading import Reading
from llmhost.model.segment import SharedMemory
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import UnitsReport
from llmhost.runtime.clock_pair import read_together

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    snapshot: Snapshot
    history: History
    health: tuple[CollectorHealth, ...]


class Observer:
    """Observes. Observations at the same time share their reads: each source is read once.

    Units are asked for after GPUs and processes, as those discover units to watch: such that run an engine, or hold
    memory. A source that hangs delays this by half of the deadline at most. Engines are asked for last, as processes
    and units tell the servers to ask.
    """

    def __init__(
        self,
        *,
        host: Worker[Host],
        nvml: Worker[NvmlReport],
        processes: Worker[ProcessTable],
        units: Worker[UnitsReport],
        segments: Worker[SharedMemory],
        engines: Worker[EnginesReport],
        guard_runs: Worker[tuple[GuardRun, ...]],
        discover: Callable[[Reading[NvmlReport], Reading[ProcessTable]], Iterable[str]],
        watch: Callable[[Iterable[str]], None],
        set_targets: Callable[[Reading[ProcessTable], Reading[UnitsReport]], None],
        attempt_seconds: Callable[[], float],
        keeper: HistoryKeeper,
        clock: Clock,
    ) -> None:
        self._host = host
        self._nvml = nvml
        self._processes = processes
        self._units = units
        self._segments = segments
        self._engines = engines
        self._guard_runs = guard_runs
        self._discover = discover
        self._watch = watch
        self._set_targets = set_targets
        self._attempt_seconds = attempt_seconds
        self._keeper = keeper
        self._clock = clock

    def observe(self, deadline: float) -> Observation:
        """Observe once, by `deadline` on the monotonic clock.

        Reads are given the usual time, whatever this deadline is: others may share them. Not so reads of engines: each
        engine is waited for by itself, so that a short deadline costs the slow ones alone.
        """
        now = self._clock.monotonic()
        until = max(deadline, now + self._attempt_seconds())
        half = (now + deadline) / 2
        host = self._host.ask(until)
        nvml = self._nvml.ask(until)
        processes = self._processes.ask(until)
        segments = self._segments.ask(until)
        guard_runs = self._guard_runs.ask(until)
        self._watch(self._discover(self._early(nvml, half), self._early(processes, half)))
        units = self._units.ask(until)
        processes_read = self._processes.answer(processes, deadline)
        units_read = self._units.answer(units, deadline)
        self._set_targets(processes_read, units_read)
        engines = self._engines.ask(deadline)
        host_read = self._host.answer(host, deadline)
        nvml_read = self._nvml.answer(nvml, deadline)
        segments_read = self._segments.answer(segments, deadline)
        engines_read = self._engines.answer(engines, deadline)
        guard_runs_read = self._guard_runs.answer(guard_runs, deadline)
        at_monotonic, at = read_together(self._clock.monotonic, self._clock.time)
        snapshot = Snapshot(
            at=at,
            at_monotonic=at_monotonic,
            host=host_read,
            nvml=nvml_read,
            processes=processes_read,
            units=units_read,
            shm=segments_read,
            engines=engines_read,
            guard_runs=guard_runs_read,
        )
        history = self._keeper.add_observation(snapshot)
        self._keeper.save()  # before any page shows it
        return Observation(snapshot=with_vanished_units(snapshot, history), history=history, health=self._health())

    def _early(self, ticket: Ticket[T], until: float) -> Reading[T]:
        """Return the reading, if there is one by then; an attempt that is known to be late is not waited for."""
        if ticket.late:
            return DISABLED
        return ticket.wait(until - self._clock.monotonic()) or DISABLED

    def _health(self) -> tuple[CollectorHealth, ...]:
        workers = (self._nvml, self._processes, self._units, self._segments, self._engines, self._guard_runs)
        host = self._host.health()
        return tuple(_with_host(health, host) for worker in workers if (health := worker.health()) is not None)


def _with_host(health: CollectorHealth, host: CollectorHealth | None) -> CollectorHealth:
    """Count a fault of the host's clock and memory as one of procfs: they come from /proc as well."""
    if health.collector == "procfs" and health.fault is None and host is not None:
        return replace(health, fault=host.fault)
    return health
