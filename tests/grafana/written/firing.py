"""What alert rules make of series that a Prometheus has: its query API evaluates them, and what is here does the rest.

As Prometheus 2.42 does it (rules/alerting.go): an alert fires from the evaluation at which its expression has had a
result for `for`, and, with `keep_firing_for`, until it has had none for that long.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from tests.fakes.backfilled import Backfilled, without_name
from tests.grafana.written.series import Labels

RULES = Path(__file__).parents[3] / "alerts" / "llmhost.rules.yml"
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def firing(prometheus: Backfilled) -> dict[Labels, dict[int, int]]:
    """Give each alert that fires in the history: second of each evaluation at which it does -> active since."""
    history = prometheus.history
    found: dict[Labels, dict[int, int]] = {}
    for rule in _rules():
        wait, keep = (_seconds(rule, key) for key in ("for", "keep_firing_for"))
        for one in prometheus.over(0, history.seconds, history.every, rule["expr"]):
            seen = {round(float(at) - prometheus.began) for at, _ in one["values"]}
            seconds = dict(_fires(seen, history.scrapes(), wait, keep))
            if seconds:
                found[_labels(rule, one["metric"])] = seconds
    return found


def with_a_result(prometheus: Backfilled, second: int) -> set[Labels]:
    """Give each alert whose expression has a result at that second, for however long."""
    return {_labels(rule, one["metric"]) for rule in _rules() for one in prometheus.at(second, rule["expr"])}


def _rules() -> Iterator[Mapping[str, Any]]:
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        yield from group["rules"]


def _labels(rule: Mapping[str, Any], metric: Mapping[str, str]) -> Labels:
    return without_name({**metric, **rule["labels"], "alertname": rule["alert"], "alertstate": "firing"})


def _fires(seen: set[int], times: Sequence[int], wait: int, keep: int) -> Iterator[tuple[int, int]]:
    since: int | None = None  # it has had a result
    kept: int | None = None  # it fires, and has had none since
    fires = False
    for at in times:
        if at in seen:
            since, kept = at if since is None else since, None
            fires = fires or at - since >= wait
        else:
            kept = at if kept is None else kept
            if not (fires and at - kept < keep):
                fires, since, kept = False, None, None
        if fires and since is not None:
            yield at, since


def _seconds(rule: Mapping[str, Any], key: str) -> int:
    return sum(int(number) * _SECONDS[unit] for number, unit in re.findall(r"(\d+)([smh])", rule.get(key, "")))
