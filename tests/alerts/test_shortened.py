"""What end-to-end tests and the demo do to the rules so that hours pass in minutes."""

import re
from pathlib import Path

import pytest
import yaml
from tests.fakes.monitoring import shortened_rules, shorter, shorter_expression

RULES = Path(__file__).parents[2] / "alerts" / "llmhost.rules.yml"


@pytest.mark.parametrize(
    ("duration", "divided"), [("30m", "60000ms"), ("1h30m", "180000ms"), ("15s", "500ms"), ("0", "0ms")]
)
def test_a_duration_is_divided(duration: str, divided: str) -> None:
    assert shorter(duration, 30) == divided


@pytest.mark.parametrize(
    ("expression", "divided"),
    [
        ("increase(a[10m]) > 3", "increase(a[60000ms]) > 3"),
        ("max_over_time(a[1h:30s]) == 1", "max_over_time(a[360000ms:3000ms]) == 1"),
        ("a - a offset 20m", "a - a offset 120000ms"),
        ('time() - a{b!~"11|13"} < 3600', 'time() - a{b!~"11|13"} < 360'),
        ("time() - (a or b) > c", "time() - (a or b) > c"),
        ("predict_linear(a[1h], 4 * 3600) > 5", "predict_linear(a[360000ms], (4 * 3600) / 10) > 5"),
    ],
)
def test_an_expression_has_its_durations_divided_and_no_other_number(expression: str, divided: str) -> None:
    assert shorter_expression(expression, 10) == divided


def test_no_duration_of_the_rules_is_left_as_it_was() -> None:
    text = shortened_rules(RULES.read_text(), 30)
    for group in yaml.safe_load(text)["groups"]:
        for rule in group["rules"]:
            without_labels = re.sub(r"\{[^}]*\}", "", rule["expr"])
            assert not re.search(r"\d[smhdwy]\b", without_labels.replace("ms", "")), rule["expr"]
            numbers = {int(one) for one in re.findall(r"< (\d+)(?![\d.])", without_labels) if "time()" in rule["expr"]}
            assert not numbers & {900, 1800, 3600}, rule["expr"]
