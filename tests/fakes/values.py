"""Model values for tests of what is pure: each function gives a plausible one, and takes what matters to the test."""

from collections.abc import Iterable, Mapping
from typing import Any

from llmhost.model.gpu import Gpu, GpuHolder, GpuMemory, MemoryApi, NvmlReport
from llmhost.model.history.unit_history import End, Start
from llmhost.model.host import Host
from llmhost.model.ids import GpuUuid, ProcessId, UnitId
from llmhost.model.process import Home, Placement, Process, ProcessTable, Role
from llmhost.model.process_use import ListeningSocket, ProcessUse, Transport
from llmhost.model.reading import NotApplicable, Ok, Reading
from llmhost.model.segment import Segment, SegmentId, SegmentKind, SharedMemory
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit, UnitSettings, UnitsReport

GIB = 1 << 30
MIB = 1 << 20
HOST = Host(
    boot_id="b",
    ticks_per_second=100,
    boottime_ahead_seconds=0.0,
    memory_total_bytes=128 * GIB,
    memory_available_bytes=100 * GIB,
)
UNUSED, LISTENS = (
    Ok(ProcessUse(listening=listening))
    for listening in ((), (ListeningSocket(transport=Transport.TCP, at="127.0.0.1:8000"),))
)
NOT_COLLECTED = NotApplicable("not asked")


def gpu(index: int = 0, /, **given: Any) -> Gpu:  # noqa: ANN401 - whatever field a test cares for
    values: dict[str, Any] = {
        "uuid": GpuUuid(f"GPU-{index}"),
        "index": str(index),
        "name": "NVIDIA H100 80GB HBM3",
        "pci_bus_id": f"00000000:{0x10 + index:02X}:00.0",
        "parent_uuid": None,
        "fault": None,
        "fault_detail": "",
        "memory": memory(),
        "holders": Ok(()),
        "utilization_ratio": 0.0,
        "temperature_celsius": 40.0,
        "power_watts": 90.0,
        "fabric_ready": None,
        "unified_memory": False,
    }
    return Gpu(**(values | given))


def memory(used: int = 0, total: int = 80 * GIB, reserved: int | None = 1 * GIB) -> Reading[GpuMemory]:
    free = total - used - (reserved or 0)
    api = MemoryApi.V1 if reserved is None else MemoryApi.V2
    return Ok(GpuMemory(api=api, total_bytes=total, used_bytes=used, free_bytes=free, reserved_bytes=reserved))


def held(pid: int, used: int | None, start: int | None = 1000) -> GpuHolder:
    return GpuHolder(pid=pid, process=None if start is None else ProcessId(pid, start), used_bytes=used)


def in_service(name: str, manager: str = "system") -> Placement:
    return Placement(Home.SERVICE, UnitId(name, manager))


def process(pid: int, placement: Placement | None = None, /, start: int = 1000, **given: Any) -> Process:  # noqa: ANN401
    values: dict[str, Any] = {
        "ppid": 1,
        "pgrp": pid,
        "session": pid,
        "state": "S",
        "kernel_thread": False,
        "uid": 0,
        "comm": "python3",
        "argv": ("python3",),
        "engine": "",
        "role": Role.OTHER,
    }
    return Process(id=ProcessId(pid, start), placement=placement or Placement(Home.NONE), **(values | given))


def table(processes: Iterable[Process]) -> ProcessTable:
    by_pid = {process.id.pid: process for process in processes}
    children: dict[int, tuple[int, ...]] = {}
    for pid, process in by_pid.items():
        children[process.ppid] = (*children.get(process.ppid, ()), pid)
    return ProcessTable(by_pid=by_pid, unreadable=0, children=children)


def unit(name: str = "vllm.service", active: str = "active", sub: str = "running", **given: Any) -> Unit:  # noqa: ANN401
    values: dict[str, Any] = {
        "load_state": "loaded",
        "unit_file_state": "enabled",
        "nrestarts": 0,
        "result": "success",
        "inactive_exit_monotonic": 9.0,
        "condition_monotonic": 9.0,
        "settings": UnitSettings(),
    }
    return Unit(id=UnitId(name), active_state=active, sub_state=sub, **(values | given))


def settings(exec_start: str = "", environment: Mapping[str, str] | None = None) -> UnitSettings:
    return UnitSettings(
        exec_start=(tuple(exec_start.split()),) if exec_start else (),
        environment=tuple((environment or {}).items()),
    )


def report(gpus: Iterable[Gpu]) -> NvmlReport:
    listed = tuple(gpus)
    return NvmlReport(
        driver_version="570.86.16",
        nvml_version="12.570.86.16",
        library_on_disk_version=None,
        driver_mismatch=False,
        gpus=listed,
        listed=len(listed),
        listed_most=len(listed),
    )


def snapshot(
    *,
    gpus: Iterable[Gpu] | None = None,
    processes: Iterable[Process] | None = None,
    units: Iterable[Unit] | None = None,
    **given: Any,  # noqa: ANN401
) -> Snapshot:
    values: dict[str, Any] = {
        "at": 1_767_225_600.0,
        "host": Ok(HOST),
        "nvml": NOT_COLLECTED if gpus is None else Ok(report(gpus)),
        "processes": NOT_COLLECTED if processes is None else Ok(table(processes)),
        "at_monotonic": 1000.0,
        "shm": NOT_COLLECTED,
        "engines": NOT_COLLECTED,
        "units": NOT_COLLECTED if units is None else Ok(UnitsReport(systemd_version="252", units=tuple(units))),
    }
    return Snapshot(**(values | given))


def started(invocation: str, **given: Any) -> Start:  # noqa: ANN401
    values: dict[str, Any] = {"trigger": None, "attempt": 1, "at": 0.0, "began_monotonic": 0.0, "main_monotonic": 0.0}
    return Start(invocation_id=invocation, **(values | given))


def ended(result: str = "exit-code", seconds: float = 10.0, *, asked: bool | None = False) -> End:
    return End(at=0.0, result=result, exec_main_status=None, asked=asked, seconds=seconds)


def segment(inode: int, *holders: ProcessId, **given: Any) -> Segment:  # noqa: ANN401
    values: dict[str, Any] = {
        "path": f"psm_{inode:08x}",
        "kind": SegmentKind.PYTHON_SHM,
        "creator_pid": None,
        "size_bytes": 0,
        "allocated_bytes": 0,
        "changed_at": 1.0,
        "uid": 0,
        "inspected_at": 1000.0,
    }
    return Segment(id=SegmentId(27, inode), holders=frozenset(holders), **(values | given))


def shared_memory(*segments: Segment, read_at: float = 1000.0) -> SharedMemory:
    return SharedMemory(
        read_at=read_at,
        size_bytes=None,
        used_bytes=None,
        inodes=None,
        inodes_used=None,
        segments=segments,
        unlisted=0,
        uninspected=0,
    )
