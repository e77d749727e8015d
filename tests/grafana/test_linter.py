"""Dashboards are clean by the rules of Grafana's linter, but for what grafana/.lint excludes and why; and by ours.

tests/grafana/test_dashboards.py looks at identity, places and data sources.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.alerts.expressions import TARGET_LABELS, catalogue, unknown_in
from tests.alerts.rule_files import RECORDINGS, rules
from tests.grafana.linter import (
    BOARDS,
    GRAFANA,
    PROMETHEUS,
    RULES,
    UNITS,
    Exclusion,
    Json,
    exclusions,
    faults_of,
    panels_of,
    query_of,
    targets_of,
    variables_of,
)
from tests.grafana.promql import counters_out_of_place, kept, selectors

EXCLUDED = exclusions((GRAFANA / ".lint").read_text(encoding="utf-8"))
# What a recording keeps: its name → its labels.
RECORDED = {
    rule["record"]: frozenset(re.findall(r"\w+", re.findall(r"\bby \(([^)]*)\)", rule["expr"])[0]))
    for rule in rules(RECORDINGS)
}
# What an alert has beside the labels of what it is about.
OF_ALERTS = frozenset({"alertname", "alertstate", "severity"}).union(*(one.labels for one in catalogue().values()))
# A table shows all that there has been.
SHOWN_AS_IT_IS = "llmhost_gpu_xid_errors_total"
# A unit of our own, which Grafana takes and the linter's list does not have.
OWN_UNIT = re.compile(r"suffix: ?\S+")

each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def a_board() -> Json:
    """Give one without a fault."""
    variable = {"type": "query", "datasource": PROMETHEUS, "refresh": 2, "multi": True, "allValue": ".+"}
    return {
        "title": "A",
        "editable": False,
        "templating": {
            "list": [
                {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus"},
                {**variable, "name": "job", "label": "Job", "query": {"query": "label_values(up, job)", "refId": "A"}},
                {
                    **variable,
                    "name": "instance",
                    "label": "Instance",
                    "query": 'label_values(up{job=~"$job"}, instance)',
                },
            ]
        },
        "panels": [
            {
                "type": "timeseries",
                "title": "B",
                "description": "C.",
                "datasource": PROMETHEUS,
                "fieldConfig": {"defaults": {"unit": "s"}, "overrides": []},
                "targets": [
                    asked('sum by (unit) (rate(a_total{job=~"$job", instance=~"$instance"}[$__rate_interval]))')
                ],
            }
        ],
    }


def asked(expr: str) -> Json:
    return {"datasource": PROMETHEUS, "expr": expr, "refId": "A"}


def with_panel(**changes: object) -> Callable[[Json], object]:
    return lambda board: board["panels"][0].update(changes)


def with_query(expr: str) -> Callable[[Json], object]:
    return with_panel(targets=[asked(expr)])


def with_variable(number: int, **changes: object) -> Callable[[Json], object]:
    return lambda board: board["templating"]["list"][number].update(changes)


def test_a_board_without_a_fault_is_clean() -> None:
    assert list(faults_of(a_board())) == []


HOST = 'job=~"$job", instance=~"$instance"'
FAULTS: Mapping[str, tuple[Callable[[Json], object], ...]] = {
    "template-datasource-rule": (with_variable(0, label="Source"), with_variable(0, name="prometheus")),
    "template-job-rule": (
        with_variable(1, label="job"),
        with_variable(1, multi=False),
        with_variable(1, allValue=".*"),
        with_variable(1, datasource={"type": "prometheus", "uid": "abc"}),
    ),
    "template-instance-rule": (
        lambda board: board["templating"]["list"].pop(),
        with_variable(2, type="custom", query="a,b"),
    ),
    "template-label-promql-rule": (
        with_variable(1, query="label_values(up{, job)"),
        with_variable(1, query="labels(up, job)"),
    ),
    "template-on-time-change-reload-rule": (with_variable(1, refresh=1),),
    "panel-datasource-rule": (with_panel(datasource={"type": "prometheus", "uid": "abc"}),),
    "panel-title-description-rule": (with_panel(title=""), with_panel(description="")),
    "panel-units-rule": (
        with_panel(fieldConfig={"defaults": {"unit": "metres"}, "overrides": []}),
        with_panel(fieldConfig={"defaults": {"mappings": []}, "overrides": []}),
        with_panel(
            fieldConfig={
                "defaults": {"unit": "s"},
                "overrides": [{"matcher": {}, "properties": [{"id": "unit", "value": "metres"}]}],
            }
        ),
    ),
    "panel-no-targets-rule": (with_panel(targets=[]),),
    "target-promql-rule": (with_query(f"sum(up{{{HOST}}}"), with_query("")),
    "target-rate-interval-rule": (with_query(f"rate(a_total{{{HOST}}}[5m])"),),
    "target-job-rule": (
        with_query('up{instance=~"$instance"}'),
        with_query(f'up{{{HOST}}} unless up{{job="$job", instance=~"$instance"}}'),
    ),
    "target-instance-rule": (with_query('up{job=~"$job"}'), with_query('up{job=~"$job", instance=~"a"}')),
    "target-counter-agg-rule": (
        with_query(f"a_total{{{HOST}}}"),
        with_query(f"max_over_time(a_total{{{HOST}}}[$__range])"),
    ),
    "target-logql-rule": (lambda board: board["panels"][0]["targets"][0].update(datasource={"type": "loki"}),),
    "uneditable-dashboard-rule": (lambda board: board.update(editable=True), lambda board: board.pop("editable")),
}


@pytest.mark.parametrize(
    ("rule", "spoil"),
    [
        pytest.param(rule, spoil, id=f"{rule}-{number}")
        for rule, several in FAULTS.items()
        for number, spoil in enumerate(several)
    ],
)
def test_each_rule_finds_its_fault_and_no_other_does(rule: str, spoil: Callable[[Json], object]) -> None:
    board = a_board()
    spoil(board)
    # one of them for both rules about Loki
    assert {one.rule for one in faults_of(board)} - {"target-logql-auto-rule"} == {rule}


def test_all_rules_are_tried() -> None:
    assert RULES.keys() - FAULTS.keys() == {"target-logql-auto-rule"}


@each_board
def test_a_board_is_clean(board: Json) -> None:
    assert [one for one in faults_of(board) if not any(excluded.takes(one) for excluded in EXCLUDED)] == []


def test_no_exclusion_is_unused() -> None:
    found = [one for board in BOARDS.values() for one in faults_of(board)]
    assert [one for one in EXCLUDED if not any(one.takes(fault) for fault in found)] == []


def test_every_exclusion_has_a_reason() -> None:
    assert EXCLUDED
    assert [one for one in EXCLUDED if not one.reason.endswith(".")] == []


def test_an_exclusion_takes_what_it_names_and_no_more() -> None:
    (fault,) = (one for one in faults_of({**a_board(), "editable": True}))
    assert Exclusion("uneditable-dashboard-rule", "x", "A").takes(fault)
    assert not Exclusion("uneditable-dashboard-rule", "x", "B").takes(fault)
    assert not Exclusion("panel-units-rule", "x", "A").takes(fault)
    board = a_board()
    with_query('up{job=~"$job"}')(board)
    (fault,) = faults_of(board)
    assert Exclusion("target-instance-rule", "x", "A", "B", "0").takes(fault)
    assert not Exclusion("target-instance-rule", "x", "A", "B", "1").takes(fault)
    assert not Exclusion("target-instance-rule", "x", "A", "C").takes(fault)


@pytest.mark.parametrize(
    "text",
    [
        "exclusions: {no-such-rule: {reason: x}}",
        "exclusions: {target-job-rule: {reasons: x}}",
        "exclusions: {target-job-rule: {entries: [{title: x}]}}",
        "exclusions: {target-job-rule: {entries: [{targetIdx: 1}]}}",
        "warnings: {target-job-rule: {reason: x}}",
    ],
)
def test_what_the_linter_would_not_read_is_refused(text: str) -> None:
    with pytest.raises(AssertionError):
        exclusions(text)


@each_board
def test_variables_lack_only_the_linters_labels(board: Json) -> None:
    """What is excluded of them is excluded for that alone, and the fleet has no hosts to choose."""
    found = [one for one in faults_of(board) if one.rule in {"template-job-rule", "template-instance-rule"}]
    said = {one.says for one in found if not one.says.startswith("label of the variable")}
    assert said == ({"there is no variable instance"} if board["uid"] == "llmhost-fleet" else set())


# What follows is ours.


def queries_of(board: Json) -> Iterator[str]:
    yield from (target["expr"] for _, _, target in targets_of(board))
    yield from (one["expr"] for one in board.get("annotations", {}).get("list", []))
    yield from (
        re.sub(r"^label_values\((.*?)(, *\w+)?\)$", r"\1", query_of(one)) for one in variables_of(board, "query")
    )


def not_there(expr: str) -> Iterator[str]:
    """Name metrics, labels and values of enums that neither the exporter has, nor the recordings, nor Prometheus."""
    expr = expr.replace('"$manager"', '"system"')  # what is chosen is one that there is
    asked_for = {one.name: one for one in selectors(expr)}
    others = {one for one in asked_for if one in RECORDED or one.startswith("ALERTS")}
    labels = frozenset[str]().union(*(RECORDED.get(one, OF_ALERTS) for one in others))
    known = {f"metric {one}" for one in others} | {f"label {one}" for one in labels}
    yield from dict.fromkeys(said for said in unknown_in(expr, catalogue()) if said not in known)
    yield from (f"metric {name}" for name in asked_for if ":" in name and name not in RECORDED)
    for name in asked_for.keys() & RECORDED.keys():
        yield from (f"label {one} of {name}" for one in asked_for[name].matchers if one not in RECORDED[name])


@each_board
def test_every_metric_label_and_value_exists(board: Json) -> None:
    assert [(expr, said) for expr in queries_of(board) for said in not_there(expr)] == []


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        ('llmhost_unit_stat{unit="x"}', "metric llmhost_unit_stat"),
        ('llmhost_unit_wanted{gpu="0"}', "label gpu of llmhost_unit_wanted"),
        ('llmhost_unit_active_state{state="activ"}', "value activ of state of llmhost_unit_active_state"),
        ("sum by (nothing) (llmhost_unit_wanted)", "label nothing"),
        ("cluster:llmhost_unit_wanted:max", "metric cluster:llmhost_unit_wanted:max"),
        ('cluster:llmhost_unit_wanted:sum{instance="x"}', "label instance of cluster:llmhost_unit_wanted:sum"),
        ("sum by (alertname) (llmhost_unit_wanted)", "label alertname"),
    ],
)
def test_what_does_not_exist_is_found(expr: str, said: str) -> None:
    assert list(not_there(expr)) == [said]


@each_board
def test_texts_name_metrics_that_exist(board: Json) -> None:
    texts = json.dumps([[one.get("description"), one.get("options", {}).get("content")] for one in panels_of(board)])
    assert set(re.findall(r"(?<![\w:])llmhost_\w+", texts)) - catalogue().keys() == set()


def raw(board: Json) -> set[str]:
    """Name what its panels ask for that is no recording, and no alert."""
    found = {one.name for _, _, target in targets_of(board) for one in selectors(target["expr"])}
    return {one for one in found if ":" not in one and not one.startswith("ALERTS")}


def test_the_board_of_the_fleet_asks_for_recordings_alone() -> None:
    assert raw(BOARDS["llmhost-fleet"]) == set()
    assert raw({"panels": [{"targets": [asked("sum(cluster:a:sum) + up")]}]}) == {"up"}


@each_board
def test_counters_stand_where_a_reset_does_no_harm(board: Json) -> None:
    found = [(expr, one) for expr in queries_of(board) for one in counters_out_of_place(expr)]
    assert [(expr, one) for expr, one in found if one != SHOWN_AS_IT_IS] == []


def test_a_counter_out_of_place_is_found() -> None:
    a, b = 'llmhost_a_total{x="1"}', 'llmhost_a_total{x="2"}'
    before = f"({a} offset 1m or min_over_time({a}[1m]))"
    seen = 'on (instance) llmhost_build_info{x=~"$x"} offset 1m'
    before_from_0 = f"({a} offset 1m or 0 * {a} and {seen} or min_over_time({a}[1m]))"
    for good in (
        f"sum(rate({a}[$__rate_interval]))",
        f"{a} - min_over_time({a}[1h])",
        f"sum({a} < {before} or {a} - {before})",
        f"sum({a} < {before_from_0} or {a} - {before_from_0})",
    ):
        assert counters_out_of_place(good) == []
    for bad in (
        a,
        f"sum(rate({a}[1m])) / {a}",
        f"delta({a}[1h])",
        f"{a} - min_over_time({b}[1h])",
        f"{a} - {before}",
        f"{a} < {before} or {a} - {before_from_0}",
        f"{a} < {before} or {a} - {before}".replace("[1m]", "[1h]"),
        f"{a} < {before} or {a} - {before}".replace(f"min_over_time({a}", f"min_over_time({b}"),
    ):
        assert set(counters_out_of_place(bad)) == {"llmhost_a_total"}, bad


@each_board
def test_what_counts_events_in_each_step_has_a_least_step(board: Json) -> None:
    """Else a drawing of a short time would count them over less than a scrape interval, and find none."""
    for _, _, target in targets_of(board):
        if any(one.range == "$__interval" for one in selectors(target["expr"])):
            assert target["interval"] == "1m"


@each_board
def test_every_unit_is_the_linters_or_ours(board: Json) -> None:
    units = re.findall(r'"(?:unit": |id": "unit", "value": )"([^"]+)"', json.dumps(list(panels_of(board))))
    assert units
    assert [one for one in units if one not in UNITS and not OWN_UNIT.fullmatch(one)] == []


def lost_labels(text: str, expr: str) -> set[str]:
    """Name labels that a legend shows and the query's answer does not have."""
    own: frozenset[str] = frozenset().union(*(_labels_of(one.name) for one in selectors(expr)))
    has = kept(expr) or [own]
    return {label for label in re.findall(r"\{\{ *(\w+) *\}\}", text) if any(label not in labels for labels in has)}


