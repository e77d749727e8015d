"""Leftovers of the host, findings of the doctor, and what cannot be seen, on the status page. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from llmhost.decide.doctor.finding import Finding
from llmhost.decide.health import Unknown
from llmhost.derive.host_view import HostView
from llmhost.derive.orphans import Orphan
from llmhost.model.reading import Ok
from llmhost.views.doctor import SEVERITY_STYLES, edit_command
from llmhost.views.page.markup import Markup, identity, isolated, joined, styled, tag
from llmhost.views.status.leftovers import (
    age_of,
    cause_of,
    has_processes,
    held_by,
    orphan_count,
    orphans_by_age,
    part_of,
    segments_by_state,
    state_rows,
    style_of,
    style_of_unknown,
    tracker_counts,
    unit_of,
    used_shm,
)
from llmhost.views.text import size

_ORPHANS_LISTED: Final = 50


def processes_section(view: HostView) -> Markup:
    if not has_processes(view):
        return Markup()
    orphans = orphans_by_age(view)
    lines = [styled("p", orphan_count(view))]
    if orphans:
        lines.append(tag("ul", [_orphan(orphan, view) for orphan in orphans[:_ORPHANS_LISTED]]))
    if len(orphans) > _ORPHANS_LISTED:
        lines.append(tag("p", f"and {len(orphans) - _ORPHANS_LISTED} more"))
    lines += [styled("p", counts) for counts in tracker_counts(view)]
    return tag("section", tag("h2", "Processes"), lines, id="processes")


def _orphan(orphan: Orphan, view: HostView) -> Markup:
    unit, held = unit_of(orphan, view), held_by(orphan, view)
    of_unit = [" of ", isolated(unit)] if unit else ""
    rest = ", ".join(part for part in (part_of(orphan), held, age_of(orphan)) if part)
    pid, _, title = orphan.process.name.partition(" ")
    return tag("li", f"{pid} ", isolated(title), of_unit, f": {rest}")


def shm_section(view: HostView) -> Markup:
    shared, found = view.snapshot.shm, segments_by_state(view)
    if not isinstance(shared, Ok) or found is None:
        return Markup()
    used = used_shm(shared.value)
    rows = [
        styled("li", (f"{state}, {size(total_bytes)}: {kinds}", style_of(state)))
        for state, total_bytes, kinds in state_rows(found)
    ]
    return tag(
        "section",
        tag("h2", "Shared memory"),
        tag("p", used, class_="faint") if used else "",
        tag("ul", rows) if rows else tag("p", "no files"),
        id="shared-memory",
    )


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
        parts.append(tag("p", tag("code", edit_command(finding)), ", and add:"))
        parts.append(tag("pre", _lines(finding.drop_in)))
    if finding.remedy:
        parts.append(tag("p", f"{finding.remedy}."))
    severity = styled("span", (finding.severity, SEVERITY_STYLES[finding.severity]))
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
    return styled("li", (f"{unknown.subject}: {cause_of(unknown)}", style_of_unknown(unknown)))
