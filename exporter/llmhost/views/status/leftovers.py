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
from llmhost.views.text import Line, Piece, Style, columns, count, folded, padded, plain, size, span

_ORPHANS_LISTED = 10
_STATES = (SegmentState.STALE, SegmentState.LIVE, SegmentState.UNHELD, SegmentState.UNKNOWN)  # in the way first


def process_lines(view: HostView, width: int) -> Iterator[Line]:
    if not has_processes(view):
        return
    yield (("PROCESSES", Style.HEADING),)
    yield (("  ", Style.PLAIN), orphan_count(view))
    orphans = orphans_by_age(view)
    for orphan in orphans[:_ORPHANS_LISTED]:
        process = f"{orphan.process.id.pid} {orphan.process.comm}"
        yield plain(f"    {padded(process, 26)} {padded(part_of(orphan), 18)} {age_of(orphan)}")
    if len(orphans) > _ORPHANS_LISTED:
        yield plain(f"    and {len(orphans) - _ORPHANS_LISTED} more")
    for text, style in tracker_counts(view):
        yield from folded(text, width=width, first=plain("  "), indent="    ", style=style)


def has_processes(view: HostView) -> bool:
    return isinstance(view.facts.orphans, Ok) or isinstance(view.facts.trackers, Ok)


def orphan_count(view: HostView) -> Piece:
    orphans = view.facts.orphans
    if not isinstance(orphans, Ok):
        return "whether there are orphans cannot be told", Style.DOUBT
    return (count(len(orphans.value), "orphan"), Style.BAD) if orphans.value else ("no orphans", Style.PLAIN)


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
