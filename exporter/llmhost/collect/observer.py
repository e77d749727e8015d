"""One look at the host: asks all workers, takes what comes by the deadline, stamps one time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from llmhost.collect.history_keeper import HistoryKeeper
from llmhost.collect.worker import DISABLED as DISABLED  # noqa: PLC0414 - what its readers get
from llmhost.collect.worker import Clock, Health, Ticket, Worker
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

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    snapshot: Snapshot
    history: History
    health: tuple[Health, ...]


class Observer:
    """Attempts are shared: two who look at the same time cost one read of each source.

    Engines are asked for last, as units tell whose their servers are; units before them and after the others, so that
    those which only the others could discover (they run an engine, or hold memory) are watched by then. What
    hangs delays that by half of the time there is, no more.
    """

    def __init__(
        self,
        *,
        host: Worker[Host],
        nvml: Worker[NvmlReport] | None,
        processes: Worker[ProcessTable] | None,
        units: Worker[UnitsReport] | None,
        shm: Worker[SharedMemory] | None,
        engines: Worker[EnginesReport] | None,
        guard_runs: Worker[tuple[GuardRun, ...]] | None = None,
        discover: Callable[[Reading[NvmlReport], Reading[ProcessTable]], Iterable[str]],
        watch: Callable[[Iterable[str]], None],
        aim: Callable[[Reading[ProcessTable], Reading[UnitsReport]], None],
        attempt_seconds: Callable[[], float],
        keeper: HistoryKeeper,
        clock: Clock,
    ) -> None:
        self._host = host
        self._nvml = nvml
        self._processes = processes
        self._units = units
        self._shm = shm
        self._engines = engines
        self._guard_runs = guard_runs
        self._discover = discover
        self._watch = watch
        self._aim = aim
        self._attempt_seconds = attempt_seconds
        self._keeper = keeper
        self._clock = clock

    def observe(self, deadline: float) -> Observation:
        """Look once, by `deadline` on the monotonic clock.

        Attempts are given the usual time, whatever this deadline: who is in a hurry must not spoil it for others. Not
        so the engines': each is waited for by itself, so all that a hurry costs is the slow ones.
        """
        now = self._clock.monotonic()
        until = max(deadline, now + self._attempt_seconds())
        half = (now + deadline) / 2
        host = self._host.ask(until)
        nvml = _ask(self._nvml, until)
        processes = _ask(self._processes, until)
        shm = _ask(self._shm, until)
        guard_runs = _ask(self._guard_runs, until)
        if self._units is not None:
            self._watch(self._discover(self._early(nvml, half), self._early(processes, half)))
        units = _ask(self._units, until)
        processes_read = _answer(self._processes, processes, deadline)
        units_read = _answer(self._units, units, deadline)
        if self._engines is not None:
            self._aim(processes_read, units_read)
        engines = _ask(self._engines, deadline)
        snapshot = Snapshot(
            host=self._host.answer(host, deadline),
            nvml=_answer(self._nvml, nvml, deadline),
            processes=processes_read,
            units=units_read,
            shm=_answer(self._shm, shm, deadline),
            engines=_answer(self._engines, engines, deadline),
            guard_runs=_answer(self._guard_runs, guard_runs, deadline),
            at=self._clock.time(),
            at_monotonic=self._clock.monotonic(),
        )
        history = self._keeper.add_observation(snapshot)
        self._keeper.save()  # before anybody is told of it
        return Observation(snapshot=snapshot, history=history, health=self._health())

    def _early(self, ticket: Ticket[T] | None, until: float) -> Reading[T]:
        """Give what there is by then; an attempt that is known to be late is not waited for at all."""
        if ticket is None or ticket.late:
            return DISABLED
        return ticket.wait(until - self._clock.monotonic()) or DISABLED

    def _health(self) -> tuple[Health, ...]:
        workers = (self._nvml, self._processes, self._units, self._shm, self._engines, self._guard_runs)
        health = [worker.health() for worker in workers if worker is not None]
        host = self._host.health().fault
        if host is not None:  # the host's clock and memory come from /proc as well
            health = [
                replace(one, fault=host) if one.collector == "procfs" and one.fault is None else one for one in health
            ]
        return tuple(health)


def _ask(worker: Worker[T] | None, deadline: float) -> Ticket[T] | None:
    return None if worker is None else worker.ask(deadline)


def _answer(worker: Worker[T] | None, ticket: Ticket[T] | None, deadline: float) -> Reading[T]:
    if worker is None or ticket is None:
        return DISABLED
    return worker.answer(ticket, deadline)
