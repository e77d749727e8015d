"""The metrics, labels and values that a PromQL expression asks for, and which of them do not exist."""

import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Protocol

from tests.alerts.label_values import unknown_values

# What every target has, and what our rules keep of it.
TARGET_LABELS = frozenset({"cluster", "job", "instance"})
OTHER_METRICS = frozenset({"up", "ALERTS"})

_STRING = r'"(?:[^"\\]|\\.)*"'
_METRIC = re.compile(r"(?<![\w:])(llmhost_[a-z0-9_]+)(?![\w:])")  # not within the name of a recording
_SELECTOR = re.compile(rf'(?<![\w:])([a-zA-Z_:][\w:]*)\s*\{{((?:[^{{}}"]|{_STRING})*)\}}')
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")


class Family(Protocol):
    @property
    def labels(self) -> tuple[str, ...]: ...


def catalogue() -> Mapping[str, Family]:
    families: Mapping[str, Family] = importlib.import_module("llmhost.metrics.catalog").FAMILIES
    return families


def metrics_in(expr: str) -> set[str]:
    return set(_METRIC.findall(re.sub(_STRING, '""', expr)))


def selectors(expr: str) -> Iterator[tuple[str, dict[str, tuple[str, str]]]]:
    """Give each metric that has matchers, and these: label → (operator, text)."""
    for metric, matchers in _SELECTOR.findall(expr):
        yield metric, {label: (operator, text) for label, operator, text in _MATCHER.findall(matchers)}


def unknown_in(expr: str, families: Mapping[str, Family]) -> Iterator[str]:
    """Name metrics that do not exist, labels that these metrics do not have, and values that enums do not have."""
    wanted = list(selectors(expr))
    metrics = metrics_in(expr) | {metric for metric, _ in wanted}
    yield from (f"metric {metric}" for metric in sorted(metrics - families.keys() - OTHER_METRICS))
    for metric, matchers in wanted:
        if metric in families:
            yield from (f"label {label} of {metric}" for label in matchers if label not in _labels_of(metric, families))
        yield from unknown_values(metric, matchers)
    known = TARGET_LABELS.union(*(families[metric].labels for metric in metrics & families.keys()))
    for grouping in _GROUPING.findall(re.sub(_STRING, '""', expr)):
        yield from (f"label {label}" for label in re.findall(r"\w+", grouping) if label not in known)


def _labels_of(metric: str, families: Mapping[str, Family]) -> frozenset[str]:
    """Return the labels of its series: of a recording, those that its rule keeps."""
    return frozenset(families[metric].labels) | (frozenset() if ":" in metric else TARGET_LABELS)
