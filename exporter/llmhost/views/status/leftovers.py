"""Orphans, trackers and shared memory in `llmhost status`, and what cannot be seen. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from llmhost.decide.health import Unknown
from llmhost.derive.host_view import HostView
from llmhost.derive.orphans import Orphan
from llmhost.derive.segments import SegmentState
from llmhost.derive.trackers import TrackerState
from llmhost.model.reading import Ok
from llmhost.model.segment import Segment, SegmentKind, SharedMemory
from llmhost.model.wording import words
from llmhost.views.text import WIDTH, Line, Piece, Style, columns, count, folded, padded, plain, ranges, size, span

_ORPHANS_LISTED = 10
_STATES = (SegmentState.STALE, SegmentState.LIVE, SegmentState.UNHELD, SegmentState.UNKNOWN)  # in the way first


def process_lines(view: HostView, width: int) -> Iterator[Line]:
    if not has_processes(view):
        return
    yield (("PROCESSES", Style.HEADING),)
    said, style = orphan_count(view)
    yield from folded(said, width=width, first=plain("  "), indent="    ", style=style)
    orphans = orphans_by_age(view)
    for orphan in orphans[:_ORPHANS_LISTED]:
        yield from _orphan(orphan, view, width)
    if len(orphans) > _ORPHANS_LISTED:
        yield plain(f"    and {len(orphans) - _ORPHANS_LISTED} more")
    for text, style in tracker_counts(view):
        yield from folded(text, width=width, first=plain("  "), indent="    ", style=style)


def _orphan(orphan: Orphan, view: HostView, width: int) -> Iterator[Line]:
    """Show it by the columns of `clean`: process, unit, memory; and for how long."""
    name, unit, held = name_of_orphan(orphan), unit_of(orphan, view), held_by(orphan, view)
    age = f"for {span(orphan.seconds)}"
    if width < WIDTH:
        said = ", ".join(part for part in (name, unit, held, age) if part)
        yield from folded(said, width=width, first=plain("    "), indent="      ")
        return
    wide = width - 4 - 26 - 1 - 1 - 15 - 1 - 10
    yield plain(f"    {padded(name, 26)} {padded(unit, wide)} {padded(held, 15)} {age}")


def name_of_orphan(orphan: Orphan) -> str:
    """Name the process, and where its title does not say it, the part of the engine that it was."""
    name = orphan.process.name
    return name if "::" in name or not orphan.process.role else f"{name} ({part_of(orphan)})"


def unit_of(orphan: Orphan, view: HostView) -> str:
    """Name the unit that it is in, or was last known to be in; "" where none is known."""
    known = view.history.process_runs.get(orphan.process.id)
    unit = orphan.process.placement.unit or (known.unit if known is not None else None)
    return unit.name if unit is not None else ""


def held_by(orphan: Orphan, view: HostView) -> str:
    """Say what it holds of which GPUs; "" for nothing that is known."""
    found = _held_bytes(orphan, view)
    if not found:
        return ""
    return f"GPU {ranges(found)} {size(sum(found.values()))}"


def _held_bytes(orphan: Orphan, view: HostView) -> dict[str, int]:
    attribution = view.facts.attribution.value if isinstance(view.facts.attribution, Ok) else {}
    found: dict[str, int] = {}
    for gpu in view.snapshot.gpus:
        of_gpu = attribution.get(gpu.uuid)
        for holder in of_gpu.value.holders if isinstance(of_gpu, Ok) else ():
            if holder.process == orphan.process.id and holder.used_bytes:
                found[gpu.index] = found.get(gpu.index, 0) + holder.used_bytes
    return found


def has_processes(view: HostView) -> bool:
    return isinstance(view.facts.orphans, Ok) or isinstance(view.facts.trackers, Ok)


def orphan_count(view: HostView) -> Piece:
    orphans = view.facts.orphans
    if not isinstance(orphans, Ok):
        return "whether there are orphans cannot be told", Style.DOUBT
    if not orphans.value:
        return "no orphans", Style.PLAIN
    held = sum(sum(_held_bytes(orphan, view).values()) for orphan in orphans.value)
    inferred = sum(orphan.inferred for orphan in orphans.value)
    said = count(len(orphans.value), "orphan")
    said += f", {inferred} of them inferred" if inferred else ""
    return said + (f": {size(held)} of GPU memory" if held else ""), Style.BAD


def orphans_by_age(view: HostView) -> Sequence[Orphan]:
    """Sort the orphans, the oldest first."""
    orphans = view.facts.orphans
    return sorted(orphans.value, key=lambda orphan: -orphan.seconds) if isinstance(orphans, Ok) else ()


def part_of(orphan: Orphan) -> str:
    """Name the part of the engine that it was: `vllm core`."""
    return f"{orphan.engine} {orphan.process.role}" if orphan.engine != "none" else str(orphan.process.role)


def age_of(orphan: Orphan) -> str:
    return f"for {span(orphan.seconds)}" + (", inferred" if orphan.inferred else "")


def tracker_counts(view: HostView) -> Iterator[Piece]:
    """Yield one piece, or none where there is no tracker, or none is known."""
    trackers = view.facts.trackers
    states = Counter(trackers.value.values()) if isinstance(trackers, Ok) else Counter[TrackerState]()
    if states:
        counts = ", ".join(f"{states[state]} {state}" for state in TrackerState if states[state])
        yield f"resource trackers: {counts}", Style.BAD if states[TrackerState.ORPHANED] else Style.PLAIN


def shm_lines(view: HostView, width: int) -> Iterator[Line]:
    shared, found = view.snapshot.shm, segments_by_state(view)
    if not isinstance(shared, Ok) or found is None:
        return
    used = used_shm(shared.value)
    yield (("SHARED MEMORY", Style.HEADING), (f"  {used}" if used else "", Style.PLAIN))
    if not found:
        yield plain("  no files")
    for state, total_bytes, kinds in state_rows(found):
        first: Line = (
            ("  ", Style.PLAIN),
            (padded(state, 8), style_of(state)),
            (f"{size(total_bytes):>9}  ", Style.PLAIN),
        )
        yield from folded(kinds, width=width, first=first, indent=" " * sum(columns(text) for text, _ in first))


def used_shm(shared: SharedMemory) -> str:
    if shared.used_bytes is None or shared.size_bytes is None:
        return ""
    return f"{size(shared.used_bytes)} of {size(shared.size_bytes)} used"


def segments_by_state(view: HostView) -> Mapping[tuple[SegmentState, SegmentKind], Sequence[Segment]] | None:
    """Group the segments by state and kind; None where they are not known."""
    shared, states = view.snapshot.shm, view.facts.segments
    if not isinstance(shared, Ok) or not isinstance(states, Ok):
        return None
    found: dict[tuple[SegmentState, SegmentKind], list[Segment]] = {}
    for segment in shared.value.segments:
        found.setdefault((states.value[segment.id], segment.kind), []).append(segment)
    return found


def state_rows(
    found: Mapping[tuple[SegmentState, SegmentKind], Sequence[Segment]],
) -> Iterator[tuple[SegmentState, int, str]]:
    """Yield each state, the bytes allocated in it, and the number of segments of each kind."""
    for state in _STATES:
        of_state = {kind: segments for (other, kind), segments in sorted(found.items()) if other is state}
        if of_state:
            total_bytes = sum(allocated_bytes(segments) for segments in of_state.values())
            yield state, total_bytes, ", ".join(f"{len(segments)} {kind}" for kind, segments in of_state.items())


def allocated_bytes(segments: Sequence[Segment]) -> int:
    return sum(segment.allocated_bytes for segment in segments)


def style_of(state: SegmentState) -> Style:
    return Style.BAD if state is SegmentState.STALE else Style.PLAIN


def unknown_lines(unknowns: Sequence[Unknown], width: int) -> Iterator[Line]:
    if not unknowns:
        return
    yield (("CANNOT BE SEEN", Style.HEADING),)
    for unknown in unknowns:
        first: Line = (("  ", Style.PLAIN), (unknown.subject, style_of_unknown(unknown)), (": ", Style.PLAIN))
        yield from folded(cause_of(unknown), width=width, first=first, indent="    ")


def cause_of(unknown: Unknown) -> str:
    cause = words(unknown.cause)
    return f"{cause} ({unknown.detail})" if unknown.detail else cause


def style_of_unknown(unknown: Unknown) -> Style:
    return Style.DOUBT if unknown.matters else Style.PLAIN
