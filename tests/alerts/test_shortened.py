"""The shortening of the rules by which hours pass in minutes, in end-to-end tests and the demo."""

import re
from pathlib import Path

import pytest
import yaml
from tests.alerts.rule_files import RECORDINGS, RULES, rules
from tests.fakes.monitoring import shortened_rules, shorter, shorter_expression


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
        ("time() - a\n  > 900 and c > 900", "time() - a\n  > 90 and c > 900"),
        ("time() - (a or b) > on (d) c", "time() - (a or b) > on (d) c"),
        ("predict_linear(a[1h], 4 * 3600) > 5", "predict_linear(a[360000ms], (4 * 3600) / 10) > 5"),
    ],
)
def test_an_expression_has_its_durations_divided_and_no_other_number(expression: str, divided: str) -> None:
    assert shorter_expression(expression, 10) == divided


# Numbers of the rules that are no times. A new one that is 20 or more stands here, or is shortened.
NO_TIMES = {"160", "240", "1024"}  # MiB
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?[a-z]*(?![\w.])")


def _may_be_times(expression: str) -> set[str]:
    numbers = set(_NUMBER.findall(re.sub(r'"[^"]*"', "", expression))) - NO_TIMES
    return {number for number in numbers if number[-1].isalpha() or float(number) >= 20}


def _unchanged(whole: str, by: int) -> set[str]:
    """Name the numbers that may be times, and are in the expression as they were. What is `(…) / by` is divided."""
    return _may_be_times(whole) & _may_be_times(re.sub(rf"\([\d *]+\) / {by}\b", "", shorter_expression(whole, by)))


@pytest.mark.parametrize("path", [RULES, RECORDINGS], ids=lambda path: path.name)
def test_no_duration_of_the_rules_is_left_as_it_was(path: Path) -> None:
    assert {number for rule in rules(path) for number in _unchanged(rule["expr"], 7)} == set()
    shortened = [
        rule for group in yaml.safe_load(shortened_rules(path.read_text(), 7))["groups"] for rule in group["rules"]
    ]
    for rule, short in zip(rules(path), shortened, strict=True):
        assert short["expr"] == shorter_expression(rule["expr"], 7)
        for key in {"for", "keep_firing_for"} & rule.keys():
            assert short[key] == shorter(rule[key], 7)


def test_a_duration_that_is_left_as_it_was_is_found() -> None:
    assert _unchanged("a_seconds > 600 and time() - a < 600", 7) == {"600"}
    assert _unchanged("rate(a[5m]) > 20", 7) == {"20"}
    assert _unchanged("rate(a[5m]) > 19 and time() - a < 600 and a > 1024 * 160", 7) == set()
