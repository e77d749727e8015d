"""Panels as classic dashboard JSON, schema 39, which Grafana 10.4 and later read from files."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from grafana.kit.queries import BAD, CALM, CANNOT_TELL, GOOD, STATES

Json = dict[str, Any]

DATASOURCE: Mapping[str, str] = {"type": "prometheus", "uid": "${datasource}"}
RUNBOOK = "https://github.com/llmhost/llmhost/blob/main/alerts/README.md"
DASHED: Mapping[str, object] = {"dash": [8, 8], "fill": "dash"}
# The same for all time series, so that a moment is at the same place in panels above one another.
AXIS_WIDTH = 80


def target(expr: str, legend: str = "", *, ref: str = "A", step: str = "") -> Json:
    """Make a range query over the time shown; `step` is its least step."""
    made: Json = {
        "datasource": dict(DATASOURCE),
        "editorMode": "code",
        "expr": expr,
        "legendFormat": legend,
        "range": True,
        "refId": ref,
    }
    return {**made, "interval": step} if step else made


def instant(expr: str, legend: str = "", *, ref: str = "A", table: bool = False) -> Json:
    """Make an instant query at the end of the time shown."""
    made: Json = {
        "datasource": dict(DATASOURCE),
        "editorMode": "code",
        "expr": expr,
        "instant": True,
        "range": False,
        "refId": ref,
    }
    return {**made, "format": "table"} if table else {**made, "legendFormat": legend}


def value_mappings(mapping: Mapping[float, tuple[str, str]]) -> list[Json]:
    """Map numbers to texts and colours."""
    options = {
        f"{value:g}": {"color": colour, "index": index, "text": text}
        for index, (value, (text, colour)) in enumerate(mapping.items())
    }
    return [{"type": "value", "options": options}]


NOT_KNOWN = value_mappings({CANNOT_TELL: ("n/a", CALM)})
STATE_VALUES = value_mappings({float(state.code): (state.text, state.colour) for state in STATES})


def thresholds(*steps: tuple[float | None, str]) -> Json:
    return {"mode": "absolute", "steps": [{"color": colour, "value": value} for value, colour in steps]}


BAD_FROM_1 = thresholds((None, GOOD), (1, BAD))


def override(name_pattern: str, **properties: object) -> Json:
    """Override properties of series or columns whose name matches; `custom__x` sets custom.x."""
    return {
        "matcher": {"id": "byRegexp", "options": f"/{name_pattern}/"},
        "properties": [{"id": name.replace("__", "."), "value": value} for name, value in properties.items()],
    }


def colours(by_name: Mapping[str, str]) -> list[Json]:
    """Colour series by name."""
    return [
        override(f"^{re.escape(name)}$", color={"fixedColor": colour, "mode": "fixed"})
        for name, colour in by_name.items()
    ]


def text_mappings(colours_by_text: Mapping[str, str]) -> list[Json]:
    """Colour a table's texts and leave them as they are."""
    options = {name: {"color": colour, "index": index} for index, (name, colour) in enumerate(colours_by_text.items())}
    return [{"type": "value", "options": options}]


def link(title: str, url: str) -> Json:
    return {"title": title, "url": url, "targetBlank": False}


def panel(
    kind: str,
    title: str,
    description: str,
    targets: Sequence[Json],
    *,
    defaults: Json,
    options: Json,
    overrides: Sequence[Json] = (),
) -> Json:
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": dict(DATASOURCE),
        "targets": list(targets),
        "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
        "options": options,
    }


def stat(
    title: str,
    description: str,
    targets: Sequence[Json],
    *,
    unit: str = "short",
    steps: Json | None = None,
    mappings: Sequence[Json] = (),
    links: Sequence[Json] = (),
    decimals: int | None = None,
) -> Json:
    """Draw a big number. With thresholds or mappings its background is coloured: they judge it."""
    judged = steps is not None or bool(mappings)
    # Without data Grafana takes the colour below all steps: it must not look like a good value.
    from_0 = [(step["value"] or 0, step["color"]) for step in steps["steps"]] if steps else []
    defaults: Json = {
        "unit": unit,
        "color": {"mode": "thresholds"},
        "mappings": list(mappings),
        "thresholds": thresholds((None, CALM if judged else "text"), *from_0),
        "links": list(links),
    }
    if decimals is not None:
        defaults["decimals"] = decimals
    return panel(
        "stat",
        title,
        description,
        targets,
        defaults=defaults,
        options={
            "colorMode": "background" if judged else "none",
            "graphMode": "none",
            "justifyMode": "center",
            "orientation": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "auto",
        },
    )