def _labels_of(name: str) -> frozenset[str]:
    families: Mapping[str, Any] = catalogue()
    of_it = frozenset(families[name].labels) if name in families else RECORDED.get(name, OF_ALERTS)
    return of_it | TARGET_LABELS


@each_board
def test_queries_keep_the_labels_that_legends_and_annotations_show(board: Json) -> None:
    shown = [(target.get("legendFormat", ""), target["expr"]) for _, _, target in targets_of(board)]
    shown += [(f"{one['titleFormat']} {one['textFormat']}", one["expr"]) for one in board["annotations"]["list"]]
    assert [(text, expr) for text, expr in shown if lost_labels(text, expr)] == []


@pytest.mark.parametrize(
    ("expr", "lost"),
    [
        ("sum by (unit) (llmhost_unit_wanted)", set()),
        ("sum(llmhost_unit_wanted) by (unit)", set()),
        ("sum by (unit) (a) or max by (gpu) (b)", {"unit"}),
        ("max by (gpu) (sum by (unit) (a))", {"unit"}),
        ("count(a) or 0 * count(b)", {"unit"}),
        ("sum by (unit) (a) > on (gpu) group_left () b", set()),
        ("sum by (unit) (a) unless on (gpu) sum by (gpu) (b)", set()),
        ("clamp_min((sum by (gpu) (a) and b), 0)", {"unit"}),
        ('2 * label_replace(sum by (gpu) (a), "unit", "$1", "gpu", "(.*)")', set()),
        ('llmhost_unit_wanted{x="count(", unit="a"}', set()),
        ("llmhost_gpu_up", {"unit"}),
    ],
)
def test_a_label_that_is_dropped_is_found(expr: str, lost: set[str]) -> None:
    assert lost_labels("{{unit}}", expr) == lost


