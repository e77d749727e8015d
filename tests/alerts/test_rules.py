"""Alert rules: promtool accepts and tests them, each is explained, and each of their clauses is there for a reason."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.alerts.expressions import catalogue, unknown_in
from tests.fakes.needs import needs

ALERTS = Path(__file__).parents[2] / "alerts"
RULES = ALERTS / "llmhost.rules.yml"
TESTS = sorted((ALERTS / "tests").glob("*.test.yml"))
RUNBOOK = "https://github.com/llmhost/llmhost/blob/main/alerts/README.md#"

# Clauses of the rules, what each becomes, and the tests that must fail then.
NEVER = "vector(0) > 1"
UNIT = "on (cluster, job, instance, unit, manager)"
WAITING = 'max_over_time(llmhost_unit_sub_state{state=~"auto-restart.*|(failed|dead)-before-auto-restart"}[5m]) == 1'
CHANGES = {
    "restart_loop": [
        ("[30m])) >= 3", "[30m])) >= 2"),
        ("[30m])) >= 3", "[20m])) >= 3"),
        ("keep_firing_for: 15m", "keep_firing_for: 60m"),
        (
            '{state="failed"} == 1\n            )\n          unless',
            '{state="failed"} == 7\n            )\n          unless',
        ),
        ("(llmhost_unit_nrestarts) >= 3", "(llmhost_unit_nrestarts) >= 0"),
        (f"unless {UNIT}\n            llmhost_unit_wanted == 0", f"unless on () ({NEVER})"),
        ("[3h])) >= 4", "[3h])) >= 3"),
        ("[3h])) >= 4", "[1h])) >= 4"),
        ("[1h])) >= 0.5", "[3h])) >= 0.5"),
        ("for: 5m\n        keep", "for: 1m\n        keep"),
        (") > 0.5", ") > 0.15"),
        ("llmhost_unit_nrestarts offset 30m", "llmhost_unit_nrestarts"),
        ("increase(llmhost_unit_nrestarts[30m]) >= 3\n              or", f"{NEVER}\n              or"),
    ],
    "resident_memory": [
        ('kind=~"leftover|orphan|gone"}\n                      or', 'kind=~"leftover|gone"}\n                      or'),
        ('kind=~"leftover|orphan|gone"}\n                      or', 'kind!="x"}\n                      or'),
        ('kind!~"current|system"}', 'kind!~"current"}'),
        ("or\n                        llmhost_gpu_unattributed_memory_bytes", "or vector(0)"),
        ("llmhost_unit_startable == 0", "llmhost_unit_startable >= 0"),
        ("> on (cluster, job, instance) group_left ()", ">= on (cluster, job, instance) group_left ()"),
        (', unit!=""}\n                ) >', ', unit="-"}\n                ) >'),
        ("max by (cluster, job, instance, unit, manager, gpu, uuid) (\n                (", "(\n                ("),
        ('max_over_time(llmhost_unit_active_state{state=~"inactive|failed"}[5m]) == 1', NEVER),
        (WAITING, NEVER),
        ("llmhost_unit_wanted == 1\n        for: 3m", "llmhost_unit_wanted >= 0\n        for: 3m"),
        ("for: 3m", "for: 2m"),
        ("for: 3m", "for: 4m"),
    ],
    "gpu_lost": [
        ("expected - llmhost_gpus > 0", "expected - llmhost_gpus > 2"),
        ("expected - llmhost_gpus > 0", "expected - llmhost_gpus != 0"),
        ("unless on (cluster, job, instance)\n                llmhost_gpu_up == 0", f"unless on () ({NEVER})"),
    ],
    "exporter": [
        ("disabled|released", "disabled"),
        ("disabled|released", "released"),
        ('expr: up{job="llmhost"} == 0', "expr: up == 0"),
        ('absent(up{job="llmhost"})', "absent(up)"),
    ],
}


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([needs("promtool"), *arguments], capture_output=True, text=True, check=False)


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def alert_cases() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """(alert, what should fire) of every case in the tests."""
    for file in TESTS:
        for test in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]:
            for case in test["alert_rule_test"]:
                yield case["alertname"], case.get("exp_alerts", [])


def test_promtool_accepts_the_rules() -> None:
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_promtool_accepts_the_example_configuration() -> None:
    checked = promtool("check", "config", ALERTS / "prometheus.example.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "1 rule files found" in checked.stdout


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.name)
def test_the_alerts_fire_when_they_should_and_only_then(file: Path) -> None:
    tested = promtool("test", "rules", file)
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize(
    ("name", "clause", "instead"), [(name, *change) for name, changes in CHANGES.items() for change in changes]
)
def test_the_tests_notice_when_a_clause_is_changed(name: str, clause: str, instead: str, tmp_path: Path) -> None:
    text = RULES.read_text(encoding="utf-8")
    assert clause in text
    (tmp_path / "tests").mkdir()
    test = shutil.copy(ALERTS / f"tests/{name}.test.yml", tmp_path / "tests")
    (tmp_path / RULES.name).write_text(text.replace(clause, instead), encoding="utf-8")
    assert promtool("check", "rules", tmp_path / RULES.name).returncode == 0
    assert promtool("test", "rules", test).returncode == 1


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_every_alert_is_explained_and_tested_both_ways(rule: dict[str, Any]) -> None:
    name, severity = rule["alert"], rule["labels"]["severity"]
    assert name.startswith("Llmhost")
    assert severity in {"critical", "warning", "info"}
    assert set(rule["labels"]) == {"severity"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert "{{" not in rule["annotations"]["summary"]
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["runbook_url"] == RUNBOOK + name.lower()
    assert f"\n## {name}\n" in (ALERTS / "README.md").read_text(encoding="utf-8")
    cases = [
        any(one["exp_labels"]["severity"] == severity for one in expected)
        for alert, expected in alert_cases()
        if alert == name
    ]
    assert True in cases, "no case in which it fires"
    assert False in cases, "no case in which it does not fire"


def test_the_tests_name_no_alert_that_does_not_exist() -> None:
    assert {alert for alert, _ in alert_cases()} == {rule["alert"] for rule in rules()}


def test_every_metric_and_label_in_the_rules_is_exported() -> None:
    families = catalogue()
    assert [(rule["alert"], what) for rule in rules() for what in unknown_in(rule["expr"], families)] == []


def test_every_metric_and_label_in_the_tests_of_the_rules_is_exported() -> None:
    families = catalogue()
    selectors = {
        series["series"]
        for file in TESTS
        for test in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]
        for series in test["input_series"]
    }
    told = [
        (selector, what)
        for selector in selectors
        for what in unknown_in(selector, families)
        if "label rack" not in what
    ]
    assert told == []


def test_the_runbook_speaks_of_existing_metrics() -> None:
    families = catalogue()
    told = re.findall(r"`(llmhost_[a-z0-9_]+)[`{]", (ALERTS / "README.md").read_text(encoding="utf-8"))
    assert [metric for metric in told if metric not in families] == []
