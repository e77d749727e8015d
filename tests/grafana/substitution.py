"""What Grafana puts in place of a board's variables before it asks Prometheus: its code, read and written anew.

From grafana-prometheus's escaping.ts, promlib's models/query.go and grafana-data's rangeutil.ts, all of 13.2.

    span = Span(start, end)
    chosen = variables(board, lambda selector, label: [...], {"unit": ["vllm@glm.service"]})
    steps = steps_of(span, min_step=target.get("interval"), points=800)
    expr = substituted(target["expr"], chosen, span, steps)
    start, end = aligned(span, steps.step)  # of a range query; an instant query is asked at span.end
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SCRAPE_SECONDS = 15.0  # the data source's "scrape interval": 15 s where nobody has set it
SAFE_POINTS = 11_000  # Prometheus refuses more points of a series
ALL = "$__all"

# Of a range divided by the points wanted: what is below the first is rounded to the second.
_ROUNDED = (
    (1.5, 1),
    (3.5, 2),
    (7.5, 5),
    (12.5, 10),
    (17.5, 15),
    (25, 20),
    (45, 30),
    (90, 60),
    (210, 120),
    (450, 300),
    (750, 600),
    (1050, 900),
    (1500, 1200),
    (2700, 1800),
    (5400, 3600),
    (9000, 7200),
    (16200, 10800),
    (32400, 21600),
    (86400, 43200),
    (604800, 86400),
)
_UNITS = (("y", 31536000), ("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
_NAMED = re.compile(r"\$(\w+)|\[\[(\w+)(?::(\w+))?\]\]|\$\{(\w+)(?::(\w+))?\}")
_REGEX = re.compile(r"[$^*{}\[\]+?.()|]")
_LABEL_VALUES = re.compile(r"label_values\((?:(.+),\s*)?([a-zA-Z_]\w*)\)", re.DOTALL)


@dataclass(frozen=True)
class Span:
    """Time shown, in seconds since 1970."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Steps:
    """In seconds: between two points of a range query, and `$__rate_interval`."""

    step: float
    rate: float


@dataclass(frozen=True)
class Variable:
    """What is chosen of a variable."""

    name: str
    values: tuple[str, ...]
    several: bool = False  # could be: its values are escaped for use in a regular expression
    all_of_them: bool = False
    all_value: str = ""  # goes in as it is, where All is chosen

    def as_promql(self) -> str:
        if self.all_of_them and self.all_value:
            return self.all_value
        if not self.several:
            return "".join(self.values).replace("\\", r"\\").replace("'", r"\\'")
        escaped = [_REGEX.sub(r"\\\\\g<0>", value.replace("\\", r"\\\\")) for value in self.values]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"

    def as_text(self) -> str:
        return "All" if self.all_of_them else " + ".join(self.values) or "None"

    def in_url(self) -> str:
        return "&".join(f"var-{self.name}={value}" for value in ((ALL,) if self.all_of_them else self.values))

    def written(self, form: str) -> str:
        if self.all_of_them and self.all_value and form not in {"text", "queryparam"}:
            return self.all_value
        match form:
            case "" | "promql":
                return self.as_promql()
            case "text":
                return self.as_text()
            case "queryparam":
                return self.in_url()
            case "pipe":
                return "|".join(self.values)
            case "csv" | "raw":
                return ",".join(self.values)
            case "regex":
                return self._as_regex()
            case _:
                raise ValueError(f"${{{self.name}:{form}}}: a format that is not known here")

    def _as_regex(self) -> str:
        escaped = [re.sub(r"[\\^$*+?.()|\[\]{}/]", r"\\\g<0>", value) for value in self.values]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def variables(
    board: Mapping[str, Any],
    label_values: Callable[[str, str], Sequence[str]],
    chosen: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Variable]:
    """Fill a board's variables in the order of their listing.

    `label_values` gives the values of a label of the series that a selector ("" for all) finds, sorted. What is not
    `chosen` is All where the variable offers it and was saved so, else the first value found, as Grafana does when a
    board is opened without its variables in the URL. A repeated panel wants `found` values: those of All are all.
    """
    made: dict[str, Variable] = {}
    for told in board.get("templating", {}).get("list", []):
        name = told["name"]
        if told["type"] != "query":
            offered = _saved(told) or str(told.get("query", ""))
            made[name] = Variable(name, tuple(chosen[name]) if chosen and name in chosen else (offered,))
            continue
        found = _found(told, made, label_values)
        wanted = chosen.get(name) if chosen else None
        offers_all = bool(told.get("includeAll"))
        takes_all = wanted == [ALL] or (wanted is None and offers_all and _saved(told) in {"", ALL})
        made[name] = Variable(
            name,
            values=tuple(found) if takes_all else tuple(wanted or found[:1]),
            several=bool(told.get("multi")) or offers_all,
            all_of_them=takes_all,
            all_value=told.get("allValue") or "",
        )
    return made


