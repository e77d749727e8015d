"""The committed boards, and promtool's answers to their queries.

answers(tmp_path, {'up{job="j",instance="a"}': 1}, {query("llmhost-host", "… missing"): {}})
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from tests.alerts.rule_files import promtool
from tests.grafana.variables import queries, variables

Json = dict[str, Any]
Series = dict[str, float | str]

GRAFANA = Path(__file__).parents[2] / "grafana"
BOARDS: Mapping[str, Json] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(GRAFANA.glob("*.json"))
}
CANNOT_TELL = -2  # grafana.kit.queries
# What the variables of a board find, of which those without "All" take the first; hosts and units of tests are these.
_LABEL_VALUES = {"cluster": "c", "job": "j", "instance": "a", "unit": "v.service", "gpu": "0"}
# The board of a host shows several where they are chosen; tests of it have these.
_CHOSEN: Mapping[str, Mapping[str, Sequence[str]]] = {"llmhost-host": {"instance": ("a", "b", "c", "d")}}


def dictionaries(value: object) -> Iterator[Json]:
    """Give all dictionaries inside, the outer ones first."""
    if isinstance(value, dict):
        yield value
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for inner in inside:
        yield from dictionaries(inner)


def targets(board: Json) -> Iterator[tuple[Json, Json]]:
    """Give each query of the panels, after its panel."""
    yield from ((panel, target) for panel in board["panels"] for target in panel.get("targets", ()))


def expressions(board: Json) -> list[str]:
    """Give the queries of panels, annotations and variables."""
    found = [value["expr"] for value in dictionaries(board) if "expr" in value]
    return found + [variable["definition"] for variable in board["templating"]["list"] if "definition" in variable]


def stats(board: str) -> list[Json]:
    return [panel for panel in BOARDS[board]["panels"] if panel["type"] == "stat"]


def panel(board: str, title: str) -> Json:
    (found,) = (panel for panel in BOARDS[board]["panels"] if panel["title"] == title and panel["type"] != "row")
    return dict(found)


def query(board: str, title: str, ref: str = "A") -> str:
    """Give a panel's query as Prometheus gets it."""
    (found,) = (target for target in panel(board, title)["targets"] if target["refId"] == ref)
    return filled(board, found["expr"])


def column(board: str, title: str, name: str) -> str:
    """Give the query of a table's column."""
    names = panel(board, title)["transformations"][1]["options"]["renameByName"]
    (ref,) = (key.removeprefix("Value #") for key, shown in names.items() if shown == name and "#" in key)
    return query(board, title, ref)


def filled(board: str, expr: str) -> str:
    """Give an expression with the values that the board's variables have in tests."""
    chosen = variables(BOARDS[board], lambda _, label: [_LABEL_VALUES.get(label, "x")], _CHOSEN.get(board, {}))
    found = queries(expr, chosen)
    assert "$" not in found
    return found


def answers(
    tmp_path: Path,
    series: Mapping[str, float | str],
    checks: Mapping[str, Mapping[str, float]],
    *,
    at: str = "2m",
    rules: Sequence[Path] = (),
) -> None:
    """Let promtool answer each query at a moment from the given series, one sample a minute, and compare.

    A number is the value all along; a text is promtool's own notation, such as "0x59 1x5". A check is a query's
    samples, labels → value.
    """
    tested = {
        "interval": "1m",
        "input_series": [
            {"series": name, "values": value if isinstance(value, str) else f"{value}x90"}
            for name, value in series.items()
        ],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": at,
                "exp_samples": [{"labels": labels, "value": value} for labels, value in expected.items()],
            }
            for expr, expected in checks.items()
        ],
    }
    file = tmp_path / "answers.yml"
    written = {"rule_files": [str(rule) for rule in rules], "evaluation_interval": "1m", "tests": [tested]}
    file.write_text(yaml.safe_dump(written), encoding="utf-8")
    ran = promtool("test", "rules", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
