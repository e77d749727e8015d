"""`llmhost doctor` as text and JSON. Pure."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from llmhost.decide.doctor.finding import Finding, Severity
from llmhost.views.text import WIDTH, Line, Style, columns, count, folded, plain, rendered

SCHEMA_VERSION: Final = 1
SEVERITY_STYLES: Mapping[Severity, Style] = {
    Severity.ERROR: Style.BAD,
    Severity.WARNING: Style.DOUBT,
    Severity.NOTE: Style.PLAIN,
}
_INDENT = "    "
_GOES_ON = " \\"


def doctor_text(
    findings: Sequence[Finding], unknowns: Sequence[str], *, width: int = WIDTH, colour: bool = False
) -> str:
    """Write lines of at most that many columns, but for single words that are longer: a command is never cut."""
    return "".join(
        rendered([line], width=max(width, sum(columns(text) for text, _ in line)), colour=colour)
        for line in _lines(findings, unknowns, width)
    )


def _lines(findings: Sequence[Finding], unknowns: Sequence[str], width: int) -> Iterator[Line]:
    for finding in findings:
        yield from _finding(finding, width)
        yield ()
    if unknowns:
        yield (("not checked", Style.HEADING),)
        for unknown in unknowns:
            yield from folded(unknown, width=width, first=plain("  "), indent=_INDENT, whole_words=True)
        yield ()
    yield plain(_summary(findings) + (" in what could be checked" if unknowns and not findings else ""))


def _finding(finding: Finding, width: int) -> Iterator[Line]:
    first: Line = ((finding.severity, SEVERITY_STYLES[finding.severity]), (": ", Style.PLAIN))
    subject = finding.unit or "host"
    yield from folded(
        f"{subject}: {finding.what} [{finding.check}]", width=width, first=first, indent="  ", whole_words=True
    )
    yield from folded(f"{finding.why}.", width=width, first=plain("  "), indent="  ", whole_words=True)
    if finding.drop_in:
        yield from folded(
            f"{edit_command(finding)}, and add:", width=width, first=plain("  "), indent=_INDENT, whole_words=True
        )
        for line in finding.drop_in:
            yield from _setting(line, width)
    if finding.remedy:
        yield from folded(f"{finding.remedy}.", width=width, first=plain("  "), indent="  ", whole_words=True)


def edit_command(finding: Finding) -> str:
    return f"systemctl edit {shlex.quote(finding.unit)}"  # names have backslashes


def _setting(text: str, width: int) -> Iterator[Line]:
    r"""Show a line of a unit file, continued after a \ (systemd.syntax(7))."""
    before, words = _INDENT, text.split(" ")
    while columns(before + " ".join(words)) > width and len(words) > 1:
        taken = 1
        while columns(before + " ".join(words[: taken + 1]) + _GOES_ON) <= width:
            taken += 1
        yield plain(f"{before}{' '.join(words[:taken])}{_GOES_ON}")
        before, words = 2 * _INDENT, words[taken:]
    yield plain(before + " ".join(words))


def _summary(findings: Sequence[Finding]) -> str:
    numbers = [(sum(finding.severity is severity for finding in findings), severity) for severity in SEVERITY_STYLES]
    return ", ".join(count(number, severity) for number, severity in numbers if number) or "nothing found"


def doctor_json(findings: Sequence[Finding], unknowns: Sequence[str]) -> str:
    """Fields may be added within one schema version."""
    whole = {
        "schema_version": SCHEMA_VERSION,
        "findings": [
            {
                "check": finding.check,
                "severity": finding.severity,
                "unit": finding.unit or None,
                "what": finding.what,
                "why": finding.why,
                "drop_in": list(finding.drop_in),
                "remedy": finding.remedy,
            }
            for finding in findings
        ],
        "not_checked": list(unknowns),
    }
    return json.dumps(whole, indent=2) + "\n"
