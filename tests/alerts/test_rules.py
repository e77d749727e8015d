"""Alert rules: promtool accepts and tests them, each is explained, and each of their clauses is there for a reason."""

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.alerts.changes import CHANGES
from tests.alerts.rule_files import (
    ALERTS,
    RECORDINGS,
    RULES,
    RUNBOOK,
    TESTS,
    cases_of,
    changed,
    expected_alerts,
    promtool,
    rules,
    silent_hosts,
    source_of,
    write_alone,
)

RUNBOOK_URL = "https://github.com/llmhost/llmhost/blob/main/alerts/README.md#"
NAMES = sorted({rule["alert"] for rule in rules()})


def test_promtool_accepts_the_rules() -> None:
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES, RECORDINGS)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_promtool_accepts_the_example_configuration() -> None:
    checked = promtool("check", "config", ALERTS / "prometheus.example.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "2 rule files found" in checked.stdout


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.name)
def test_the_alerts_fire_when_they_should_and_only_then(file: Path) -> None:
    tested = promtool("test", "rules", file)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def _unnoticed(name: str, folder: Path) -> list[str]:
    """Name the changes of the alert's clauses that its tests do not notice."""
    text, tests, found = source_of(name), cases_of(name), []
    assert not _fails(text, tests, folder / name / "as it is"), f"{name} by itself fails its tests"
    for number, change in enumerate(CHANGES[name]):
        clause, instead, which = (*change, None)[:3]
        if not _fails(changed(text, clause, instead, which), tests, folder / name / str(number)):
            found.append(f"{clause!r} → {instead!r} ({which})")
    return found


def _fails(rule: str, tests: Mapping[str, str], folder: Path) -> bool:
    return any(promtool("test", "rules", file).returncode != 0 for file in write_alone(rule, tests, folder))


def test_the_tests_notice_when_a_clause_is_changed(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(CHANGES, pool.map(lambda name: _unnoticed(name, tmp_path), CHANGES), strict=True))
    assert {name: changes for name, changes in found.items() if changes} == {}
    # What is no PromQL fails too, and would prove nothing.
    checked = promtool("check", "rules", *tmp_path.rglob(RULES.name))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_alert_has_clauses_that_are_changed() -> None:
    assert sorted(CHANGES) == NAMES


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_every_alert_is_explained_and_tested_both_ways(rule: dict[str, Any]) -> None:
    name, severity = rule["alert"], rule["labels"]["severity"]
    assert rule["annotations"]["runbook_url"] == RUNBOOK_URL + name.lower()
    assert RUNBOOK.read_text(encoding="utf-8").count(f"\n### {name}\n") == 1
    assert severity in {labels["severity"] for labels in expected_alerts(name)}, "no case in which it fires"
    if name != "LlmhostWatchdog":
        assert silent_hosts(name), "no case in which it does not fire"


def test_each_alert_s_place_in_the_runbook_says_all_that_it_should() -> None:
    """Its meaning and certainty, checks, remedies, false alarms, tuning."""
    sections = re.split(r"(?m)^##+ ", RUNBOOK.read_text(encoding="utf-8"))
    found = {section.partition("\n")[0]: section for section in sections}
    lacking = {
        (name, part)
        for name in NAMES
        for part in ("**Sure?**", "**Look**", "**Do**", "**False alarm**", "**Tune**")
        if part not in found[name]
    }
    assert lacking == set()
    headings = {name for name in found if name.startswith("Llmhost")}
    assert headings == set(NAMES), "the runbook explains what is not there"
