"""One look at the host: asks all workers, takes what comes by the deadline, stamps one time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from llmhost.collect.worker import Clock, Health, Ticket, Worker
from llmhost.model.gpu import NvmlReport
from llmhost.model.host import Host
from llmhost.model.process import ProcessTable
from llmhost.model.reading import NotApplicable, Reading
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import UnitsReport

T = TypeVar("T")

DISABLED = NotApplicable("disabled by the config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    snapshot: Snapshot
    health: tuple[Health, ...]


class Observer:
    """Attempts are shared: two who look at the same time cost one read of each source.

    Units are asked for last, so that those which only the other sources could discover (they run an engine, or hold
    GPU memory) are watched by then. A driver that hangs delays that by half of the time there is, no more.
    """

    def __init__(
        self,
        *,
        host: Worker[Host],
        nvml: Worker[NvmlReport] | None,
        processes: Worker[ProcessTable] | None,
        units: Worker[UnitsReport] | None,
        discover: Callable[[Reading[NvmlReport], Reading[ProcessTable]], Iterable[str]],
        watch: Callable[[Iterable[str]], None],
        clock: Clock,
    ) -> None:
        self._host = host
        self._nvml = nvml
        self._processes = processes
        self._units = units
        self._discover = discover
        self._watch = watch
        self._clock = clock

    def observe(self, deadline: float) -> Observation:
        """Look once, by `deadline` on the monotonic clock."""
        half = (self._clock.monotonic() + deadline) / 2
        host = self._host.ask(deadline)
        nvml = _ask(self._nvml, deadline)
        processes = _ask(self._processes, deadline)
        seen = _answer(self._processes, processes, deadline)
        if self._units is not None:
            early = (nvml.wait(half - self._clock.monotonic()) if nvml is not None else None) or DISABLED
            self._watch(self._discover(early, seen))
        units = _ask(self._units, deadline)
        snapshot = Snapshot(
            host=self._host.answer(host, deadline),
            nvml=_answer(self._nvml, nvml, deadline),
            processes=seen,
            units=_answer(self._units, units, deadline),
            at=self._clock.time(),
        )
        return Observation(snapshot=snapshot, health=self._health())

    def _health(self) -> tuple[Health, ...]:
        workers = (self._nvml, self._processes, self._units)
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
