"""Dashboards have keys, enums and types that Grafana has: the oldest that we name, and a recent one.

Held against JSON Schemas of Grafana's own TypeScript types (tests/grafana/schema/make), without a Grafana. What these
have as any text, such as the names of transformations, is held against lists here.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.fakes.json_schema import faults
from tests.grafana.boards import BOARDS, Json, dictionaries

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
TRANSFORMATIONS = {"merge", "organize"}
MATCHERS = {"byName", "byRegexp"}
CALCULATIONS = {"lastNotNull", "last", "max", "mean", "sum"}
PANELS = {"timeseries", "stat", "state-timeline", "table", "text", "row"}
COLOUR = re.compile(
    r"text|transparent|#[0-9a-f]{6}|((super-light|light|semi-dark|dark)-)?(red|orange|yellow|green|blue|purple)"
)

each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
each_grafana = pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)


def unknown_to(schema: Json, board: Json) -> list[str]:
    """Say what of a board neither these types nor Grafana have."""
    return [fault for fault in not_in(schema, board) if not any(re.search(known, fault) for known in NOT_IN_THE_TYPES)]


def not_in(schema: Json, board: Json) -> Iterator[str]:
    """Say what of a board these types do not have."""
    yield from faults({**board, "panels": []}, _named("Dashboard"), schema, "")
    for panel in board["panels"]:
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
        for changed in override["properties"]:
            own = changed["id"].removeprefix("custom.")
            wanted = standard if own == changed["id"] else custom
            yield from faults(_nested(own, changed["value"]), wanted, schema, f"{at}overrides[{number}]")
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


def names_in(board: Json) -> Iterator[tuple[str, str]]:
    """Give names that the types have as any text, with their kind."""
    for panel in board["panels"]:
        yield "panel", panel["type"]
        yield from (("transformation", transformation["id"]) for transformation in panel.get("transformations", []))
        overrides = panel.get("fieldConfig", {}).get("overrides", [])
        yield from (("matcher", override["matcher"]["id"]) for override in overrides)
    for value in dictionaries(board):
        yield from (("calculation", name) for name in value.get("calcs", []))
        colours = [value.get(key) for key in ("color", "fixedColor", "iconColor")]
        yield from (("colour", colour) for colour in colours if isinstance(colour, str))


@each_board
def test_names_that_grafana_looks_up_are_names_that_it_has(board: Json) -> None:
    known = {"panel": PANELS, "transformation": TRANSFORMATIONS, "matcher": MATCHERS, "calculation": CALCULATIONS}
    colours = {name for kind, name in names_in(board) if kind == "colour"}
    assert [colour for colour in colours if not COLOUR.fullmatch(colour)] == []
    assert [(kind, name) for kind, name in names_in(board) if kind != "colour" and name not in known[kind]] == []
