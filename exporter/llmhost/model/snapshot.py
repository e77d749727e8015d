"""Everything that was read at one time."""

from dataclasses import dataclass

from llmhost.model.engine import EnginesReport
from llmhost.model.gpu import Gpu, NvmlReport
from llmhost.model.guard_run import GuardRun
from llmhost.model.host import Host
from llmhost.model.process import ProcessTable
from llmhost.model.reading import NotApplicable, Ok, Reading
from llmhost.model.segment import SharedMemory
from llmhost.model.unit import Unit, UnitsReport

_NOT_COLLECTED = NotApplicable("not looked at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    at: float  # seconds since the epoch
    at_monotonic: float  # the same on CLOCK_MONOTONIC
    host: Reading[Host]
    nvml: Reading[NvmlReport]
    processes: Reading[ProcessTable]
    units: Reading[UnitsReport]
    shm: Reading[SharedMemory]
    engines: Reading[EnginesReport]
    guard_runs: Reading[tuple[GuardRun, ...]] = _NOT_COLLECTED

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The listed GPUs and MIG instances; () where NVML could not be read: ask `nvml` where that matters."""
        return self.nvml.value.gpus if isinstance(self.nvml, Ok) else ()

    @property
    def watched_units(self) -> tuple[Unit, ...]:
        """The watched units; () where systemd could not be read: ask `units` where that matters."""
        return self.units.value.units if isinstance(self.units, Ok) else ()
