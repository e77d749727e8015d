"""Dashboards have keys, enums and types that Grafana has: the oldest that we name, and a recent one.

Held against JSON Schemas of Grafana's own TypeScript types (tests/grafana/schema/make), without a Grafana. What these
have as any text, such as the names of transformations, is held against lists here.
"""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.json_schema import faults
from tests.grafana.linter import BOARDS, Json, panels_of

SCHEMAS: Mapping[str, Json] = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parent / "schema").glob("*.json"))
}
# Grafana has them, its types do not: what the data source Prometheus adds to annotations and queries, what Grafana
# itself writes beside the query of a variable, and what a state timeline does with gaps.
NOT_IN_THE_TYPES = (
    r"custom\.spanNulls is not described",
    r"annotations\.list\[\d+\]\.(expr|step|titleFormat|textFormat|tagKeys|useValueForTime) is not described",
    r"templating\.list\[\d+\]\.definition is not described",
    r"targets\[\d+\]\.interval is not described",
    # How a column of a table is hidden, before and since Grafana 12; each leaves the other alone.
    r"overrides\[\d+\]\.(hidden|hideFrom) is not described",
    # Of a table: Grafana 13 takes it to where it has it.
    r"options\.footer is not described",
)
# "Any text" in the types. Those that we know and use; a new one is looked up in Grafana, then added.
TRANSFORMATIONS = {"merge", "organize", "joinByField", "filterFieldsByName", "sortBy", "groupBy", "labelsToFields"}
MATCHERS = {"byName", "byRegexp", "byType", "byFrameRefID"}
CALCULATIONS = {"lastNotNull", "last", "min", "max", "mean", "sum", "range"}
PANELS = {"timeseries", "stat", "state-timeline", "table", "bargauge", "text", "row"}
COLOUR = re.compile(
    r"text|transparent|#[0-9a-f]{6}|((super-light|light|semi-dark|dark)-)?(red|orange|yellow|green|blue|purple)"
)

each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
each_grafana = pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)


def unknown_to(schema: Json, board: Json) -> list[str]:
    """Say what of a board these types do not have, and Grafana neither."""
    return [one for one in not_in(schema, board) if not any(re.search(known, one) for known in NOT_IN_THE_TYPES)]


def not_in(schema: Json, board: Json) -> Iterator[str]:
    """Say what of a board these types do not have."""
    yield from faults({**board, "panels": []}, _named("Dashboard"), schema, "")
    for panel in panels_of(board):
        at = f"{panel.get('title')!r} "
        if panel["type"] == "row":
            yield from faults({**panel, "panels": []}, _named("Dashboard.RowPanel"), schema, at)
        else:
            yield from faults(panel, _named("Dashboard.Panel"), schema, at)
            yield from _not_in_panel(schema, panel, at)


def _not_in_panel(schema: Json, panel: Json, at: str) -> Iterator[str]:
    """Look at what each kind of panel has types of its own for, and at its queries."""
    kind = panel["type"].replace("-", "")
    yield from faults(panel.get("options", {}), _named(f"{kind}.Options"), schema, f"{at}options")
    standard, custom = schema["$defs"]["Dashboard.FieldConfig"], schema["$defs"].get(f"{kind}.FieldConfig", _NOTHING)
    config = panel.get("fieldConfig", {"defaults": {}, "overrides": []})
    yield from faults(config["defaults"].get("custom", {}), custom, schema, f"{at}custom")
    for number, override in enumerate(config["overrides"]):
        for one in override["properties"]:
            own = one["id"].removeprefix("custom.")
            wanted = standard if own == one["id"] else custom
            yield from faults(_nested(own, one["value"]), wanted, schema, f"{at}overrides[{number}]")
    # Grafana 13 has the type of queries elsewhere; it is the same but for what only newer ones know.
    for number, target in enumerate(panel.get("targets", [])):
        yield from faults(target, _named("PrometheusDataQuery"), SCHEMAS["10.4.19"], f"{at}targets[{number}]")


def _nested(path: str, value: object) -> Json:
    first, _, rest = path.partition(".")
    return {first: _nested(rest, value) if rest else value}


_NOTHING: Json = {"type": "object", "properties": {}}


def _named(definition: str) -> Json:
    return {"$ref": f"#/$defs/{definition}"}


@each_grafana
@each_board
def test_grafana_knows_every_key_and_value(board: Json, schema: Json) -> None:
    assert unknown_to(schema, board) == []


def test_what_the_types_lack_is_used() -> None:
    found = [one for schema in SCHEMAS.values() for board in BOARDS.values() for one in not_in(schema, board)]
    assert [known for known in NOT_IN_THE_TYPES if not any(re.search(known, one) for one in found)] == []


