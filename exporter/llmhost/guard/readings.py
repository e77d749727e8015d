"""The readings of one run of the guard: memory before every step, the files once, all else when it is asked for."""

import os
import time
from collections.abc import Callable
from typing import Any

from llmhost.assemble.sources import Sources, guard_config
from llmhost.collect.worker import Ticket, Worker
from llmhost.config.schema import Config
from llmhost.decide.guard.state import Inputs, Query, RemedyProgress
from llmhost.decide.guard.target import Target
from llmhost.guard.inputs import Files
from llmhost.model.gpu import NvmlReport
from llmhost.model.reading import Cause, Failed, Ok, Reading
from llmhost.model.unit import UnitsReport
from llmhost.runtime.bounded_call import BoundedCall

FIRST_SECONDS = 5.0  # for the driver's first answer, and for lists: a machine that boots has much to do
_MEMORY_SECONDS = 2.0  # for one reading
_LATE_SECONDS = 1.5  # after which the call that it hangs in is the reading
_MEMORY_WAIT_SECONDS = 0.1  # in one step; it takes a millisecond
_SHM_WAIT_SECONDS = 0.1  # in one step; it takes no time, unless something else than a tmpfs is mounted there
_SECONDS = {Query.HOST: 2.0, Query.UNITS: 2.0, Query.LISTS: FIRST_SECONDS, Query.PROCESSES: FIRST_SECONDS}


class FreeShm:
    """The space that is free in /dev/shm."""

    def __init__(self, read: Callable[[], int | None]) -> None:
        self._read = read
        self._call: BoundedCall[int | None] | None = None

    def take(self) -> int | None:
        """Give it; None where it is not known, or not yet."""
        if self._call is None:
            self._call = BoundedCall(self._read, name="llmhost-shm-free")
        try:
            free_bytes = self._call.result(time.monotonic() + _SHM_WAIT_SECONDS)
        except TimeoutError:
            return None
        self._call = None
        return free_bytes


class GuardReadings:
    """For use by one thread, which nothing in here blocks for longer than _MEMORY_WAIT_SECONDS."""

    def __init__(self, sources: Sources, files: Files, target: Target, *, needs_shm: bool) -> None:
        self._sources = sources
        self._files = files
        self._config = sources.config
        self._timed = target.unit if target.is_own else None  # TimeoutStartSec= may limit its wait
        self._shm = FreeShm(sources.shm_free_bytes) if needs_shm else None
        self._memory: Ticket[NvmlReport] | None = None
        self._memory_requested_at = 0.0
        self._tickets: dict[Query, tuple[Worker[Any], Ticket[Any]]] = {}

    def ask(self, query: Query) -> None:
        worker = self._worker(query)
        self._tickets[query] = worker, worker.ask(self._sources.clock.monotonic() + _SECONDS[query])

    def watch(self, units: tuple[str, ...]) -> None:
        """Have systemd report these units from now on."""
        self._sources.configure(guard_config(self._config, units))

    def configure(self, config: Config, units: tuple[str, ...]) -> None:
        """Go by this config from now on."""
        self._config = config
        self.watch(units)

    def take(self, remedies: RemedyProgress | None, *, ended_by: str) -> Inputs:
        """Read memory, and take what else has come."""
        memory, units = self._take_memory(), self._take(Query.UNITS)
        return Inputs(
            at=self._sources.clock.time(),
            config=self._files.config.take(),
            history=self._files.history.take(),
            memory=memory,
            host=self._take(Query.HOST),
            units=units,
            lists=self._take(Query.LISTS),
            processes=self._take(Query.PROCESSES),
            command_began=self._command_began(units),
            shm_free_bytes=self._shm.take() if self._shm is not None else None,
            remedies=remedies,
            ended_by=ended_by,
        )

    def _worker(self, query: Query) -> Worker[Any]:
        match query:
            case Query.HOST:
                return self._sources.host
            case Query.UNITS:
                return self._sources.units
            case Query.LISTS:
                return self._sources.nvml
            case Query.PROCESSES:
                return self._sources.processes

    def _take(self, query: Query) -> Reading[Any] | None:
        if query not in self._tickets:
            return None
        worker, ticket = self._tickets[query]
        late = self._sources.clock.monotonic() >= ticket.deadline
        reading = worker.answer(ticket, ticket.deadline) if late else ticket.wait(0.0)
        if reading is not None:
            del self._tickets[query]
        return reading

    def _take_memory(self) -> Reading[NvmlReport] | None:
        now = self._sources.clock.monotonic()
        if self._memory is None:
            self._memory = self._sources.nvml_memory.ask(now + _MEMORY_SECONDS)
            self._memory_requested_at = now
        reading = self._memory.wait(_MEMORY_WAIT_SECONDS)
        if reading is not None:
            self._memory = None
        elif self._sources.clock.monotonic() - self._memory_requested_at >= _LATE_SECONDS:
            return Failed(Cause.TIMEOUT, self._sources.driver.doing(), self._sources.driver.stuck())
        return reading

    def _command_began(self, units: Reading[UnitsReport] | None) -> float | None:
        if self._timed is None or not isinstance(units, Ok):
            return None
        pid = next((unit.control_pid for unit in units.value.units if unit.id == self._timed), 0)
        return self._sources.clock.monotonic() - self._sources.process_age_seconds(pid or os.getpid())
