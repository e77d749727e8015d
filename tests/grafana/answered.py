"""The boards as they are written, and what promtool answers to their queries.

answers(tmp_path, {'up{job="j",instance="a"}': 1}, {expr_of("llmhost-host", "… missing"): {}})
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from tests.fakes.needs import needs
from tests.grafana.substitution import Span, Steps, substituted, variables

Json = dict[str, Any]

FOLDER = Path(__file__).parents[2] / "grafana"
RECORDINGS = FOLDER.parent / "alerts" / "llmhost.recording.rules.yml"
BOARDS: Mapping[str, Json] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))
}
_SIX_HOURS = Span(0, 6 * 3600)
_STEPS = Steps(60, 240)
# What the variables of a board find, of which those without "All" take the first; hosts and units of tests are these.
_FOUND = {"cluster": "c", "job": "j", "instance": "a", "unit": "v.service", "gpu": "0"}
# The board of a host shows several where they are chosen; tests of it have these.
_CHOSEN: Mapping[str, Mapping[str, Sequence[str]]] = {"llmhost-host": {"instance": ("a", "b", "c", "d")}}


def everything_in(value: object) -> Iterator[Json]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from everything_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from everything_in(inner)


def expressions(board: Json) -> list[str]:
    return [one["expr"] for one in everything_in(board) if "expr" in one]


def panel(board: str, title: str) -> Json:
    (found,) = (one for one in BOARDS[board]["panels"] if one["title"] == title and one["type"] != "row")
    return dict(found)


def expr_of(board: str, title: str, ref: str = "A") -> str:
    """Give a panel's query as Prometheus gets it."""
    (found,) = (target for target in panel(board, title)["targets"] if target["refId"] == ref)
    return asked(BOARDS[board], found["expr"])


def asked(board: Json, expr: str) -> str:
    """Put in what Grafana would for what is chosen, else where nothing is: All, or the first of what is found."""
    chosen = variables(board, lambda _, label: [_FOUND.get(label, "x")], _CHOSEN.get(board["uid"], {}))
    found = substituted(expr, chosen, _SIX_HOURS, _STEPS)
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
    file.write_text(
        yaml.safe_dump({"rule_files": [str(rule) for rule in rules], "evaluation_interval": "1m", "tests": [tested]}),
        encoding="utf-8",
    )
    ran = subprocess.run([needs("promtool"), "test", "rules", file], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
