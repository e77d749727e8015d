"""`llmhost doctor` as text and JSON. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from llmhost.decide.finding import Finding, Severity
from llmhost.views.text import WIDTH, Line, Style, count, folded, plain, rendered

SCHEMA_VERSION: Final = 1
_STYLES: Mapping[Severity, Style] = {
    Severity.ERROR: Style.BAD,
    Severity.WARNING: Style.DOUBT,
    Severity.NOTE: Style.PLAIN,
}
_INDENT = "    "


def doctor_text(findings: Sequence[Finding], untold: Sequence[str], *, width: int = WIDTH, colour: bool = False) -> str:
    return rendered(_lines(findings, untold, width), width=width, colour=colour)


def _lines(findings: Sequence[Finding], untold: Sequence[str], width: int) -> Iterator[Line]:
    for finding in findings:
        yield from _finding(finding, width)
        yield ()
    if untold:
        yield (("not checked", Style.HEADING),)
        for one in untold:
            yield from folded(one, width=width, first=plain("  "), indent=_INDENT)
        yield ()
    yield plain(_summary(findings) + (" in what could be checked" if untold and not findings else ""))


def _finding(finding: Finding, width: int) -> Iterator[Line]:
    first: Line = ((finding.severity, _STYLES[finding.severity]), (": ", Style.PLAIN))
    subject = finding.unit or "host"
    yield from folded(f"{subject}: {finding.what} [{finding.check}]", width=width, first=first, indent="  ")
    yield from folded(f"{finding.why}.", width=width, first=plain("  "), indent="  ")
    if finding.drop_in:
        yield from folded(f"systemctl edit {finding.unit}, and add:", width=width, first=plain("  "), indent=_INDENT)
        for line in finding.drop_in:
            yield plain(f"{_INDENT}{line}")
    if finding.remedy:
        yield from folded(f"{finding.remedy}.", width=width, first=plain("  "), indent="  ")


def _summary(findings: Sequence[Finding]) -> str:
    numbers = [(sum(one.severity is severity for one in findings), severity) for severity in _STYLES]
    return ", ".join(count(number, severity) for number, severity in numbers if number) or "nothing found"


def doctor_json(findings: Sequence[Finding], untold: Sequence[str]) -> str:
    """Fields may be added within one schema version."""
    whole = {
        "schema_version": SCHEMA_VERSION,
        "findings": [
            {
                "check": one.check,
                "severity": one.severity,
                "unit": one.unit or None,
                "what": one.what,
                "why": one.why,
                "drop_in": list(one.drop_in),
                "remedy": one.remedy,
            }
            for one in findings
        ],
        "not_checked": list(untold),
    }
    return json.dumps(whole, indent=2) + "\n"