def _saved(told: Mapping[str, Any]) -> str:
    value = told.get("current", {}).get("value", "")
    return str(value[0] if value else "") if isinstance(value, list) else str(value)


def _found(
    told: Mapping[str, Any], made: Mapping[str, Variable], label_values: Callable[[str, str], Sequence[str]]
) -> list[str]:
    query = told["query"]["query"] if isinstance(told["query"], dict) else told["query"]
    asked = _LABEL_VALUES.fullmatch(substituted(query, made).strip())
    if not asked:
        raise ValueError(f"variable {told['name']}: label_values() alone is known here, not {query}")
    found = label_values((asked[1] or "").strip(), asked[2])
    pattern = re.compile(told["regex"].strip("/")) if told.get("regex") else None
    return [value for value in found if pattern is None or pattern.search(value)]


def substituted(
    text: str,
    chosen: Mapping[str, Variable],
    span: Span | None = None,
    steps: Steps | None = None,
    *,
    form: str = "promql",
) -> str:
    """Put them into an expression; with `form="text"` into a title. What is not known stays as it is."""
    built_in = dict(_built_in(span, steps))

    def one(match: re.Match[str]) -> str:
        name = match[1] or match[2] or match[4]
        if name in chosen:
            return chosen[name].written(match[3] or match[5] or form)
        return built_in.get(name, match[0])

    return _NAMED.sub(one, text)


def _built_in(span: Span | None, steps: Steps | None) -> Iterator[tuple[str, str]]:
    if span:
        seconds = math.floor(span.seconds + 0.5)
        yield "__range", f"{seconds}s"
        yield "__range_s", str(seconds)
        yield "__range_ms", str(round(span.seconds * 1000))
        yield "__from", str(round(span.start * 1000))
        yield "__to", str(round(span.end * 1000))
    if steps:
        yield "__interval", _whole_units(steps.step)
        yield "__interval_ms", str(round(steps.step * 1000))
        yield "__rate_interval", f"{round(steps.rate * 1000)}ms" if steps.rate % 1 else f"{steps.rate:.0f}s"
        yield "__rate_interval_ms", str(round(steps.rate * 1000))


def _whole_units(seconds: float) -> str:
    """Write it in the largest unit that it has, cut off: 90 s are 1m. Grafana does that."""
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(1, round(seconds * 1000))}ms"


def steps_of(
    span: Span,
    *,
    points: int,
    min_step: str | None = None,
    panel_min: str | None = None,
    scrape_seconds: float = SCRAPE_SECONDS,
) -> Steps:
    """Give the steps of a target.

    `points` is the panel's maxDataPoints, else its width in pixels; `min_step` the target's `interval`, `panel_min`
    the panel's.
    """
    # the panel's interval, worked out by the browser
    interval = max(_rounded(span.seconds / points), duration(panel_min) if panel_min else scrape_seconds)
    if min_step in {"$__interval", "${__interval}"}:
        least, scrape = interval, None
    elif min_step in {"$__rate_interval", "${__rate_interval}"}:
        least, scrape = interval, scrape_seconds
    else:
        least = duration(min_step) if min_step else interval
        scrape = duration(min_step) if min_step else scrape_seconds
    wanted = span.seconds / points  # Prometheus's part of Grafana works it out again
    step = max(least if wanted < least else _rounded(wanted), _rounded(span.seconds / SAFE_POINTS))
    if min_step in {"$__rate_interval", "${__rate_interval}"}:
        step = max(step + scrape_seconds, 4 * scrape_seconds)
        return Steps(step, step)
    scrape = step if scrape is None else scrape
    return Steps(step, max(interval + scrape, 4 * scrape))


def _rounded(seconds: float) -> float:
    if seconds < 1.5:  # finer than a scrape can be: ten milliseconds and so on count as one second here
        return 1.0
    return next((float(rounded) for below, rounded in _ROUNDED if seconds < below), 604800.0)


def duration(text: str) -> float:
    """Seconds of Grafana's "30s", "1m", ">1m" or "15" (seconds)."""
    match = re.fullmatch(r">?(\d+(?:\.\d+)?)(ms|[smhdwy])?", text)
    if not match:
        raise ValueError(f"no duration: {text}")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def aligned(span: Span, step: float) -> tuple[float, float]:
    """Start and end of a range query: both rounded down to a multiple of the step."""
    return math.floor(span.start / step) * step, math.floor(span.end / step) * step
