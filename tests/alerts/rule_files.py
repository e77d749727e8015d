"""The rule files and their tests, read; and an alert by itself, with or without a clause changed."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from tests.fakes.needs import needs

ALERTS = Path(__file__).parents[2] / "alerts"
RULES = ALERTS / "llmhost.rules.yml"
RECORDINGS = ALERTS / "llmhost.recording.rules.yml"
RUNBOOK = ALERTS / "README.md"
TESTS = sorted((ALERTS / "tests").glob("*.test.yml"))
_ASKS = re.compile(r'ALERTS\{alertname="(\w+)",alertstate="firing"\}')


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it, with its garbage collected seldom, which saves a fifth of its time."""
    environment = os.environ | {"GOGC": "800"}
    return subprocess.run([needs("promtool"), *arguments], capture_output=True, text=True, check=False, env=environment)


@cache
def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def groups(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _read(path)["groups"]
    return found


def rules(path: Path = RULES) -> list[dict[str, Any]]:
    return [rule for group in groups(path) for rule in group["rules"]]


def read_tests(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _read(path)["tests"]
    return found


def alert_of(case: dict[str, Any]) -> str | None:
    """Return the alert whose firing hosts a case with an expression asks for."""
    found = _ASKS.search(case["expr"])
    return found[1] if found else None


def expected_alerts(name: str) -> Iterator[dict[str, str]]:
    """Give the labels of each alert of this name that a test expects, with its severity."""
    for path in TESTS:
        for test in read_tests(path):
            for case in test.get("alert_rule_test", []):
                if case["alertname"] == name:
                    yield from (alert["exp_labels"] for alert in case.get("exp_alerts", []))


def silent_hosts(name: str) -> set[str]:
    """Name the hosts of tests on which the alert does not fire at a time at which they ask."""
    found = set()
    for path in TESTS:
        for test in read_tests(path):
            hosts = set(
                re.findall(r'instance="([^"]+)"', " ".join(series["series"] for series in test["input_series"]))
            )
            for case in test.get("promql_expr_test", []):
                if alert_of(case) == name:
                    fires = " ".join(sample["labels"] for sample in case.get("exp_samples", []))
                    found |= {host for host in hosts if f'instance="{host}"' not in fires}
    return found


def source_of(name: str) -> str:
    """Return the text of the alert's rules in the file."""
    parts = re.split(r"(?m)^(?=      - alert: |  - name: )", RULES.read_text(encoding="utf-8"))
    return "".join(part for part in parts if re.match(rf"      - alert: {name}\n", part))


def changed(text: str, clause: str, instead: str, which: int | None) -> str:
    """Put the one in place of the other: everywhere, or at the place of that number."""
    places = text.split(clause)
    assert len(places) > (which or 0) + 1, f"there is no {clause}"
    if which is None:
        return text.replace(clause, instead)
    return clause.join(places[: which + 1]) + instead + clause.join(places[which + 1 :])


def cases_of(name: str) -> dict[str, str]:
    """Return the tests that are about this alert, each as a file of its own: file → text, the shortest first."""
    found = {}
    for path in TESTS:
        for number, test in enumerate(read_tests(path)):
            fires = [case for case in test.get("alert_rule_test", []) if case["alertname"] == name]
            asks = [case for case in test.get("promql_expr_test", []) if alert_of(case) == name]
            if fires or asks:
                alone = test | {"alert_rule_test": fires, "promql_expr_test": asks}
                text = json.dumps(_read(path) | {"tests": [alone]})  # JSON is YAML, and is written faster
                found[f"{number}.{path.name}"] = text
    return dict(sorted(found.items(), key=lambda file: len(file[1])))


def write_alone(rule: str, tests: Mapping[str, str], folder: Path) -> list[Path]:
    """Write the text of an alert's rules, and its tests beside it."""
    (folder / "tests").mkdir(parents=True)
    (folder / RULES.name).write_text(f"groups:\n  - name: alone\n    rules:\n{rule}", encoding="utf-8")
    for name, text in tests.items():
        (folder / "tests" / name).write_text(text, encoding="utf-8")
    return [folder / "tests" / name for name in tests]