def timeseries(
    title: str,
    description: str,
    targets: Sequence[Json],
    *,
    unit: str = "short",
    stacked: bool = False,
    bars: bool = False,
    overrides: Sequence[Json] = (),
    calcs: Sequence[str] = ("last",),
    legend: bool = True,
    **defaults: object,
) -> Json:
    """Draw lines, stacked areas or stacked bars.

    Lines are steps: a reading holds until the next one. Legends show the last value of the time shown, if there is
    one: `lastNotNull` would show an old value as if it still held.
    """
    # Where all is 0, Grafana would draw up to 100.
    counts = unit in {"none", "short"} or unit.startswith("suffix:")
    custom: Json = {
        **({"axisSoftMax": 2 if bars else 1} if counts else {}),
        "axisWidth": AXIS_WIDTH,
        "drawStyle": "bars" if bars else "line",
        "fillOpacity": 80 if bars else 50 if stacked else 0,
        "lineInterpolation": "stepAfter",
        "lineWidth": 0 if bars or stacked else 1,  # what is stacked and 0 would be a line over the others
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if stacked or bars else "none"},
    }
    return panel(
        "timeseries",
        title,
        description,
        targets,
        defaults={"unit": unit, "min": 0, "color": {"mode": "palette-classic"}, "custom": custom, **defaults},
        overrides=overrides,
        options={
            "legend": {"calcs": list(calcs), "displayMode": "list", "placement": "bottom", "showLegend": legend},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    )


def event_bars(title: str, description: str, targets: Sequence[Json], *, overrides: Sequence[Json] = ()) -> Json:
    """Draw bars that count events, with their sum over the time shown in the legend."""
    return timeseries(
        title, description, targets, unit="none", bars=True, overrides=overrides, calcs=("sum",), decimals=0
    )


def state_timeline(title: str, description: str, targets: Sequence[Json], mappings: Sequence[Json]) -> Json:
    """Draw states over time; a gap is where the state was not known."""
    return panel(
        "state-timeline",
        title,
        description,
        targets,
        defaults={
            "unit": "none",
            # With thresholds their ranges would be shown, not the texts.
            "color": {"fixedColor": "text", "mode": "fixed"},
            "custom": {"fillOpacity": 80, "lineWidth": 0, "spanNulls": False},
            "mappings": list(mappings),
        },
        options={
            "alignValue": "left",
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "mergeValues": True,
            "rowHeight": 0.8,
            "showValue": "auto",
            "tooltip": {"mode": "single", "sort": "none"},
        },
    )


def table(
    title: str,
    description: str,
    columns: Sequence[tuple[str, str]],
    *,
    shown: Sequence[str],
    for_links: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    overrides: Sequence[Json] = (),
    sort: tuple[str, bool] | None = None,
) -> Json:
    """Draw a table of instant queries: `columns` are names and queries.

    Its first columns are the labels in `shown`. Rows of all queries are joined on their labels. `for_links` are hidden
    columns that links use. `sort` is a column, and whether the order is descending.
    """
    refs = [chr(ord("A") + number) for number in range(len(columns))]
    renamed = {f"Value #{ref}": name for ref, (name, _) in zip(refs, columns, strict=True)}
    if len(columns) == 1:
        renamed = {"Value": columns[0][0], **renamed}
    order = [*shown, *(f"Value #{ref}" for ref in refs)] if len(columns) > 1 else [*shown, "Value"]
    unused = [label for label in ("cluster", "job", "instance", "manager", "uuid") if label not in (*shown, *for_links)]
    options: Json = {"cellHeight": "sm", "footer": {"show": False}, "showHeader": True}
    if sort:
        options["sortBy"] = [{"displayName": sort[0], "desc": sort[1]}]
    made = panel(
        "table",
        title,
        description,
        [instant(expr, ref=ref, table=True) for ref, (_, expr) in zip(refs, columns, strict=True)],
        defaults={
            "unit": "short",
            "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False},
            "thresholds": thresholds((None, "text")),
        },
        overrides=[*overrides, *(override(f"^{label}$", **HIDDEN) for label in for_links)],
        options=options,
    )
    made["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True, **dict.fromkeys(unused, True)},
                "indexByName": {name: place for place, name in enumerate(order)},
                "renameByName": {**(names or {}), **renamed},
            },
        },
    ]
    return made


def text(title: str, description: str, markdown: str) -> Json:
    return {
        "type": "text",
        "title": title,
        "description": description,
        "options": {"mode": "markdown", "content": markdown},
    }


COLOURED_TEXT: Mapping[str, str] = {"type": "color-text"}
COLOURED_CELL: Mapping[str, str] = {"type": "color-background", "mode": "basic"}
# Hides a column, in Grafana before 12 and since.
HIDDEN: Mapping[str, bool] = {"custom__hidden": True, "custom__hideFrom__viz": True}


def repeated(panel: Json, variable: str, per_row: int) -> Json:
    """Repeat the panel for each value of the variable."""
    return {**panel, "repeat": variable, "repeatDirection": "h", "maxPerRow": per_row}
