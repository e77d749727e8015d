"""What the guard reads: memory all the time, the unit once a second, lists and processes to name who holds memory."""

from collections.abc import Mapping

from llmhost.assemble.guard_sources import FIRST_SECONDS, Gpus, Surroundings
from llmhost.collect.pending_reading import PendingReading
from llmhost.collect.worker import Clock, Ticket
from llmhost.config.schema import Config
from llmhost.decide.guard.memory_stability import STEADY_BYTES
from llmhost.decide.holder_summary import SeenGpu
from llmhost.model.gpu import NvmlReport
from llmhost.model.history.history import History
from llmhost.model.host import Host
from llmhost.model.ids import GpuUuid
from llmhost.model.process import ProcessTable
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import UnitsReport
from llmhost.views.guard.lines import Scene

_MEMORY_SECONDS = 2.0  # for one reading
_LATE_SECONDS = 1.5  # of which then that is told which it hangs in
_FACTS_SECONDS = 2.0
_UNITS_SECONDS = 1.0  # between two readings
_LISTS_SOON_SECONDS = 1.0  # between two lists where there is news
_LISTS_SECONDS = 5.0  # and where there is none: live engines wait for the lock that they take
_WAIT_SECONDS = 0.1  # for memory, which takes a millisecond
_NOT_ASKED = NotApplicable("not asked by the guard")


class Looks:
    """For use by one thread, which nothing in here blocks for longer than _WAIT_SECONDS."""

    def __init__(self, gpus: Gpus, surroundings: Surroundings, config: Config, history: History, clock: Clock) -> None:
        self.nvml: Reading[NvmlReport] | None = None  # as of the last reading of memory
        self.host: Reading[Host] | None = None
        self.units: Reading[UnitsReport] | None = None
        self.all_read = False  # everything was read of each GPU at least once
        self.holders: Mapping[GpuUuid, SeenGpu] = {}
        self.history = history
        self._memory = gpus.memory
        self._surroundings = surroundings
        self._config = config
        self._clock = clock
        self._source = gpus.source
        self._asked_at = 0.0
        self._ticket: Ticket[NvmlReport] | None = None
        self._lists = PendingReading(gpus.lists, clock, seconds=FIRST_SECONDS)
        self._tables = PendingReading(surroundings.processes, clock, seconds=FIRST_SECONDS)
        self._hosts = PendingReading(surroundings.host, clock, seconds=_FACTS_SECONDS)
        self._all_units = PendingReading(surroundings.units, clock, seconds=_FACTS_SECONDS)
        self._units_at = -_UNITS_SECONDS
        self._listing = False  # lists or processes are under way
        self._listed: Reading[NvmlReport] | None = None
        self._found: tuple[Reading[NvmlReport], Reading[ProcessTable]] | None = None  # waits for systemd
        self._listed_at = -_LISTS_SECONDS
        self._used_when_listed: Mapping[GpuUuid, int] = {}

    @property
    def has_looked(self) -> bool:
        """Whether everything has answered, and nothing of it is under way."""
        pending = self._listing or self._found is not None
        return self.nvml is not None and self.units is not None and not pending

    def take_memory(self) -> bool:
        """Read memory; False while that is under way."""
        if self._ticket is None:
            self._ticket = self._memory.ask(self._clock.monotonic() + _MEMORY_SECONDS)
            self._asked_at = self._clock.monotonic()
        reading = self._ticket.wait(_WAIT_SECONDS)
        if reading is None and self._clock.monotonic() - self._asked_at < _LATE_SECONDS:
            return False
        if reading is None:
            reading = Failed(Cause.TIMEOUT, self._source.doing(), self._source.stuck())
        else:
            self._ticket = None
        self.nvml = reading
        return True

    def take_facts(self, *, host_moves: bool) -> None:
        """Take what has come of the host and of systemd; ask again for what may have changed."""
        if self.host is None or host_moves:
            self.host = self._hosts.take() or self.host
        now = self._clock.monotonic()
        if not isinstance(self.units, Ok) or now - self._units_at >= _UNITS_SECONDS:
            units = self._all_units.take()
            if units is not None:
                # What systemd told of a unit holds while it is busy, with a daemon-reload say.
                if isinstance(units, Ok) or not isinstance(self.units, Ok):
                    self.units = units
                self._units_at = now
                if self._found is not None:
                    self._attribute(*self._found)

    def look(self, scene: Scene, *, soon: bool) -> None:
        """Read lists and then processes, if it is time to, a step at a time, and find out who holds what."""
        if not self._listing:
            passed = self._clock.monotonic() - self._listed_at
            due = _LISTS_SOON_SECONDS if soon or self._has_moved(scene) else _LISTS_SECONDS
            if passed < due or not isinstance(self.nvml, Ok):
                return
            self._listing, self._listed = True, None
        if self._listed is None:
            self._listed = self._lists.take()
            if isinstance(self._listed, Ok):
                self.all_read = True
                self._used_when_listed = self._listed.value.used_bytes
            if self._listed is None:
                return
        processes = self._tables.take()
        if processes is not None:
            self._listing, self._listed_at = False, self._clock.monotonic()
            self._take_in(self._listed, processes)

    def snapshot(self) -> Snapshot:
        return self._snapshot(self.nvml or _NOT_ASKED, _NOT_ASKED)

    def _take_in(self, nvml: Reading[NvmlReport], processes: Reading[ProcessTable]) -> None:
        """Find out whose memory it is; where it is of units that were not known, once systemd has told of them."""
        # Imported only where there is somebody to name: a verdict must not wait for it.
        from llmhost.collect.discover import units_of_interest  # noqa: PLC0415

        if self._surroundings.watch(units_of_interest(nvml, processes)) and isinstance(self.units, Ok):
            self._found, self._units_at = (nvml, processes), -_UNITS_SECONDS
        else:
            self._attribute(nvml, processes)

    def _attribute(self, nvml: Reading[NvmlReport], processes: Reading[ProcessTable]) -> None:
        self._found = None
        from llmhost.decide.guard.holders import seen_holders  # noqa: PLC0415
        from llmhost.derive.facts import derive  # noqa: PLC0415
        from llmhost.derive.history.observations import with_observation  # noqa: PLC0415

        snapshot = self._snapshot(nvml, processes)
        self.history = with_observation(self.history, snapshot, self._config.policy)
        self.holders = seen_holders(derive(snapshot, self._config, self.history).attribution, snapshot)

    def _snapshot(self, nvml: Reading[NvmlReport], processes: Reading[ProcessTable]) -> Snapshot:
        return Snapshot(
            at=self._clock.time(),
            at_monotonic=self._clock.monotonic(),
            host=self.host or _NOT_ASKED,
            nvml=nvml,
            processes=processes,
            units=self.units or _NOT_ASKED,
            shm=_NOT_ASKED,
            engines=_NOT_ASKED,
        )

    def _has_moved(self, scene: Scene) -> bool:
        """Whether memory on a GPU of the unit is other than when the lists were read."""
        used = self.nvml.value.used_bytes if isinstance(self.nvml, Ok) else {}
        return any(
            abs(used.get(gpu.uuid, 0) - self._used_when_listed.get(gpu.uuid, 0)) > STEADY_BYTES
            for gpu in scene.decision.gpus
        )
