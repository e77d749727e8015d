"""Checks of the rules that promtool does not make: those of pint that matter here, and ours."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.alerts.expressions import catalogue, metrics_in, unknown_in
from tests.alerts.rule_files import RECORDINGS, RULES, RUNBOOK, TESTS, expected_alerts, groups, read_tests, rules

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DASHBOARD = re.compile(
    r"https://grafana\.example\.com/d/(llmhost-fleet$|llmhost-(host|incident)\?var-cluster=.+&var-job=.+&var-instance=.+)"
)
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
# Labels that a level of a recording stands for, beside cluster and job.
_LEVELS = {
    "cluster": set(),
    "instance": {"instance"},
    "unit": {"unit", "manager"},
    "gpu": {"gpu", "uuid"},
    "model": {"model"},
    "kind": {"kind"},
}

ALL = [*rules(RULES), *rules(RECORDINGS)]

# Labels by which alertmanager.example.yml inhibits: one of a few words each.
WORDED = {"LlmhostRestartLoop": ("memory",)}


def _name(rule: dict[str, Any]) -> str:
    return str(rule.get("alert") or rule["record"])


def every_rule(function: Any) -> Any:  # noqa: ANN401 - a decorator of pytest's
    return pytest.mark.parametrize("rule", ALL, ids=_name)(function)


def every_alert(function: Any) -> Any:  # noqa: ANN401
    return pytest.mark.parametrize("rule", rules(), ids=_name)(function)


def seconds(duration: str) -> int:
    return sum(int(number) * _SECONDS[unit] for number, unit in re.findall(r"(\d+)([smhd])", duration))


@every_rule
def test_it_asks_for_what_the_exporter_has(rule: dict[str, Any]) -> None:
    recorded = {recording["record"] for recording in rules(RECORDINGS)}
    named = set(re.findall(r"\b\w+:\w+:\w+\b", rule["expr"]))
    assert named <= recorded
    assert "alert" not in rule or not named, "alerts do with their own file"
    if not named:
        assert list(unknown_in(rule["expr"], catalogue())) == []


@every_rule
def test_it_keeps_cluster_job_and_instance(rule: dict[str, Any]) -> None:
    kept = re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"])
    whole = not _name(rule).startswith("cluster")
    assert [
        labels for labels in kept if not labels.startswith("cluster, job, instance" if whole else "cluster, job")
    ] == []


@every_rule
def test_it_takes_no_shape_that_breaks_later(rule: dict[str, Any]) -> None:
    """promql/fragile, and clauses that drop or keep labels by accident."""
    assert re.findall(r"\b(topk|bottomk|count_values|without|ignoring|irate|holt_winters)\b", rule["expr"]) == []


def counters_out_of_place(expr: str) -> Iterator[str]:
    """Give the counters that stand neither in a rate nor in a shape that is as safe, and exact.

    These are `c - min_over_time(c[w])`, and a sum that equals what it last was when something held: one that was set
    back since does not.
    """
    selector = r"llmhost_\w+_total(?!\w)(?:\{[^}]*\})?"
    rest = re.sub(rf"\b(?:rate|increase)\({selector}\[\w+\]\)", "", expr)
    rest = re.sub(rf"({selector})\s+-\s+min_over_time\(\1\[\w+\]\)", "", rest)
    total = rf"sum by \([^)]*\) \({selector}\)"
    rest = re.sub(rf"({total})\s+==\s+last_over_time\(\s*\(\s*\1\s+and\b", "", rest)
    yield from re.findall(selector, rest)


@every_rule
def test_counters_stand_where_a_reset_does_no_harm(rule: dict[str, Any]) -> None:
    assert list(counters_out_of_place(rule["expr"])) == []


def test_a_counter_out_of_place_is_found() -> None:
    assert list(counters_out_of_place("llmhost_a_total > 0")) == ["llmhost_a_total"]
    other = 'llmhost_a_total{b="c"} - min_over_time(llmhost_a_total{b="d"}[5m])'
    assert list(counters_out_of_place(other)) == ['llmhost_a_total{b="c"}', 'llmhost_a_total{b="d"}']
    assert list(counters_out_of_place("sum(rate(llmhost_a_total[5m])) + delta(llmhost_a_total[5m])")) == [
        "llmhost_a_total"
    ]
    was = "sum by (b) (llmhost_a_total) {} last_over_time((sum by (b) (llmhost_a_total) and c)[1h:1m])"
    assert list(counters_out_of_place(was.format("=="))) == []
    assert list(counters_out_of_place(was.format("<="))) == ["llmhost_a_total"] * 2


@every_rule
def test_its_ranges_hold_four_scrapes_a_minute_apart_and_stay_within_a_day(rule: dict[str, Any]) -> None:
    ranges = [seconds(text) for text in re.findall(r"\[(\w+)\]", rule["expr"])]
    assert [length for length in ranges if not 240 <= length <= 86_400] == []


@every_rule
def test_its_patterns_are_patterns_and_have_no_anchors(rule: dict[str, Any]) -> None:
    for pattern in re.findall(r'[=!]~"([^"]*)"', rule["expr"]):
        assert re.search(r"[|.*+?\[(]", pattern), pattern
        assert not re.search(r"^\^|\$$", pattern), pattern


def test_groups_are_evaluated_often_enough_for_their_series_not_to_go_stale() -> None:
    for path in (RULES, RECORDINGS):
        assert [group["name"] for group in groups(path) if not 15 <= seconds(group["interval"]) <= 300] == []


@every_alert
def test_an_alert_compares(rule: dict[str, Any]) -> None:
    """alerts/comparison: one that does not would fire as long as there is a series. Some series are there only then."""
    current = "start-pre" in rule["expr"] or 'verdict="fault"' in rule["expr"]
    assert current or re.search(r"==|!=|[<>]|\babsent\(|\bvector\(1\)", _TEXT.sub("", rule["expr"]))


@every_alert
def test_an_alert_says_all_that_it_should_and_no_label_has_a_value_in_it(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"Llmhost([A-Z][a-z]+)+", rule["alert"])
    assert set(rule["labels"]) == {"severity", *WORDED.get(rule["alert"], ())}
    assert not re.search(r"\$value|\| value", " ".join(rule["labels"].values()))
    assert rule["labels"]["severity"] in (
        {"none"} if rule["alert"] == "LlmhostWatchdog" else {"critical", "warning", "info"}
    )
    annotations = rule["annotations"]
    assert set(annotations) == {"summary", "description", "runbook_url", "dashboard_url"}
    assert "{{" not in annotations["summary"]
    assert annotations["summary"].endswith(".")
    assert _DASHBOARD.match(annotations["dashboard_url"])
    if rule["alert"] not in {"LlmhostWatchdog", "LlmhostXidFatal"}:
        assert "Next:" in annotations["description"] or "https://" in annotations["description"]


@every_alert
def test_an_alert_names_labels_that_it_has(rule: dict[str, Any]) -> None:
    """alerts/template: those with which the tests see it fire."""
    texts = " ".join(rule["annotations"].values())
    has = {label for labels in expected_alerts(rule["alert"]) for label in labels}
    assert set(re.findall(r"\$labels\.(\w+)", texts)) - has == set()


@every_alert
def test_what_an_alert_says_is_asked_of_series_that_exist(rule: dict[str, Any]) -> None:
    """Labels are quoted for PromQL by %q: systemd escapes with backslashes."""
    texts = " ".join(rule["annotations"].values())
    assert metrics_in(texts) - catalogue().keys() == set()
    queries = re.findall(r'(?:query \(|:= )printf "((?:[^"\\]|\\.)*)"', texts)
    assert [query for query in queries if re.search(r'="\{\{|=\\"%s', query)] == []


def test_critical_alerts_are_few_enough_to_be_read_at_night() -> None:
    assert len({rule["alert"] for rule in rules() if rule["labels"]["severity"] == "critical"}) <= 9


@pytest.mark.parametrize("rule", rules(RECORDINGS), ids=_name)
def test_a_recording_is_named_by_its_level_metric_and_operation(rule: dict[str, Any]) -> None:
    level, metric, operation = rule["record"].split(":")
    assert re.fullmatch(r"llmhost_[a-z_]+(?<!_total)", metric)
    assert re.fullmatch(r"sum|max|code|bool|rate5m|delta1h", operation)
    kept = re.search(r"\bby \(([^)]*)\)", rule["expr"])
    assert kept
    wanted = {"cluster", "job"}.union(*(_LEVELS[part] for part in level.split("_")))
    if level != "cluster" and not level.startswith("cluster_"):
        wanted |= {"instance"}
    assert set(kept[1].split(", ")) == wanted


def test_each_recording_is_tested() -> None:
    """By itself, or by one that is made of it."""
    queries = [case["expr"] for path in TESTS for test in read_tests(path) for case in test.get("promql_expr_test", [])]
    used = " ".join(queries + [rule["expr"] for rule in rules(RECORDINGS)])
    assert [rule["record"] for rule in rules(RECORDINGS) if rule["record"] not in used] == []


def test_every_metric_and_label_in_the_tests_of_the_rules_is_exported() -> None:
    series = {given["series"] for path in TESTS for test in read_tests(path) for given in test["input_series"]}
    assert [(name, unknown) for name in series for unknown in unknown_in(name, catalogue())] == []


def test_the_tests_name_no_alert_that_does_not_exist() -> None:
    named = {
        name
        for path in TESTS
        for name in re.findall(r'(?:alertname: |alertname=")(\w+)', path.read_text(encoding="utf-8"))
    }
    assert named == {rule["alert"] for rule in rules()}


def test_the_runbook_speaks_of_existing_metrics() -> None:
    named = re.findall(r"`(llmhost_[a-z0-9_]+)[`{]", RUNBOOK.read_text(encoding="utf-8"))
    assert [metric for metric in named if metric not in catalogue() and not metric.startswith("llmhost_policy_")] == []
