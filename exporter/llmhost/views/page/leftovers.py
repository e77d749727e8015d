"""What is left over on the host, and what is wrong with its settings, on the status page. Pure."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from llmhost.decide.doctor.finding import Finding, Severity
from llmhost.decide.health import Unknown
from llmhost.derive.host_view import HostView
from llmhost.derive.orphans import Orphan
from llmhost.derive.segments import SegmentState
from llmhost.derive.trackers import TrackerState
from llmhost.model.reading import Ok
from llmhost.model.segment import Segment, SegmentKind
from llmhost.views.page.markup import Markup, identity, isolated, joined, styled, tag
from llmhost.views.status.text import STATES
from llmhost.views.text import Style, count, size, span

_MOST: Final = 50  # orphans that are listed
_SEVERITIES: Final[Mapping[Severity, Style]] = {
    Severity.ERROR: Style.BAD,
    Severity.WARNING: Style.DOUBT,
    Severity.NOTE: Style.PLAIN,
}


def processes_section(view: HostView) -> Markup:
    orphans, trackers = view.facts.orphans, view.facts.trackers
    if not isinstance(orphans, Ok) and not isinstance(trackers, Ok):
        return Markup()
    found = sorted(orphans.value, key=lambda orphan: -orphan.seconds) if isinstance(orphans, Ok) else []
    lines = [styled("p", _orphans(found, known=isinstance(orphans, Ok)))]
    if found:
        lines.append(tag("ul", [_orphan(orphan) for orphan in found[:_MOST]]))
    if len(found) > _MOST:
        lines.append(tag("p", f"and {len(found) - _MOST} more"))
    states = Counter(trackers.value.values()) if isinstance(trackers, Ok) else Counter[TrackerState]()
    counts = ", ".join(f"{states[state]} {state}" for state in TrackerState if states[state])
    if counts:
        bad = Style.BAD if states[TrackerState.ORPHANED] else Style.PLAIN
        lines.append(styled("p", (f"resource trackers: {counts}", bad)))
    return tag("section", tag("h2", "Processes"), lines, id="processes")


def _orphans(found: Sequence[Orphan], *, known: bool) -> tuple[str, Style]:
    if not known:
        return "whether there are orphans cannot be told", Style.DOUBT
    return (count(len(found), "orphan"), Style.BAD) if found else ("no orphans", Style.PLAIN)


def _orphan(orphan: Orphan) -> Markup:
    part = f"{orphan.engine} {orphan.process.role}" if orphan.engine != "none" else str(orphan.process.role)
    inferred = ", inferred" if orphan.inferred else ""
    return tag(
        "li",
        f"{orphan.process.id.pid} ",
        isolated(orphan.process.comm),
        f": {part}, for {span(orphan.seconds)}{inferred}",
    )


def shm_section(view: HostView) -> Markup:
    shared, states = view.snapshot.shm, view.facts.segments
    if not isinstance(shared, Ok) or not isinstance(states, Ok):
        return Markup()
    memory = shared.value
    found: dict[tuple[SegmentState, SegmentKind], list[Segment]] = {}
    for segment in memory.segments:
        found.setdefault((states.value[segment.id], segment.kind), []).append(segment)
    used = (
        tag("p", f"{size(memory.used_bytes)} of {size(memory.size_bytes)} used", class_="faint")
        if memory.used_bytes is not None and memory.size_bytes is not None
        else ""
    )
    rows = [row for state in STATES if (row := _files(state, found))]
    return tag(
        "section",
        tag("h2", "Shared memory"),
        used,
        tag("ul", rows) if rows else tag("p", "no files"),
        id="shared-memory",
    )


def _files(state: SegmentState, found: Mapping[tuple[SegmentState, SegmentKind], Sequence[Segment]]) -> Markup:
    kinds = sorted(kind for other, kind in found if other is state)
    if not kinds:
        return Markup()
    together = size(sum(segment.allocated_bytes for kind in kinds for segment in found[state, kind]))
    counts = ", ".join(f"{len(found[state, kind])} {kind}" for kind in kinds)
    return styled("li", (f"{state}, {together}: {counts}", Style.BAD if state is SegmentState.STALE else Style.PLAIN))


def settings_section(findings: Sequence[Finding]) -> Markup:
    if not findings:
        return Markup()
    return tag(
        "section",
        tag("h2", "Settings"),
        [_finding(finding) for finding in findings],
        tag("p", "As ", tag("code", "llmhost doctor"), " finds them.", class_="faint"),
        id="settings",
    )


def _finding(finding: Finding) -> Markup:
    parts = [tag("p", f"{finding.why}.")]
    if finding.drop_in:
        edit = f"systemctl edit {shlex.quote(finding.unit)}"  # names have backslashes
        parts.append(tag("p", tag("code", edit), ", and add:"))
        parts.append(tag("pre", _lines(finding.drop_in)))
    if finding.remedy:
        parts.append(tag("p", f"{finding.remedy}."))
    severity = styled("span", (finding.severity, _SEVERITIES[finding.severity]))
    return tag(
        "details",
        tag("summary", severity, " ", isolated(finding.unit or "host"), f": {finding.what}"),
        parts,
        id=identity("setting", finding.unit, finding.check, finding.what),
    )


def _lines(texts: Sequence[str]) -> Iterator[Markup]:
    for text in texts:
        yield joined(text, Markup("\n"))


def unknowns_section(unknowns: Sequence[Unknown]) -> Markup:
    """List what cannot be seen, also when that is nothing: silence would be ambiguous."""
    lines = [_unknown(unknown) for unknown in unknowns]
    return tag(
        "section",
        tag("h2", "Cannot be seen"),
        tag("ul", lines) if lines else tag("p", "nothing: all that llmhost looks at could be read", class_="faint"),
        id="untold",
    )


def _unknown(unknown: Unknown) -> Markup:
    cause = unknown.cause.replace("_", " ")
    said = f"{unknown.subject}: {cause} ({unknown.detail})" if unknown.detail else f"{unknown.subject}: {cause}"
    return styled("li", (said, Style.DOUBT if unknown.matters else Style.PLAIN))
