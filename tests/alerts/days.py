"""Days of hosts as series in a Prometheus, made from the states of a unit over time.

A host serves with one unit on one GPU. What a day says differently (`Day.series`) goes over that; `None` is no sample.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from llmhost.model.unit import ACTIVE_STATES, SERVICE_RESULTS

Value = float | int | None
Values = Callable[[int], Value]  # of the time in seconds

GIB = 1 << 30
MINUTE = 60
UNIT = "vllm.service"
_U = f'unit="{UNIT}",manager="system"'
_E = f'{_U},engine="vllm",endpoint="http://127.0.0.1:8000"'
_M = f'{_E},model="m",engine_index="0"'
_G = 'gpu="0",uuid="GPU-0"'
_RESULTS = tuple(result for result in SERVICE_RESULTS if result != "success")

# What a unit does → (ActiveState, SubState).
_SYSTEMD = {
    "serves": ("active", "running"),
    "sleeps": ("active", "running"),
    "loads": ("active", "running"),
    "loads in start": ("activating", "start"),
    "waits in start-pre": ("activating", "start-pre"),
    "waits to restart": ("activating", "auto-restart"),
    "stops": ("deactivating", "stop-sigterm"),
    "rests": ("inactive", "dead"),
    "has yet to start": ("inactive", "dead"),
    "has failed": ("failed", "failed"),
}
_HAS_MAIN = {"serves", "sleeps", "loads", "loads in start", "stops"}
# ActiveState or SubState → what a unit does in it.
_SYSTEMD_IN = {
    state: {does for does, states in _SYSTEMD.items() if state in states}
    for state in (*ACTIVE_STATES, *(sub for _, sub in _SYSTEMD.values()))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """From this second on, the unit does this. `start` names the trigger and verdict of a start that begins here."""

    at: int
    does: str
    start: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """`scraped` says when a scrape of the exporter succeeds; None: there is no such target then."""

    name: str
    spans: tuple[Span, ...] = (Span(at=-7200, does="serves", start=("manual", "clean")),)
    scraped: Callable[[int], bool | None] = lambda _: True
    series: Mapping[str, Values | Value] = field(default_factory=dict)
    starts_before: Mapping[tuple[str, str], int] = field(default_factory=dict)  # counted before the day
    without: tuple[str, ...] = ()  # beginnings of names of series that the host does not have

    def span(self, at: int) -> Span:
        return next(span for span in reversed(self.spans) if span.at <= at)

    def does(self, at: int) -> str:
        return self.span(at).does

    def last_start(self, at: int) -> int | None:
        return next((span.at for span in reversed(self.spans) if span.at <= at and span.start), None)

    def last_start_short_bytes(self, at: int) -> int:
        """Take what is in the way of a start for what it lacks."""
        last = next((span.start for span in reversed(self.spans) if span.at <= at and span.start), None)
        return 70 * GIB if last is not None and last[1] == "resident" else 0

    def restarts_short_of_memory(self, at: int) -> Value:
        return 1 if any(span.at <= at and span.start == ("auto", "resident") for span in self.spans) else None

    def starts(self, trigger: str, verdict: str) -> Values:
        before = self.starts_before.get((trigger, verdict), 0)
        return lambda at: before + sum(0 <= span.at <= at and span.start == (trigger, verdict) for span in self.spans)

    def served_seconds(self, at: int) -> int:
        """Count the seconds of the day so far in which it served, which its counters of tokens go by."""
        ends = [*(span.at for span in self.spans[1:]), at]
        return sum(
            max(0, min(end, at) - max(span.at, 0))
            for span, end in zip(self.spans, ends, strict=True)
            if span.does == "serves"
        )


def _unit_series(day: Day) -> Iterator[tuple[str, Values]]:
    for state in ACTIVE_STATES:
        yield f'llmhost_unit_active_state{{{_U},state="{state}"}}', _where(day, _SYSTEMD_IN[state], 1, 0)
    for sub in sorted({sub for _, sub in _SYSTEMD.values()}):
        yield f'llmhost_unit_sub_state{{{_U},state="{sub}"}}', _where(day, _SYSTEMD_IN[sub], 1)
    yield f"llmhost_unit_wanted{{{_U}}}", _where(day, {"rests"}, 0, 1)
    for trigger in ("auto", "unit", "manual"):
        for verdict in ("clean", "resident", "unknown", "not_started"):
            name = f'llmhost_unit_starts_total{{{_U},trigger="{trigger}",verdict="{verdict}"}}'
            yield name, day.starts(trigger, verdict)
    yield f"llmhost_unit_last_start_timestamp_seconds{{{_U}}}", day.last_start
    yield f"llmhost_unit_state_change_timestamp_seconds{{{_U}}}", lambda at: day.span(at).at
    for result in _RESULTS:
        yield f'llmhost_unit_failures_total{{{_U},result="{result}"}}', lambda _: 0
    yield f"llmhost_unit_unexpected_stops_total{{{_U}}}", lambda _: 0
    yield f"llmhost_unit_last_start_short_bytes{{{_U},{_G}}}", day.last_start_short_bytes
    yield f"llmhost_unit_restarts_short_of_memory{{{_U}}}", day.restarts_short_of_memory
    yield f"llmhost_unit_gpu_memory_needed_bytes{{{_U},{_G}}}", lambda _: 85 * GIB
    yield f"llmhost_unit_startable{{{_U}}}", _where(day, _SYSTEMD_IN["inactive"] | _SYSTEMD_IN["failed"], 1)
    yield f"llmhost_unit_gives_up{{{_U}}}", lambda _: 0
    yield f"llmhost_unit_ready_budget_seconds{{{_U}}}", lambda _: 1800
    info = 'unit_file_state="enabled",service_type="exec",engine="vllm",restart="on-failure",kill_mode="control-group"'
    yield f'llmhost_unit_info{{{_U},load_state="loaded",{info},guarded="true"}}', lambda _: 1


def _engine_series(day: Day) -> Iterator[tuple[str, Values]]:
    found = {"serves": 1, "sleeps": 1, "loads": 0, "loads in start": 0}

    def answers(at: int) -> Value:
        return found.get(day.does(at))

    yield f"llmhost_engine_up{{{_E}}}", answers
    yield f'llmhost_engine_fault{{{_E},cause="starting"}}', lambda at: 1 if answers(at) == 0 else None
    yield f"llmhost_engine_ready_seconds{{{_E}}}", lambda at: 170 if answers(at) == 1 else None
    gauges: dict[str, Values] = {
        "generation_tokens_total": lambda at: 50 * day.served_seconds(at),
        "prompt_tokens_total": lambda at: 200 * day.served_seconds(at),
        "steps_total": lambda at: 20 * day.served_seconds(at),
        "requests_running": lambda at: 4 if day.does(at) == "serves" else 0,
        "requests_waiting": lambda _: 0,
        "kv_cache_usage_ratio": lambda _: 0.4,
        "sleeping": lambda at: int(day.does(at) == "sleeps"),
    }
    for name, values in gauges.items():
        yield f"llmhost_engine_{name}{{{_M}}}", _while(lambda at: answers(at) == 1, values)


def _host_series(day: Day) -> Iterator[tuple[str, Values]]:
    info = 'name="H20",pci_bus_id="0",driver_version="570",parent_uuid="",memory_api="v2"'
    yield f'llmhost_gpu_info{{{_G},{info},unified_memory="false"}}', lambda _: 1
    constant: dict[str, float] = {
        f"llmhost_gpu_up{{{_G}}}": 1,
        f"llmhost_gpu_fabric_ready{{{_G}}}": 1,
        f"llmhost_gpu_unattributed_memory_bytes{{{_G}}}": GIB // 4,
        f"llmhost_gpu_memory_free_bytes{{{_G}}}": 5 * GIB,
        "llmhost_gpus": 1,
        "llmhost_gpus_expected": 1,
        "llmhost_driver_mismatch": 0,
        'llmhost_shm_segments{kind="semaphore",state="stale"}': 0,
        'llmhost_shm_segment_bytes{kind="semaphore",state="stale"}': 0,
        "llmhost_shm_size_bytes": 500 * GIB,
        "llmhost_shm_used_bytes": 10 * GIB,
        'llmhost_resource_trackers{state="orphaned"}': 0,
        'llmhost_orphan_processes{engine="none",role="none"}': 0,
        f'llmhost_guard_last_verdict{{{_U},verdict="free"}}': 1,
        f"llmhost_guard_last_run_timestamp_seconds{{{_U}}}": -7200,
        "llmhost_config_reload_success": 1,
        "llmhost_unreadable_processes": 0,
        "llmhost_policy_resident_bytes": 1000 << 20,
        **{
            f'llmhost_collector_success{{collector="{collector}"}}': 1
            for collector in ("nvml", "systemd", "procfs", "shm", "engine", "guard")
        },
    }
    for name, value in constant.items():
        yield name, _always(value)
    yield f'llmhost_gpu_holder_memory_bytes{{{_G},{_U},kind="current"}}', _where(day, _HAS_MAIN, 90 * GIB)


def _where(day: Day, does: AbstractSet[str], value: Value, otherwise: Value = None) -> Values:
    return lambda at: value if day.does(at) in does else otherwise


def _while(holds: Callable[[int], bool], values: Values) -> Values:
    return lambda at: values(at) if holds(at) else None


def _always(value: Value) -> Values:
    return lambda _: value


def series_of(day: Day, seconds: int, scrape_seconds: int) -> list[dict[str, str]]:
    """Return the day's series in promtool's notation, scraped that often."""
    values_of: dict[str, Values] = {**dict(_unit_series(day)), **dict(_engine_series(day)), **dict(_host_series(day))}
    values_of = {name: values for name, values in values_of.items() if not name.startswith(day.without or "-")}
    for name, value in day.series.items():
        values_of[name] = value if callable(value) else _always(value)
    times = range(0, seconds, scrape_seconds)
    target = f'cluster="c",job="llmhost",instance="{day.name}"'
    series = [
        {
            "series": f"up{{{target}}}",
            "values": promtool_values(
                [None if day.scraped(at) is None else int(bool(day.scraped(at))) for at in times]
            ),
        }
    ]
    for name, values in values_of.items():
        metric, _, labels = name.partition("{")
        whole = f"{metric}{{{target},{labels or '}'}"
        series.append(
            {"series": whole, "values": promtool_values([values(at) if day.scraped(at) else None for at in times])}
        )
    return series


def promtool_values(values: Sequence[Value]) -> str:
    """Return values in promtool's notation: `_x3` for no sample three times, `5x3` for 5 and three more like it.

    A series that ends before the others do is marked stale, as Prometheus marks what a scrape no longer has.
    """
    runs: list[list[Any]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 0])
    parts = []
    for number, (value, more) in enumerate(runs):
        if value is None:
            stale = number > 0  # the scrape right after its last sample
            parts += ["stale"] if stale else []
            repeats = more + 1 - int(stale)
            parts += [f"_x{repeats}"] if repeats else []
        else:
            parts.append(f"{value:.0f}x{more}" if float(value).is_integer() else f"{value}x{more}")
    return " ".join(parts)