def a_board() -> Json:
    """Give one with little in it, and no fault."""
    return {
        "uid": "a",
        "title": "A",
        "schemaVersion": 39,
        "templating": {"list": [{"name": "job", "type": "query", "query": {"query": "a", "refId": "b"}, "refresh": 2}]},
        "links": [{"type": "dashboards", "title": "x", "tags": ["x"]}],
        "panels": [
            {"type": "row", "id": 1, "title": "Row", "collapsed": False, "panels": []},
            {
                "type": "timeseries",
                "id": 2,
                "title": "Series",
                "gridPos": {"x": 0, "y": 0, "w": 12, "h": 8},
                "targets": [{"refId": "A", "expr": "up", "range": True}],
                "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
                "fieldConfig": {
                    "defaults": {"unit": "s", "custom": {"drawStyle": "line"}, "mappings": []},
                    "overrides": [
                        {
                            "matcher": {"id": "byName", "options": "x"},
                            "properties": [{"id": "custom.lineWidth", "value": 2}, {"id": "unit", "value": "s"}],
                        }
                    ],
                },
            },
        ],
    }


@each_grafana
def test_a_board_without_a_fault_passes(schema: Json) -> None:
    assert unknown_to(schema, a_board()) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("titel", "A", ".titel is not described"),
        ("title", 7, ".title is int, not string"),
        ("templating.list.0.kind", "query", ".templating.list[0].kind is not described"),
        ("templating.list.0.refresh", 3, ".templating.list[0].refresh is 3, none of [0, 1, 2]"),
        ("links.0.type", "dashboard", ".links[0].type is 'dashboard', none of ['link', 'dashboards']"),
        ("panels.0.colapsed", True, "'Row' .colapsed is not described"),
        ("panels.1.gridPos.x", "0", "'Series' .gridPos.x is str, not number"),
        ("panels.1.targets.0.exprs", "up", "'Series' targets[0].exprs is not described"),
        ("panels.1.targets.0.format", "heat", "'Series' targets[0].format is 'heat', none of"),
        ("panels.1.options.legend.displayMode", "lists", "'Series' options.legend.displayMode is 'lists', none of"),
        ("panels.1.fieldConfig.defaults.units", "s", "'Series' .fieldConfig.defaults.units is not described"),
        ("panels.1.fieldConfig.defaults.custom.drawStyle", "dots", "'Series' custom.drawStyle is 'dots', none of"),
        ("panels.1.fieldConfig.defaults.custom.cellOptions", {}, "'Series' custom.cellOptions is not described"),
        ("panels.1.fieldConfig.overrides.0.properties.0.value", "2", "'Series' overrides[0].lineWidth is str, not"),
        ("panels.1.fieldConfig.overrides.0.properties.1.id", "unid", "'Series' overrides[0].unid is not described"),
    ],
)
@each_grafana
def test_a_wrong_key_enum_or_type_is_found(schema: Json, path: str, value: object, said: str) -> None:
    board = copy.deepcopy(a_board())
    inner: Any = board
    *steps, last = path.split(".")
    for step in steps:
        inner = inner[int(step) if step.isdigit() else step]
    inner[last] = value
    (found,) = unknown_to(schema, board)
    assert said in found


def dictionaries_in(value: object) -> Iterator[Json]:
    if isinstance(value, dict):
        yield value
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for inner in inside:
        yield from dictionaries_in(inner)


def names_in(board: Json) -> Iterator[tuple[str, str]]:
    """Give what the types have as any text, with its kind."""
    for panel in panels_of(board):
        yield "panel", panel["type"]
        for one in panel.get("transformations", []):
            yield "transformation", one["id"]
        for one in panel.get("fieldConfig", {}).get("overrides", []):
            yield "matcher", one["matcher"]["id"]
    for one in dictionaries_in(board):
        yield from (("calculation", name) for name in one.get("calcs", []))
        for key in ("color", "fixedColor", "iconColor"):
            if isinstance(one.get(key), str):
                yield "colour", one[key]


def unknown_names(board: Json) -> list[tuple[str, str]]:
    known = {"panel": PANELS, "transformation": TRANSFORMATIONS, "matcher": MATCHERS, "calculation": CALCULATIONS}
    return [
        (kind, name)
        for kind, name in names_in(board)
        if not (COLOUR.fullmatch(name) if kind == "colour" else name in known[kind])
    ]


@each_board
def test_names_that_grafana_looks_up_are_names_that_it_has(board: Json) -> None:
    assert unknown_names(board) == []


def test_a_name_that_grafana_does_not_have_is_found() -> None:
    panel = {
        "type": "graph",
        "transformations": [{"id": "organise"}],
        "fieldConfig": {"overrides": [{"matcher": {"id": "byNam"}, "properties": []}]},
        "options": {"legend": {"calcs": ["avg"]}, "x": {"fixedColor": "grey"}},
    }
    assert unknown_names({"panels": [panel]}) == [
        ("panel", "graph"),
        ("transformation", "organise"),
        ("matcher", "byNam"),
        ("calculation", "avg"),
        ("colour", "grey"),
    ]
