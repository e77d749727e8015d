"""Leftovers of ended engines, a line each: their owner, their number, and the GPU memory that they hold. Pure."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from llmhost.decide.cleanup.segments import REPORTED_ONLY
from llmhost.derive.attribution import Holder, HolderKind
from llmhost.derive.facts import UnitFacts
from llmhost.derive.host_view import HostView
from llmhost.derive.segments import SegmentState
from llmhost.derive.trackers import TrackerState
from llmhost.model.ids import GpuUuid, ProcessId, UnitId
from llmhost.model.reading import Ok
from llmhost.model.wording import gib, ranges, size


class Told(NamedTuple):
    kind: str
    subject: str
    what: str
    gpus: tuple[str, ...] = ()  # the indexes of those that the subject names


def leftovers_of(facts: UnitFacts, view: HostView) -> Iterator[Told]:
    """Yield the processes of a unit's ended runs, if there are any."""
    processes = facts.leftovers.value if isinstance(facts.leftovers, Ok) else frozenset()
    if processes:
        one = len(processes) == 1
        what = "a process of an ended run is" if one else f"{len(processes)} processes of ended runs are"
        held = _held(processes, view)
        holding = f" and {_holding(held, one=one)}" if held else ""
        yield Told("leftovers", facts.unit.id.name, f"{what} still alive{holding}")


def left_behind(view: HostView) -> Iterator[Told]:
    """Yield what is left beside the processes of units' ended runs, each process and file in one line."""
    yield from _gone(view)
    units = view.facts.units.value if isinstance(view.facts.units, Ok) else ()
    told = {process for unit in units if isinstance(unit.leftovers, Ok) for process in unit.leftovers.value}
    orphans = view.facts.orphans.value if isinstance(view.facts.orphans, Ok) else ()
    others = {orphan.process.id for orphan in orphans} - told
    if others:
        what = "an orphan process" if len(others) == 1 else f"{len(others)} orphan processes"
        held = _held(others, view)
        yield Told("orphans", "processes", what + (f" {_holding(held, one=len(others) == 1)}" if held else ""))
    trackers = view.facts.trackers.value if isinstance(view.facts.trackers, Ok) else {}
    orphaned = {process for process, state in trackers.items() if state is TrackerState.ORPHANED} - told - others
    if orphaned:
        one = len(orphaned) == 1
        what = "an orphaned resource tracker" if one else f"{len(orphaned)} orphaned resource trackers"
        yield Told("trackers", "processes", what)
    yield from _stale(view)


def _held(processes: AbstractSet[ProcessId], view: HostView) -> list[tuple[str, Holder]]:
    return [
        (gpu, holder) for _, gpu, holder in _holders(view) if holder.process in processes and holder.used_bytes != 0
    ]


def _holders(view: HostView) -> Iterator[tuple[GpuUuid, str, Holder]]:
    attribution = view.facts.attribution.value if isinstance(view.facts.attribution, Ok) else {}
    for gpu in view.snapshot.gpus:
        of_gpu = attribution.get(gpu.uuid)
        for holder in of_gpu.value.holders if isinstance(of_gpu, Ok) else ():
            yield gpu.uuid, gpu.index, holder


def _holding(held: list[tuple[str, Holder]], *, one: bool) -> str:
    sizes = [holder.used_bytes for _, holder in held if holder.used_bytes is not None]
    least = "" if len(sizes) == len(held) else "at least "  # the driver does not say for one of them
    verb = "holds" if one else "hold"
    much = f"{least}{gib(sum(sizes))} GiB" if sizes else "GPU memory"
    return f"{verb} {much} on {_gpus([gpu for gpu, _ in held])}"


def _gpus(indexes: list[str]) -> str:
    return f"GPU{'s' if len(set(indexes)) > 1 else ''} {ranges(indexes)}"


def _gone(view: HostView) -> Iterator[Told]:
    """Yield memory that is held for processes that are gone, above the policy's threshold, of all GPUs together."""
    on: dict[str, int] = {}
    units: set[UnitId | None] = set()
    by_gpu: dict[str, list[Holder]] = {}
    for _, gpu, holder in _holders(view):
        if holder.kind is HolderKind.GONE:
            by_gpu.setdefault(gpu, []).append(holder)
    for gpu, holders in by_gpu.items():
        gone_bytes = sum(holder.used_bytes or 0 for holder in holders)
        if gone_bytes > view.policy.resident_bytes:
            on[gpu] = gone_bytes
            units |= {holder.unit for holder in holders}
    if on:
        names = sorted(unit.name for unit in units if unit is not None)
        whose = f" of {', '.join(names)}" if names and None not in units else ""
        what = f"{gib(sum(on.values()))} GiB are held for processes{whose} that are gone"
        yield Told("gone", _gpus(list(on)), what, tuple(on))


def _stale(view: HostView) -> Iterator[Told]:
    """Yield stale files of the kinds that `clean` removes: what it never removes could not be brought to 0."""
    shared, states = view.snapshot.shm, view.facts.segments
    if not isinstance(shared, Ok) or not isinstance(states, Ok):
        return
    stale = [
        segment
        for segment in shared.value.segments
        if states.value.get(segment.id) is SegmentState.STALE and segment.kind not in REPORTED_ONLY
    ]
    if stale:
        what = "a stale file" if len(stale) == 1 else f"{len(stale)} stale files"
        allocated = sum(segment.allocated_bytes for segment in stale)
        yield Told("segments", "shared memory", what + (f", {size(allocated)}" if allocated else ""))
