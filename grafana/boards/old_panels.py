"""Pieces of classic dashboard JSON, schema 39, which Grafana 10.4 and later read from files. No library: legible."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

DATASOURCE: Mapping[str, str] = {"type": "prometheus", "uid": "${datasource}"}


def target(expr: str, *, legend: str = "", instant: bool = False, ref: str = "A") -> Json:
    made: Json = {"datasource": dict(DATASOURCE), "editorMode": "code", "expr": expr, "refId": ref}
    if instant:
        return {**made, "format": "table", "instant": True, "range": False}
    return {**made, "legendFormat": legend, "range": True}


def values(mapping: Mapping[float, tuple[str, str]]) -> list[Json]:
    """Texts and colours in place of numbers."""
    options = {
        f"{value:g}": {"color": colour, "index": index, "text": text}
        for index, (value, (text, colour)) in enumerate(mapping.items())
    }
    return [{"type": "value", "options": options}]


def thresholds(*steps: tuple[float | None, str]) -> Json:
    return {"mode": "absolute", "steps": [{"color": colour, "value": value} for value, colour in steps]}


def panel(kind: str, title: str, description: str, targets: Sequence[Json], *, defaults: Json, options: Json) -> Json:
    """Lay out what every panel has. The description ends with the metrics asked for, in their order."""
    asked = dict.fromkeys(name for one in targets for name in re.findall(r"\b(?:llmhost_\w+|up(?=\{))", one["expr"]))
    metrics = f"Metric{'s' if len(asked) > 1 else ''}: {', '.join(f'`{name}`' for name in asked)}."
    return {
        "type": kind,
        "title": title,
        "description": f"{description} {metrics}",
        "datasource": dict(DATASOURCE),
        "targets": list(targets),
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }


def stat(title: str, description: str, *, steps: Json, **exprs: str) -> Json:
    """Numbers of the present, each expression under its name. What cannot be read is `No data`, never a calm 0."""
    options: Json = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
        "wideLayout": True,
    }
    targets = [
        {**target(expr, legend=name, ref=chr(ord("A") + number)), "instant": True, "range": False}
        for number, (name, expr) in enumerate(exprs.items())
    ]
    defaults = {"unit": "short", "decimals": 0, "thresholds": steps}
    return panel("stat", title, description, targets, defaults=defaults, options=options)


def timeseries(title: str, description: str, targets: Sequence[Json], *, stacked: bool = False) -> Json:
    custom: Json = {
        "drawStyle": "line",
        "fillOpacity": 60 if stacked else 0,
        "lineInterpolation": "stepAfter",
        "lineWidth": 1,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
    }
    return panel(
        "timeseries",
        title,
        description,
        targets,
        defaults={"unit": "bytes", "min": 0, "color": {"mode": "palette-classic"}, "custom": custom},
        options={
            "legend": {"calcs": ["lastNotNull"], "displayMode": "table", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    )


def only(name_pattern: str, **properties: object) -> Json:
    """Override for the series whose legend matches."""
    return {
        "matcher": {"id": "byRegexp", "options": f"/{name_pattern}/"},
        "properties": [{"id": name.replace("__", "."), "value": value} for name, value in properties.items()],
    }


def variable(name: str, label: str, query: str) -> Json:
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": dict(DATASOURCE),
        "definition": query,
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": 2,
        "sort": 7,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": ["All"], "value": ["$__all"]},
        "options": [],
    }
