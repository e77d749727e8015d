"""What a PromQL expression asks for, read from its text, and whether the catalogue has it."""

import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Protocol

from tests.alerts.label_values import unknown_values

# What every target has, and what our rules keep of it.
TARGET_LABELS = frozenset({"cluster", "job", "instance"})
OTHER_METRICS = frozenset({"up", "ALERTS"})

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR = re.compile(r"\b([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{([^}]*)\}")
_METRIC = re.compile(r"(?<![\w:])(llmhost_[a-z0-9_]+)(?![\w:])")  # not within the name of a recording
_MATCHER = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_WITH_TEXT = re.compile(r'\b([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{((?:[^{}"]|"(?:[^"\\]|\\.)*")*)\}')
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")


class Family(Protocol):
    @property
    def labels(self) -> tuple[str, ...]: ...


def catalogue() -> Mapping[str, Family]:
    families: Mapping[str, Family] = importlib.import_module("llmhost.metrics.catalog").FAMILIES
    return families


def metrics_in(expr: str) -> set[str]:
    return set(_METRIC.findall(_TEXT.sub('""', expr)))


def unknown_in(expr: str, families: Mapping[str, Family]) -> Iterator[str]:
    """Name what the exporter does not have: metrics, labels of those that it has, values of the enums among these."""
    for metric in sorted(metrics_in(expr) - families.keys()):
        yield f"metric {metric}"
    for metric, matchers in _SELECTOR.findall(_TEXT.sub('""', expr)):
        labels = re.findall(r"([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)", matchers)
        if metric in families:
            yield from (f"label {label} of {metric}" for label in labels if label not in _labels_of(metric, families))
        elif metric not in OTHER_METRICS:
            yield f"metric {metric}"
    for metric, matchers in _WITH_TEXT.findall(expr):
        found = {label: (operator, text) for label, operator, text in _MATCHER.findall(matchers)}
        yield from unknown_values(metric, found)
    known = {
        label for metric in metrics_in(expr) & families.keys() for label in families[metric].labels
    } | TARGET_LABELS
    for grouping in _GROUPING.findall(_TEXT.sub('""', expr)):
        yield from (f"label {label}" for label in re.findall(r"\w+", grouping) if label not in known)


def _labels_of(metric: str, families: Mapping[str, Family]) -> frozenset[str]:
    return TARGET_LABELS | frozenset(families[metric].labels)