@each_board
def test_queries_keep_the_labels_that_links_use(board: Json) -> None:
    """Of a table's queries one is enough: their rows are joined. A column that is taken out is not there for links."""
    for panel in panels_of(board):
        assert unknown_in_links(panel) == set(), panel["title"]


def unknown_in_links(panel: Json) -> set[str]:
    used = re.findall(r"\$\{__(?:data\.fields|field\.labels)(?:\.|\[\"?)(\w+)", json.dumps(panel).replace('\\"', '"'))
    transformed = [one["options"] for one in panel.get("transformations", [])]
    has = {name for one in transformed for name in one.get("renameByName", {}).values()}
    removed = {name for one in transformed for name, is_so in one.get("excludeByName", {}).items() if is_so}
    for target in panel.get("targets", []):
        answers = kept(target["expr"]) or [_labels_of(one.name) for one in selectors(target["expr"])]
        has |= frozenset[str]().union(*answers)
    return set(used) - (has - removed)


def test_a_link_to_a_label_that_is_dropped_is_found() -> None:
    panel = {"targets": [asked("sum by (unit) (a)")], "links": ["/d/x?${__field.labels.unit}&${__data.fields.gpu}"]}
    assert unknown_in_links(panel) == {"gpu"}
    panel["links"] = ['/d/x?${__data.fields["instance"]}']
    assert unknown_in_links(panel) == {"instance"}
    panel["links"] = ["/d/x?${__data.fields.unit}"]
    panel["transformations"] = [{"options": {"excludeByName": {"unit": True, "gpu": False}}}]
    assert unknown_in_links(panel) == {"unit"}
