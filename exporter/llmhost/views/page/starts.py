"""The starts of a unit's last day on the status page: a chart by quarters of an hour, and each one in words. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from llmhost.derive.activation import is_up
from llmhost.derive.facts import UnitFacts
from llmhost.derive.host_view import HostView
from llmhost.model.history.unit_history import STARTS_KEPT, Start, UnitHistory, Verdict
from llmhost.model.wording import words
from llmhost.views.page.markup import Markup, styled, tag
from llmhost.views.status.units import start_lines
from llmhost.views.text import count

DAY_SECONDS: Final = 86_400
BUCKET_SECONDS: Final = 900
_BUCKETS: Final = DAY_SECONDS // BUCKET_SECONDS
_WHOLE: Final = 100.0  # per cent
_LEAST_SCALE: Final = 4  # starts that the height stands for, at least: one start alone is no tower
_HOURS: Final = (24, 18, 12, 6, 0)  # ago, at the ticks of the axis
# From the axis upwards: what is in the way first, so that it is where the eye is.
_STACKED: Final[Sequence[Verdict | None]] = (
    Verdict.RESIDENT,
    Verdict.UNKNOWN,
    Verdict.NOT_STARTED,
    None,
    Verdict.CLEAN,
)


def clock(at: float) -> str:
    """Format a point in time in UTC, as readers of one page may be in several time zones."""
    return datetime.fromtimestamp(at, tz=UTC).strftime("%H:%M:%S")


def starts_of(facts: UnitFacts, view: HostView, key: str) -> Markup:
    """Show the starts within a day; nothing where none is recorded."""
    record = view.history.units.get(facts.unit.id)
    if record is None:
        return Markup()
    # The axis ends with the present quarter of an hour, so that nothing moves between two observations.
    end = (view.snapshot.at // BUCKET_SECONDS + 1) * BUCKET_SECONDS
    starts = [start for start in record.starts if end - DAY_SECONDS <= start.at < end]
    if not starts:
        return tag("p", "no start in the last 24 hours", class_="faint")
    found = Counter(start.verdict for start in starts)
    counts = [(verdict, f"{found[verdict]} {_name(verdict)}") for verdict in _STACKED if found[verdict]]
    cut = f"the latest {STARTS_KEPT} are kept, since {clock(starts[0].at)} UTC" if _is_cut(record, end) else ""
    said = f"starts of the last 24 hours: {', '.join(text for _, text in counts)}" + (f"; {cut}" if cut else "")
    listed = [
        styled("li", line) for start in reversed(starts) for line in start_lines(f"{clock(start.at)} UTC,", start, view)
    ]
    return tag(
        "figure",
        tag("figcaption", "starts of the last 24 hours: ", [_counted(*verdict) for verdict in counts], cut),
        tag(
            "svg",
            list(_runs(record, end, until=view.snapshot.at if is_up(facts.unit) else None)),
            list(_columns(starts, end)),
            _unkept(starts, record, end),
            class_="starts",
            role="img",
            aria_label=f"Chart of the {said}",
        ),
        tag(
            "p", [tag("span", f"−{hours} h" if hours else "now") for hours in _HOURS], class_="axis", aria_hidden="true"
        ),
        tag("details", tag("summary", f"{count(len(starts), 'start')}, the latest first"), tag("ol", listed), id=key),
        class_="day",
    )


def _counted(verdict: Verdict | None, text: str) -> Markup:
    key = tag("span", class_=f"key {_class(verdict)}", aria_hidden="true")
    return tag("span", key, text, class_="counted")


def _name(verdict: Verdict | None) -> str:
    return "not judged" if verdict is None else words(verdict)


def _class(verdict: Verdict | None) -> str:
    return f"verdict-{_name(verdict).replace(' ', '-')}"


def _is_cut(record: UnitHistory, end: float) -> bool:
    return len(record.starts) >= STARTS_KEPT and record.starts[0].at > end - DAY_SECONDS


def _x(at: float, end: float) -> float:
    return min(_WHOLE, max(0.0, _WHOLE * (1 - (end - at) / DAY_SECONDS)))


def _columns(starts: Sequence[Start], end: float) -> Iterator[Markup]:
    """Stack the starts of each quarter of an hour by verdict, in the upper four fifths of the chart."""
    by_bucket: dict[int, Counter[Verdict | None]] = {}
    for start in starts:
        bucket = int((start.at - (end - DAY_SECONDS)) // BUCKET_SECONDS)
        by_bucket.setdefault(bucket, Counter())[start.verdict] += 1
    scale = max(_LEAST_SCALE, *(found.total() for found in by_bucket.values()))
    for bucket, found in sorted(by_bucket.items()):
        top = 80.0
        for verdict in _STACKED:
            if not found[verdict]:
                continue
            high = 80.0 * found[verdict] / scale
            top -= high
            yield tag(
                "rect",
                class_=_class(verdict),
                x=f"{_WHOLE * bucket / _BUCKETS:.3f}%",
                y=f"{top:.2f}%",
                width=f"{_WHOLE / _BUCKETS:.3f}%",
                height=f"{high:.2f}%",
            )


def _runs(record: UnitHistory, end: float, *, until: float | None) -> Iterator[Markup]:
    """Draw below the axis the length of each run; the last run goes on `until` now if it is still up.

    A run with an unseen end is left out.
    """
    yield tag("rect", class_="track", y="86%", width="100%", height="14%")
    for start in record.starts:
        over = start.end.at if start.end is not None else until if start is record.latest else None
        if over is None or start.main_monotonic is None or over <= end - DAY_SECONDS:
            continue
        x = _x(start.at, end)
        yield tag("rect", class_="run", x=f"{x:.3f}%", y="86%", width=f"{_x(over, end) - x:.3f}%", height="14%")


def _unkept(starts: Sequence[Start], record: UnitHistory, end: float) -> Markup:
    if not _is_cut(record, end):
        return Markup()
    return tag("rect", class_="unkept", width=f"{_x(starts[0].at, end):.3f}%", height="100%")
