"""`llmhost status` for people: GPUs, units, leftovers, unknowns. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping

from llmhost.decide.health import Health, Level
from llmhost.derive.host_view import HostView
from llmhost.derive.segments import SegmentState
from llmhost.derive.trackers import TrackerState
from llmhost.model.reading import Ok
from llmhost.model.segment import Segment, SegmentKind
from llmhost.views.status.gpus import gpu_lines
from llmhost.views.status.units import unit_lines
from llmhost.views.text import WIDTH, Line, Style, columns, count, folded, padded, plain, rendered, size, span

HEADLINES: Mapping[Level, tuple[str, Style]] = {
    Level.HEALTHY: ("healthy", Style.GOOD),
    Level.FINDINGS: ("not healthy", Style.BAD),
    Level.CANNOT_TELL: ("cannot tell whether all is well", Style.DOUBT),
}
_MOST = 10  # orphans that are listed
STATES = (SegmentState.STALE, SegmentState.LIVE, SegmentState.UNHELD, SegmentState.UNKNOWN)  # in the way first


def status_text(view: HostView, health: Health, *, width: int = WIDTH, colour: bool = False) -> str:
    return rendered(_lines(view, health, width), width=width, colour=colour)


def _lines(view: HostView, health: Health, width: int) -> Iterator[Line]:
    headline, style = HEADLINES[health.level]
    yield ((headline, style),)
    for finding in health.findings:
        first = (("  ! ", Style.BAD),)
        yield from folded(f"{finding.subject}: {finding.what}", width=width, first=first, indent="    ")
    for section in (gpu_lines(view), unit_lines(view, width), _helpers(view, width), _shm(view, width)):
        yield from _section(section)
    yield from _section(_unknown(health, width))


def _section(lines: Iterator[Line]) -> Iterator[Line]:
    for index, line in enumerate(lines):
        if index == 0:
            yield ()
        yield line


def heading(text: str) -> Line:
    return ((text, Style.HEADING),)


def _helpers(view: HostView, width: int) -> Iterator[Line]:
    orphans, trackers = view.facts.orphans, view.facts.trackers
    found = orphans.value if isinstance(orphans, Ok) else ()
    states = Counter(trackers.value.values()) if isinstance(trackers, Ok) else Counter()
    if not isinstance(orphans, Ok) and not isinstance(trackers, Ok):
        return
    yield heading("PROCESSES")
    if isinstance(orphans, Ok):
        counts = count(len(found), "orphan") if found else "no orphans"
        yield (("  ", Style.PLAIN), (counts, Style.BAD if found else Style.PLAIN))
    else:
        yield (("  whether there are orphans cannot be told", Style.DOUBT),)
    for orphan in sorted(found, key=lambda orphan: -orphan.seconds)[:_MOST]:
        who = f"{orphan.process.id.pid} {orphan.process.comm}"
        part = f"{orphan.engine} {orphan.process.role}" if orphan.engine != "none" else str(orphan.process.role)
        inferred = ", inferred" if orphan.inferred else ""
        yield plain(f"    {padded(who, 26)} {padded(part, 18)} for {span(orphan.seconds)}{inferred}")
    if len(found) > _MOST:
        yield plain(f"    and {len(found) - _MOST} more")
    if isinstance(trackers, Ok) and states:
        counts = ", ".join(f"{states[state]} {state}" for state in TrackerState if states[state])
        style = Style.BAD if states[TrackerState.ORPHANED] else Style.PLAIN
        yield from folded(f"resource trackers: {counts}", width=width, first=plain("  "), indent="    ", style=style)


def _shm(view: HostView, width: int) -> Iterator[Line]:
    shared, states = view.snapshot.shm, view.facts.segments
    if not isinstance(shared, Ok) or not isinstance(states, Ok):
        return
    memory = shared.value
    used = "" if memory.used_bytes is None or memory.size_bytes is None else _used(memory.used_bytes, memory.size_bytes)
    yield (("SHARED MEMORY", Style.HEADING), (used, Style.PLAIN))
    found: dict[tuple[SegmentState, SegmentKind], list[Segment]] = {}
    for segment in memory.segments:
        found.setdefault((states.value[segment.id], segment.kind), []).append(segment)
    if not found:
        yield plain("  no files")
    for state in STATES:
        of_state = sorted(kind for other, kind in found if other is state)
        if not of_state:
            continue
        segments = [segment for kind in of_state for segment in found[state, kind]]
        kinds = ", ".join(f"{len(found[state, kind])} {kind}" for kind in of_state)
        first: Line = (
            ("  ", Style.PLAIN),
            (padded(state, 8), Style.BAD if state is SegmentState.STALE else Style.PLAIN),
            (f"{size(sum(segment.allocated_bytes for segment in segments)):>9}  ", Style.PLAIN),
        )
        yield from folded(kinds, width=width, first=first, indent=" " * sum(columns(text) for text, _ in first))


def _used(used_bytes: int, size_bytes: int) -> str:
    return f"  {size(used_bytes)} of {size(size_bytes)} used"


def _unknown(health: Health, width: int) -> Iterator[Line]:
    if not health.unknowns:
        return
    yield heading("CANNOT BE SEEN")
    for unknown in health.unknowns:
        cause = unknown.cause.replace("_", " ")
        first: Line = (
            ("  ", Style.PLAIN),
            (unknown.subject, Style.DOUBT if unknown.matters else Style.PLAIN),
            (": ", Style.PLAIN),
        )
        said = f"{cause} ({unknown.detail})" if unknown.detail else cause
        yield from folded(said, width=width, first=first, indent="    ")
