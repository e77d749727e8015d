"""`llmhost status` for people: GPUs, units, leftovers, unknowns. Pure."""

from collections.abc import Iterator, Mapping

from llmhost.decide.health import Health, Level
from llmhost.derive.host_view import HostView
from llmhost.views.status.gpus import gpu_lines
from llmhost.views.status.leftovers import process_lines, shm_lines, unknown_lines
from llmhost.views.status.units import unit_lines
from llmhost.views.text import WIDTH, Line, Style, folded, rendered

HEADLINES: Mapping[Level, tuple[str, Style]] = {
    Level.HEALTHY: ("healthy", Style.GOOD),
    Level.FINDINGS: ("not healthy", Style.BAD),
    Level.CANNOT_TELL: ("cannot tell whether all is well", Style.DOUBT),
}


def status_text(
    view: HostView, health: Health, *, units_alone: bool = False, width: int = WIDTH, colour: bool = False
) -> str:
    """Show the host; `units_alone`: nothing but the view's units, with all their starts that are kept."""
    return rendered(_lines(view, health, width, units_alone=units_alone), width=width, colour=colour)


def limit_of(health: Health, user: str) -> str:
    """Say how far `healthy` goes; "" where all was read, or something else is said."""
    if health.level is not Level.HEALTHY:
        return ""
    if health.is_limited:
        return f"as far as {user} can see"
    return "as far as can be seen from here" if health.is_narrowed else ""


def _lines(view: HostView, health: Health, width: int, *, units_alone: bool) -> Iterator[Line]:
    headline, style = HEADLINES[health.level]
    limit = limit_of(health, "this user")
    yield ((f"{headline}, {limit}" if limit else headline, style),)
    for finding in health.findings:
        first = (("  ! ", Style.BAD),)
        yield from folded(f"{finding.subject}: {finding.what}", width=width, first=first, indent="    ")
    sections: tuple[Iterator[Line], ...] = (unit_lines(view, width, all_starts=units_alone),)
    if not units_alone:
        sections = (gpu_lines(view, width), *sections, process_lines(view, width), shm_lines(view, width))
    for section in sections:
        yield from _section(section)
    yield from _section(unknown_lines(health.unknowns, width))


def _section(lines: Iterator[Line]) -> Iterator[Line]:
    for index, line in enumerate(lines):
        if index == 0:
            yield ()
        yield line
