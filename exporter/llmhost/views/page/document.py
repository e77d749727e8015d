"""The exporter's page at `/`: `llmhost status` and the findings of `llmhost doctor` as HTML. Pure.

The page loads nothing from elsewhere and works without its script, which refreshes it and marks it when it is old.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from llmhost.decide.doctor.finding import Finding
from llmhost.decide.health import Health, HealthFinding, Level
from llmhost.derive.host_view import HostView
from llmhost.model.reading import Ok
from llmhost.views.page.gpus import gpus_section
from llmhost.views.page.leftovers import processes_section, settings_section, shm_section, unknowns_section
from llmhost.views.page.markup import Markup, identity, isolated, joined, link, tag
from llmhost.views.page.script import SCRIPT
from llmhost.views.page.starts import clock
from llmhost.views.page.style import STYLE
from llmhost.views.page.units import unit_key, units_section
from llmhost.views.status.text import HEADLINES, limit_of
from llmhost.views.text import clean, count

PROJECT: Final = "https://github.com/llmhost/llmhost"
RUNBOOK: Final = f"{PROJECT}/blob/main/alerts/README.md"
# Runbook section by kind of finding.
RUNBOOK_PARTS: Final[Mapping[str, str]] = {
    "unit_loops": "llmhostrestartloop",
    "unit_restarting": "llmhostrestartloop",
    "unit_failed": "llmhostunitdown",
    "unit_down": "llmhostunitdown",
    "unit_missing": "llmhostunitmissing",
    "leftovers": "llmhostmemoryheldbydownunit",
    "gone": "llmhostmemoryheldbynobody",
    "gpu": "llmhostgpulost",
    "fabric": "llmhostfabricnotready",
    "server": "llmhostenginedown",
    "guard": "llmhostblindspot",
    "orphans": "llmhostorphanengines",
    "trackers": "llmhostorphantrackers",
    "segments": "llmhoststalesegments",
}
_CLEANED: Final = frozenset({"orphans", "trackers", "segments"})
_BUILD: Final = hashlib.sha256(f"{STYLE}\0{SCRIPT}".encode()).hexdigest()[:16]
_LEVELS: Final[Mapping[Level, str]] = {Level.HEALTHY: "good", Level.FINDINGS: "bad", Level.CANNOT_TELL: "doubt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Facts on the page that are not of the observation itself."""

    host_name: str
    version: str
    age_seconds: float  # of the observation


def status_page(view: HostView, health: Health, settings: Sequence[Finding], about: About) -> str:
    headline, _ = HEADLINES[health.level]
    found = f", {count(len(health.findings), 'finding')}" if health.findings else ""
    title = f"{headline}{found} – {clean(about.host_name)} – llmhost"
    head = joined(
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        tag("title", title),
        tag("style", Markup(STYLE)),
    )
    body = joined(
        _header(view, about),
        tag("p", role="alert", id="old", hidden=True),
        tag(
            "main",
            _health(view, health),
            units_section(view),
            gpus_section(view),
            processes_section(view),
            shm_section(view),
            settings_section(settings),
            unknowns_section(health.unknowns),
            id="status",
            data_age=f"{max(0.0, about.age_seconds):.1f}",
        ),
        _footer(about),
        tag("script", Markup(SCRIPT)),
    )
    whole = tag("html", tag("head", head), tag("body", body), lang="en", data_build=_BUILD)
    return f"<!DOCTYPE html>\n{whole}\n"


def _header(view: HostView, about: About) -> Markup:
    at = datetime.fromtimestamp(view.snapshot.at, tz=UTC)
    return tag(
        "header",
        tag("h1", "llmhost ", isolated(about.host_name)),
        tag(
            "p",
            "as of ",
            tag("time", f"{clock(view.snapshot.at)} UTC", datetime=at.strftime("%Y-%m-%dT%H:%M:%SZ"), id="at"),
            tag("span", id="age"),
            tag("noscript", ", and does not change by itself: ", tag("a", "reload", href="./")),
            id="freshness",
        ),
    )


def _health(view: HostView, health: Health) -> Markup:
    headline, _ = HEADLINES[health.level]
    limit = limit_of(health, "the exporter's user")
    keys = _keys(view)
    return tag(
        "section",
        tag("h2", headline, id="headline", class_="level"),
        tag("ul", [_finding(finding, keys) for finding in health.findings]) if health.findings else "",
        tag("p", limit) if limit else "",
        id="health",
        class_=_LEVELS[health.level],
    )


def _keys(view: HostView) -> Mapping[str, str]:
    """Return the id of each subject of a finding by its name, unless two subjects have the same name."""
    found: list[tuple[str, str]] = []
    if isinstance(view.facts.units, Ok):
        found += [(unit.unit.id.name, unit_key(unit.unit.id)) for unit in view.facts.units.value]
    if isinstance(view.snapshot.nvml, Ok):
        found += [(f"GPU {gpu.index}", identity("gpu", gpu.uuid)) for gpu in view.snapshot.nvml.value.gpus]
    known = Counter(name for name, _ in found)
    return {name: key for name, key in found if known[name] == 1}


def _finding(finding: HealthFinding, keys: Mapping[str, str]) -> Markup:
    key = keys.get(finding.subject)
    subject = isolated(finding.subject)
    part = RUNBOOK_PARTS.get(finding.kind)
    return tag(
        "li",
        link(subject, f"#{key}") if key is not None else subject,
        f": {finding.what}",
        [" – ", link("what to do", f"{RUNBOOK}#{part}")] if part is not None else "",
        [" – ", tag("code", "llmhost clean"), " says what can go"] if finding.kind in _CLEANED else "",
    )


def _footer(about: About) -> Markup:
    links = (
        ("metrics", "metrics"),
        ("this page as JSON", "api/status"),
        ("runbook", RUNBOOK),
        ("documentation", PROJECT),
    )
    return tag(
        "footer",
        tag("nav", tag("ul", [tag("li", link(text, to)) for text, to in links]), aria_label="Elsewhere"),
        tag("p", f"llmhost {about.version}. On the host, ", tag("code", "llmhost status"), " says the same."),
    )
