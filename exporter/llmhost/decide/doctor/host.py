"""Checks of the host as a whole: its driver, and units that ask for more together than a GPU has. Pure."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from llmhost.decide.doctor.finding import Finding, Severity
from llmhost.derive.facts import UnitFacts
from llmhost.derive.host_view import HostView
from llmhost.model.gpu import Gpu
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.wording import gib


def driver_mismatch(view: HostView) -> Iterator[Finding]:
    """Find a library on disk of another version than the loaded kernel module: no program can use a GPU then."""
    report = view.snapshot.nvml
    if isinstance(report, Failed) and report.cause is Cause.DRIVER_MISMATCH:
        why = report.detail or "NVML says so"
    elif isinstance(report, Ok) and report.value.driver_mismatch:
        disk = report.value.library_on_disk_version
        why = f"the library on disk is {disk}, the loaded kernel module {report.value.driver_version}"
    else:
        return
    yield Finding(
        check="driver-mismatch",
        severity=Severity.ERROR,
        unit="",
        what="the driver was upgraded and not reloaded: what starts now cannot use a GPU",
        why=why,
        remedy="reboot; or stop all that uses a GPU, unload the nvidia modules, load them anew",
    )


def gpu_overcommitted(view: HostView, units: AbstractSet[UnitId]) -> Iterator[Finding]:
    """Find units that should run and together need more of a GPU than it has; one finding for each set of units."""
    if not isinstance(view.facts.units, Ok) or not isinstance(view.snapshot.nvml, Ok):
        return
    by_units: dict[tuple[UnitId, ...], list[tuple[Gpu, int, int]]] = {}
    by_id = {unit.unit.id: unit for unit in view.facts.units.value}
    for gpu in view.snapshot.nvml.value.gpus:
        room = _room_bytes(gpu, view)
        asking = {facts.unit.id: need for facts in by_id.values() if (need := _needs(facts, gpu))}
        together = sum(asking.values())
        if room is not None and len(asking) > 1 and together > room and not units.isdisjoint(asking):
            by_units.setdefault(tuple(sorted(asking)), []).append((gpu, together, room))
    for unit_ids, found in by_units.items():
        yield _overcommitted(unit_ids, found, by_id)


def _overcommitted(
    units: tuple[UnitId, ...], found: list[tuple[Gpu, int, int]], by_id: Mapping[UnitId, UnitFacts]
) -> Finding:
    gpu, together, room = found[0]
    indexes = ", ".join(listed.index for listed, _, _ in found)
    needs = ", ".join(f"{unit.name} {gib(_needs(by_id[unit], gpu))} GiB" for unit in units)
    other_units = " ".join(unit.name for unit in units[1:])
    return Finding(
        check="overcommitted",
        severity=Severity.ERROR,
        unit=units[0].name,
        what=f"cannot run beside {other_units} on GPU {indexes}",
        why=f"together they need {gib(together)} of {gib(room)} GiB there: {needs}",
        remedy="lower --gpu-memory-utilization, or give them other GPUs; where only one is to run at a time, "
        "Conflicts= in one of them has its start stop the other",
    )


def _needs(facts: UnitFacts, gpu: Gpu) -> int:
    if facts.should_run != Ok(True) or not isinstance(facts.needed, Ok):
        return 0
    return facts.needed.value.get(gpu.uuid, 0)


def _room_bytes(gpu: Gpu, view: HostView) -> int | None:
    if gpu.unified_memory:
        return view.snapshot.host.value.memory_total_bytes if isinstance(view.snapshot.host, Ok) else None
    if not isinstance(gpu.memory, Ok):
        return None
    return gpu.memory.value.total_bytes - (gpu.memory.value.reserved_bytes or 0)
