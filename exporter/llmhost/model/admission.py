"""Admissions: starts that a guard has let go on, and that may not hold their memory yet."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmhost.model.ids import GpuUuid, ProcessId, UnitId


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """One admission: of a unit's run, or of a command that a guard has become."""

    at_boottime_seconds: float  # on CLOCK_BOOTTIME
    needed: Mapping[GpuUuid, int | None]  # bytes on each GPU; None: how much is not known
    any_gpus: bool = False  # these are all GPUs, as it is not known which it uses
    unit: UnitId | None = None
    invocation_id: str = ""  # of the unit's run
    process: ProcessId | None = None  # of the command

    @property
    def name(self) -> str:
        """The name of the unit, or of the process."""
        if self.unit is not None:
            return self.unit.name
        return f"process {self.process.pid}" if self.process is not None else ""
