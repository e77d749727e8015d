"""Hours of hosts' series, written by hand as what changes when.

    history = History("incident", seconds=6 * HOUR)
    host = history.host("gpu-1.example.com:10061")
    host.set("llmhost_gpus", 8)
    host.set("llmhost_unit_wanted", [(0, 1), (3 * HOUR, 0)], unit="vllm.service", manager="system")
    host.state("llmhost_unit_active_state", "state", ACTIVE_STATES, [(0, "active"), (3 * HOUR, "failed")], unit=…)
    host.set("llmhost_engine_prompt_tokens_total", [(0, Rises(900, start=0)), (3 * HOUR, None)], …)

Times are seconds since the history began. A step holds from its second until the next one's; a scrape, each `every`
seconds from second 0 to the last one, sees the step that holds then.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

HOUR = 3600
DAY = 24 * HOUR
END = 1_767_700_800  # 2026-01-06T12:00:00Z: when a history ends, unless asked otherwise

OF_PROMETHEUS = frozenset({"up", "ALERTS", "ALERTS_FOR_STATE"})  # what it writes itself
Labels = tuple[tuple[str, str], ...]  # sorted


@dataclass(frozen=True, slots=True)
class Rises:
    """It goes up by this much each second, from `start`, or from where it was."""

    by: float
    start: "float | At | None" = None


@dataclass(frozen=True, slots=True)
class At:
    """A second of the history, as seconds since 1970."""

    second: float


Step = float | None | Rises | At  # None: there is no such series then
Steps = Sequence[tuple[float, Step]]
Texts = Sequence[tuple[float, str | None]]


@dataclass(slots=True)
class History:
    name: str
    seconds: int
    every: int = 30
    keeps: frozenset[str] | None = None  # metrics; series of others are dropped
    series: dict[tuple[str, Labels], Steps] = field(default_factory=dict)
    dark: dict[Labels, Sequence[tuple[float, float]]] = field(default_factory=dict)  # when targets were not scraped

    def host(self, instance: str, cluster: str = "tokyo") -> "Host":
        return Host(self, instance, cluster)

    def fires(
        self, name: str, severity: str, labels: Mapping[str, str], *times: tuple[float, float], wait: float = 0
    ) -> None:
        """Let an alert be active from one second to another, both included, and fires `wait` seconds later.

        What only ever is pending is not written down: boards ask for what fires, and since when it has been active.
        """
        alert = {"alertname": name, "severity": severity, **labels}
        fires = [step for since, end in times for step in ((since + wait, 1.0), (end + 1, None))]
        self.add("ALERTS", [(-DAY, None), *fires], alert | {"alertstate": "firing"})
        active = [step for since, end in times for step in ((since, At(since)), (end + 1, None))]
        self.add("ALERTS_FOR_STATE", [(-DAY, None), *active], alert)

    def add(self, name: str, steps: Steps, labels: Mapping[str, str]) -> None:
        if self.keeps is not None and name not in self.keeps:
            return
        key = name, tuple(sorted(labels.items()))
        assert key not in self.series, f"{key} is there already"
        assert [at for at, _ in steps] == sorted(at for at, _ in steps), f"{key}: not in the order of time"
        self.series[key] = steps

    def scrapes(self) -> range:
        return range(0, self.seconds + 1, self.every)

    def sampled(self, began: float) -> Iterator[tuple[str, Labels, list[float | None]]]:
        """Give each series with its value at each scrape, for a history that began then."""
        times = self.scrapes()
        for (name, labels), steps in self.series.items():
            values = _sampled(steps, times, began)
            if name not in OF_PROMETHEUS:
                target = tuple((key, value) for key, value in labels if key in {"cluster", "instance", "job"})
                for start, end in self.dark.get(target, ()):
                    values = [None if start <= at < end else value for at, value in zip(times, values, strict=True)]
            yield name, labels, values


@dataclass(frozen=True, slots=True)
class Host:
    history: History
    instance: str
    cluster: str

    @property
    def labels(self) -> dict[str, str]:
        return {"cluster": self.cluster, "job": "llmhost", "instance": self.instance}

    def set(self, name: str, steps: Steps | float | At | Rises, /, **labels: str) -> None:
        """Set the steps of a series; a number alone holds all the time."""
        held: Steps = [(0, steps)] if isinstance(steps, int | float | At | Rises) else steps
        self.history.add(name, held, self.labels | labels)

    def state(self, name: str, label: str, values: Sequence[str], steps: Texts, /, **labels: str) -> None:
        """Set the value of an enum: each has a series, 1 or 0."""
        assert {text for _, text in steps} <= {*values, None}, (name, steps)
        for value in values:
            self.set(
                name,
                [(at, None if text is None else float(text == value)) for at, text in steps],
                **labels,
                **{label: value},
            )

    def current(self, name: str, label: str, steps: Texts, /, **labels: str) -> None:
        """Set the value of an enum: that value alone has a series, of 1."""
        for value in sorted({text for _, text in steps if text is not None}):
            self.set(name, [(at, 1 if text == value else None) for at, text in steps], **labels, **{label: value})

    def counts(
        self, name: str, label: str, values: Sequence[str], known: Mapping[str, Steps | float], /, **labels: str
    ) -> None:
        """Set the number for each value of an enum; 0 where it is not given."""
        assert known.keys() <= set(values), (name, known)
        for value in values:
            self.set(name, known.get(value, 0), **labels, **{label: value})

    def not_scraped(self, *times: tuple[float, float]) -> None:
        """Set when `up` is 0 and the host has no other series."""
        self.history.dark[tuple(sorted(self.labels.items()))] = times
        self.set("up", [(0, 1), *((at, up) for start, end in times for at, up in ((start, 0), (end, 1)))])


def total(*several: Steps) -> list[tuple[float, float]]:
    """Add plain numbers up; where there is none, it counts as 0."""
    seconds = sorted({at for steps in several for at, _ in steps})
    return [(second, sum(_plain(steps, second) for steps in several)) for second in seconds]


def times(steps: Steps, factor: float) -> list[tuple[float, float]]:
    return [(second, value * factor) for second, value in total(steps)]


def _plain(steps: Steps, second: float) -> float:
    number = bisect_right([at for at, _ in steps], second) - 1
    found = steps[number][1] if number >= 0 else None
    assert found is None or isinstance(found, int | float), found
    return found or 0.0


def count(seconds: Sequence[float], before: float = 0) -> Steps:
    """Count events: one more from each of these seconds on."""
    return [(-DAY * 1000, before), *((second, before + number) for number, second in enumerate(sorted(seconds), 1))]


def _sampled(steps: Steps, times: Sequence[int], began: float) -> list[float | None]:
    found: list[tuple[float, float | None, float]] = []  # from this second, this value, and what it rises by
    for second, step in steps:
        match step:
            case Rises(by, None):
                found.append((second, _value(found[-1], second) if found else 0.0, by))
            case Rises(by, start):
                found.append((second, began + start.second if isinstance(start, At) else start, by))
            case At(moment):
                found.append((second, began + moment, 0))
            case _:
                found.append((second, step, 0))
    starts = [second for second, _, _ in found]
    values: list[float | None] = []
    for moment in times:
        number = bisect_right(starts, moment) - 1
        values.append(None if number < 0 else _value(found[number], moment))
    return values


def _value(of: tuple[float, float | None, float], second: float) -> float | None:
    since, value, by = of
    return value if value is None or not by else value + by * (second - since)
