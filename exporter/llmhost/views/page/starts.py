"""The starts of a unit's last day on the status page: a chart by quarters of an hour, and each one in words. Pure.

Where all of them are of the last hour, the chart is of that hour, by minutes: a loop that is young is no single bar.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

_WHOLE: Final = 100.0  # per cent
_UNFOLDED: Final = 5  # latest starts of a loop, that are shown at once
_LEAST_SCALE: Final = 4  # starts that the height stands for, at least: one start alone is no tower
# From the axis upwards: what is in the way first, so that it is where the eye is.
_STACKED: Final[Sequence[Verdict | None]] = (
    Verdict.RESIDENT,
    Verdict.UNKNOWN,
    Verdict.NOT_STARTED,
    None,
    Verdict.CLEAN,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    name: str
    seconds: int
    bucket_seconds: int
    ticks: tuple[str, ...]  # how long ago

    def end(self, at: float) -> float:
        """End the axis with the present bucket, so that nothing moves between two observations."""
        return (at // self.bucket_seconds + 1) * self.bucket_seconds

    def begin(self, end: float) -> float:
        return end - self.seconds


_DAY: Final = _Axis(
    name="24 hours", seconds=86_400, bucket_seconds=900, ticks=("−24 h", "−18 h", "−12 h", "−6 h", "now")
)
_HOUR: Final = _Axis(
    name="hour", seconds=3600, bucket_seconds=60, ticks=("−60 min", "−45 min", "−30 min", "−15 min", "now")
)


def clock(at: float) -> str:
    """Format a point in time in UTC, as readers of one page may be in several time zones."""
    return datetime.fromtimestamp(at, tz=UTC).strftime("%H:%M:%S")


def starts_of(facts: UnitFacts, view: HostView, key: str) -> Markup:
    """Show the starts within a day; nothing where none is recorded."""
    record = view.history.units.get(facts.unit.id)
    if record is None:
        return Markup()
    end = _DAY.end(view.snapshot.at)
    starts = [start for start in record.starts if _DAY.begin(end) <= start.at < end]
    if not starts:
        return tag("p", "no start in the last 24 hours", class_="faint")
    found = Counter(start.verdict for start in starts)
    counts = [(verdict, f"{found[verdict]} {_name(verdict)}") for verdict in _STACKED if found[verdict]]
    cut = f"the latest {STARTS_KEPT} are kept, since {clock(starts[0].at)} UTC" if _is_cut(record, end) else ""
    axis = _DAY
    if not cut and starts[0].at >= _HOUR.begin(_HOUR.end(view.snapshot.at)):
        axis, end = _HOUR, _HOUR.end(view.snapshot.at)
    said = f"starts of the last {axis.name}: {', '.join(text for _, text in counts)}" + (f"; {cut}" if cut else "")
    listed = [
        styled("li", line) for start in reversed(starts) for line in start_lines(f"{clock(start.at)} UTC,", start, view)
    ]
    unfolded = _UNFOLDED if facts.loop is not None else 0
    folded = f"{count(len(listed) - unfolded, 'earlier start' if unfolded else 'start')}, the latest first"
    return tag(
        "figure",
        tag("figcaption", f"starts of the last {axis.name}: ", [_counted(*verdict) for verdict in counts], cut),
        tag(
            "svg",
            list(_runs(record, axis, end, until=view.snapshot.at if is_up(facts.unit) else None)),
            list(_columns(starts, axis, end)),
            _unkept(starts, record, axis, end),
            class_="starts",
            role="img",
            aria_label=f"Chart of the {said}",
        ),
        tag("p", [tag("span", tick) for tick in axis.ticks], class_="axis", aria_hidden="true"),
        tag("ol", listed[:unfolded]) if unfolded else "",
        tag("details", tag("summary", folded), tag("ol", listed[unfolded:]), id=key) if listed[unfolded:] else "",
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
    return len(record.starts) >= STARTS_KEPT and record.starts[0].at > _DAY.begin(end)


def _x(at: float, axis: _Axis, end: float) -> float:
    return min(_WHOLE, max(0.0, _WHOLE * (1 - (end - at) / axis.seconds)))


def _columns(starts: Sequence[Start], axis: _Axis, end: float) -> Iterator[Markup]:
    """Stack the starts of each bucket by verdict, in the upper four fifths of the chart."""
    buckets = axis.seconds // axis.bucket_seconds
    by_bucket: dict[int, Counter[Verdict | None]] = {}
    for start in starts:
        bucket = int((start.at - axis.begin(end)) // axis.bucket_seconds)
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
                x=f"{_WHOLE * bucket / buckets:.3f}%",
                y=f"{top:.2f}%",
                width=f"{_WHOLE / buckets:.3f}%",
                height=f"{high:.2f}%",
            )


def _runs(record: UnitHistory, axis: _Axis, end: float, *, until: float | None) -> Iterator[Markup]:
    """Draw below the axis the length of each run; the last run goes on `until` now if it is still up.

    A run with an unseen end is left out.
    """
    yield tag("rect", class_="track", y="86%", width="100%", height="14%")
    for start in record.starts:
        over = start.end.at if start.end is not None else until if start is record.latest else None
        if over is None or start.main_monotonic is None or over <= axis.begin(end):
            continue
        x = _x(start.at, axis, end)
        yield tag("rect", class_="run", x=f"{x:.3f}%", y="86%", width=f"{_x(over, axis, end) - x:.3f}%", height="14%")


def _unkept(starts: Sequence[Start], record: UnitHistory, axis: _Axis, end: float) -> Markup:
    if not _is_cut(record, end):
        return Markup()
    return tag("rect", class_="unkept", width=f"{_x(starts[0].at, axis, end):.3f}%", height="100%")
