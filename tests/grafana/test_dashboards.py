"""Dashboards: as generated, and with queries that Prometheus can parse and the exporter can answer."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.alerts.expressions import catalogue, check_that_all_parse, unknown_in
from tests.fakes.needs import needs

from grafana import generate

FOLDER = Path(__file__).parents[2] / "grafana"
DASHBOARDS = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

each_dashboard = pytest.mark.parametrize("board", DASHBOARDS.values(), ids=DASHBOARDS)


def everything_in(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from everything_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from everything_in(inner)


def expressions(board: dict[str, Any]) -> list[str]:
    return [one["expr"] for one in everything_in(board) if "expr" in one]


def substituted(expr: str) -> str:
    """Put in what Grafana would."""
    for variable, value in (("$__rate_interval", "1m"), ("$__interval", "1m"), ("$__range", "6h")):
        expr = expr.replace(variable, value)
    expr = re.sub(r"\$(job|instance|gpu)\b", ".+", expr)
    assert "$" not in expr
    return expr


def test_the_files_are_what_the_generator_writes() -> None:
    written = {name: (FOLDER / name).read_text(encoding="utf-8") for name in DASHBOARDS}
    assert written == generate.files(), "run: make dashboards"


@each_dashboard
def test_a_dashboard_keeps_its_identity_and_belongs_to_no_server(board: dict[str, Any]) -> None:
    assert board["uid"] == "llmhost-host"  # links and bookmarks go by it: never change it
    assert board["id"] is None
    assert board["schemaVersion"] == 39
    assert board["editable"] is False
    assert not {"version", "iteration", "__inputs"} & board.keys()


@each_dashboard
def test_every_datasource_is_the_variable(board: dict[str, Any]) -> None:
    told = [one["datasource"] for one in everything_in(board) if "datasource" in one]
    assert len(told) > 10
    assert [one for one in told if one != DATASOURCE] == []
    (variable,) = (one for one in board["templating"]["list"] if one["type"] == "datasource")
    assert (variable["name"], variable["query"], variable["current"]) == ("datasource", "prometheus", {})


@each_dashboard
def test_hosts_are_listed_from_what_every_exporter_has(board: dict[str, Any]) -> None:
    queries = {one["name"]: one["query"]["query"] for one in board["templating"]["list"] if one["type"] == "query"}
    assert queries["job"] == "label_values(llmhost_build_info, job)"
    assert queries["instance"] == 'label_values(llmhost_build_info{job=~"$job"}, instance)'


@each_dashboard
def test_every_panel_says_what_it_shows_and_in_what_unit(board: dict[str, Any]) -> None:
    for panel in board["panels"]:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert all(target["datasource"] == DATASOURCE for target in panel["targets"])
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)


@each_dashboard
def test_panels_have_numbers_and_places_of_their_own(board: dict[str, Any]) -> None:
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in board["panels"]):
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not taken & cells
        assert all(0 <= x < 24 for x, _ in cells)
        taken |= cells


@each_dashboard
def test_every_query_parses(board: dict[str, Any], tmp_path: Path) -> None:
    found = [substituted(expr) for expr in expressions(board)]
    assert len(found) > 20
    check_that_all_parse(found, tmp_path)


@each_dashboard
def test_every_query_asks_for_what_is_exported_of_the_chosen_hosts(board: dict[str, Any]) -> None:
    families = catalogue()
    assert [what for expr in expressions(board) for what in unknown_in(expr, families)] == []
    for expr in expressions(board):
        selectors = re.findall(r"\b(?:llmhost_\w+|up|ALERTS)\b(\{[^}]*\})?", expr)
        assert selectors
        assert [one for one in selectors if 'job=~"$job", instance=~"$instance"' not in one] == [], expr


def answers(tmp_path: Path, series: dict[str, int], checks: dict[str, dict[str, int]]) -> None:
    """Let promtool answer each query from the given series, and compare."""
    tested = {
        "interval": "1m",
        "input_series": [{"series": name, "values": f"{value}x5"} for name, value in series.items()],
        "promql_expr_test": [
            {
                "expr": substituted(expr),
                "eval_time": "2m",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in expected.items()],
            }
            for expr, expected in checks.items()
        ],
    }
    file = tmp_path / "answers.yml"
    file.write_text(yaml.safe_dump({"rule_files": [], "tests": [tested]}), encoding="utf-8")
    ran = subprocess.run([needs("promtool"), "test", "rules", file], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def panel_expr(title: str, ref: str = "A") -> str:
    (panel,) = (panel for panel in DASHBOARDS["llmhost-host.json"]["panels"] if panel["title"] == title)
    return str(next(target["expr"] for target in panel["targets"] if target["refId"] == ref))


@pytest.mark.parametrize(
    ("active", "sub", "code", "text"),
    [
        ("active", "running", 1, "active"),
        ("reloading", "reload", 2, "reloading"),
        ("refreshing", "refresh", 2, "reloading"),
        ("activating", "start", 3, "starting"),
        ("activating", "start-pre", 4, "start-pre"),
        ("activating", "auto-restart", 5, "waiting to restart"),
        ("activating", "auto-restart-queued", 5, "waiting to restart"),
        ("deactivating", "stop-sigterm", 6, "stopping"),
        ("inactive", "dead", 7, "inactive"),
        ("failed", "failed", 8, "failed"),
        ("maintenance", "maintenance", 9, "maintenance"),
    ],
)
def test_a_unit_shows_as_one_state(active: str, sub: str, code: int, text: str, tmp_path: Path) -> None:
    states = ("active", "reloading", "inactive", "failed", "activating", "deactivating", "maintenance", "refreshing")
    unit = 'job="j",instance="a",unit="v.service",manager="system"'
    series = {f'llmhost_unit_active_state{{{unit},state="{state}"}}': int(state == active) for state in states}
    series[f'llmhost_unit_sub_state{{{unit},state="{sub}"}}'] = 1
    answers(tmp_path, series, {panel_expr("Units over time"): {f"{{{unit}}}": code}})
    mapping = next(
        panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
        for panel in DASHBOARDS["llmhost-host.json"]["panels"]
        if panel["title"] == "Units over time"
    )
    assert mapping[str(code)]["text"] == text


def test_the_banner_counts_what_is_wrong(tmp_path: Path) -> None:
    unit = 'job="j",instance="a",manager="system"'
    series = {
        'up{job="j",instance="a"}': 1,
        'up{job="j",instance="b"}': 0,
        'llmhost_collector_success{job="j",instance="a",collector="nvml"}': 1,
        'llmhost_collector_success{job="j",instance="a",collector="systemd"}': 0,
        'llmhost_collector_success{job="j",instance="a",collector="procfs"}': 0,
        'llmhost_collector_fault{job="j",instance="a",collector="procfs",cause="disabled"}': 1,
        'llmhost_gpus_expected{job="j",instance="a"}': 8,
        'llmhost_gpu_up{job="j",instance="a",gpu="0",uuid="GPU-0"}': 1,
        'llmhost_gpu_up{job="j",instance="a",gpu="0:1",uuid="MIG-0"}': 1,
        'llmhost_gpu_up{job="j",instance="a",gpu="1",uuid="GPU-1"}': 0,
        f'llmhost_unit_info{{{unit},unit="f.service"}}': 1,
        f'llmhost_unit_active_state{{{unit},unit="f.service",state="failed"}}': 1,
        f'llmhost_unit_sub_state{{{unit},unit="w.service",state="auto-restart"}}': 1,
        f'llmhost_unit_active_state{{{unit},unit="w.service",state="failed"}}': 0,
    }
    checks = {
        panel_expr("Hosts not scraped"): {"{}": 1},
        panel_expr("Collectors failing"): {"{}": 1},
        panel_expr("GPUs"): {"{}": 1},
        panel_expr("GPUs", "B"): {"{}": 8},
        panel_expr("GPUs missing"): {"{}": 7},
        panel_expr("Units down unasked"): {"{}": 2},
    }
    answers(tmp_path, series, checks)


def test_the_banner_says_0_where_all_is_well_and_nothing_where_nothing_is_known(tmp_path: Path) -> None:
    well = {
        'up{job="j",instance="a"}': 1,
        'llmhost_collector_success{job="j",instance="a",collector="nvml"}': 1,
        'llmhost_gpus_expected{job="j",instance="a"}': 1,
        'llmhost_gpu_up{job="j",instance="a",gpu="0",uuid="GPU-0"}': 1,
        'llmhost_unit_info{job="j",instance="a",unit="v.service",manager="system"}': 1,
    }
    titles = ("Hosts not scraped", "Collectors failing", "GPUs missing", "Units down unasked")
    answers(tmp_path, well, {panel_expr(title): {"{}": 0} for title in titles})
    answers(tmp_path, {"other": 1}, {panel_expr(title): {} for title in titles})


def test_a_table_row_keeps_its_columns_when_something_cannot_be_told(tmp_path: Path) -> None:
    unit = '{job="j",instance="a",unit="v.service",manager="system"}'
    cannot_tell = -1
    answers(
        tmp_path,
        {f"llmhost_unit_info{unit}": 1, f"llmhost_unit_nrestarts{unit}": 6},
        {
            panel_expr("Units now", "B"): {unit: cannot_tell},
            panel_expr("Units now", "C"): {unit: cannot_tell},
            panel_expr("Units now", "D"): {unit: 6},
            panel_expr("Units now", "F"): {unit: cannot_tell},
        },
    )
    answers(
        tmp_path,
        {f"llmhost_unit_info{unit}": 1, 'llmhost_collector_success{job="j",instance="a",collector="nvml"}': 1},
        {panel_expr("Units now", "F"): {unit: 0}},
    )
