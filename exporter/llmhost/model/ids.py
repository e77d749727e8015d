"""Identities: of processes by (pid, start ticks), GPUs by UUID, units by name and manager, runs by InvocationID."""

from dataclasses import dataclass
from typing import NewType

GpuUuid = NewType("GpuUuid", str)  # as NVML spells it: "GPU-…" or "MIG-…"


@dataclass(frozen=True, slots=True, order=True)
class ProcessId:
    """A pid alone is reused; with the start time it is not.

    `start_ticks` is field 22 of /proc/PID/stat: clock ticks since boot on CLOCK_BOOTTIME (proc(5)).
    """

    pid: int
    start_ticks: int


SYSTEM_MANAGER = "system"


@dataclass(frozen=True, slots=True, order=True)
class UnitId:
    """A unit of one service manager: `system`, or `user@UID` for a user's own (user@UID.service)."""

    name: str  # full, as systemd spells it: "vllm@a.service"
    manager: str = SYSTEM_MANAGER


@dataclass(frozen=True, slots=True, kw_only=True)
class RunId:
    """One run of a unit: systemd makes a new InvocationID for each."""

    unit: UnitId
    invocation_id: str
