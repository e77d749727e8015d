"""The memory that admitted starts have yet to take. Pure.

Two units that are started together find the same memory free. What the guard of one has admitted counts as used for the
guard of the other, less what that unit's processes hold by now.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmhost.decide.guard.holder_summary import GpuHolders, HolderSummary
from llmhost.derive.activation import is_up
from llmhost.model.admission import Admission
from llmhost.model.ids import GpuUuid, UnitId
from llmhost.model.reading import Ok, Reading
from llmhost.model.unit import UnitsReport

# An engine that has not taken all by then may never: some take less than they ask for. A unit with the guard's drop-in
# tries for 15 minutes (5 waits of 150 s, RestartSec=30s), and must outlast an admission that is never used up.
MOST_SECONDS = 600.0
# Without a known need it may never take enough to be seen. Shorter than the guard's wait: nobody is refused for that.
UNKNOWN_NEED_SECONDS = 120.0
_START_SECONDS = 0.1  # the kernel rounds the start of a process down to ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """Memory of one GPU that an admitted start has yet to take."""

    name: str  # of the unit, or the process
    unit: UnitId | None
    awaited_bytes: int | None  # None: how much is not known
    seconds: float  # since it was admitted


def awaited(
    admissions: Sequence[Admission],
    holders: Mapping[GpuUuid, GpuHolders],
    units: Reading[UnitsReport] | None,
    boottime_seconds: float,
    *,
    max_used_bytes: int,
) -> Mapping[GpuUuid, tuple[Awaited, ...]]:
    """Give what is awaited on each GPU, the earliest admission first.

    Memory of processes outside of all services that are younger than an admission is its own where its unit's processes
    hold none: containers, and commands by hand. With an unknown need it takes `max_used_bytes` to be seen at all.
    """
    found: dict[GpuUuid, list[Awaited]] = {}
    elsewhere = {uuid: [holder for holder in gpu.holders if holder.unit is None] for uuid, gpu in holders.items()}
    for admission in sorted(admissions, key=lambda admission: admission.at_boottime_seconds):
        seconds = boottime_seconds - admission.at_boottime_seconds
        if seconds > MOST_SECONDS or has_ended(admission, units):
            continue
        lacks: dict[GpuUuid, int | None] = {}
        for uuid, need in admission.needed.items():
            if need is None and seconds > UNKNOWN_NEED_SECONDS:
                continue
            wanted = max_used_bytes if need is None else need
            own = [holder for holder in _of(holders, uuid) if holder.unit is not None and holder.unit == admission.unit]
            lack = wanted - _held(own, admission, wanted)
            if lack == wanted:
                lack = _taken_from(elsewhere.get(uuid, []), admission, wanted)
            if lack > 0:
                lacks[uuid] = None if need is None else lack
        if admission.any_gpus and len(lacks) < len(admission.needed):
            continue  # it has all that it needs on one of the GPUs: the others are not its own
        for uuid, lack_bytes in lacks.items():
            found.setdefault(uuid, []).append(
                Awaited(name=admission.name, unit=admission.unit, awaited_bytes=lack_bytes, seconds=seconds)
            )
    return {uuid: tuple(each) for uuid, each in found.items()}


def has_ended(admission: Admission, units: Reading[UnitsReport] | None) -> bool:
    """Say whether systemd tells that the admitted run is over; a process that has ended has no admission any more."""
    reported = units.value.units if isinstance(units, Ok) else ()
    unit = next((unit for unit in reported if unit.id == admission.unit), None)
    if unit is None:
        return False
    is_another_run = admission.invocation_id not in {"", unit.invocation_id}  # "": the guard did not know it
    return not is_up(unit) or unit.active_state == "deactivating" or is_another_run


def _of(holders: Mapping[GpuUuid, GpuHolders], uuid: GpuUuid) -> tuple[HolderSummary, ...]:
    return holders[uuid].holders if uuid in holders else ()


def _held(holders: Sequence[HolderSummary], admission: Admission, wanted: int) -> int:
    """Sum up what those that began after the admission hold; where the driver does not say, it is what they need."""
    return sum(
        wanted if holder.used_bytes is None else holder.used_bytes for holder in holders if _is_after(holder, admission)
    )


def _taken_from(holders: list[HolderSummary], admission: Admission, wanted: int) -> int:
    """Take these holders' memory for the admission's, one after the other, and give what is still wanted then."""
    for holder in [holder for holder in holders if _is_after(holder, admission)]:
        if wanted <= 0:
            break
        holders.remove(holder)
        wanted -= wanted if holder.used_bytes is None else holder.used_bytes
    return wanted


def _is_after(holder: HolderSummary, admission: Admission) -> bool:
    if admission.process is not None and holder.pid == admission.process.pid:
        return True  # the command has taken the place of its guard, and is as old
    began = holder.began_boottime_seconds
    return began is not None and began >= admission.at_boottime_seconds - _START_SECONDS
