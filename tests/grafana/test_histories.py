"""Written histories are such as the exporter, Prometheus and the alert rules would have made them."""

import pytest
from tests.alerts.expressions import metrics_in
from tests.alerts.label_values import unknown_values
from tests.alerts.rule_files import RECORDINGS, RULES, rules
from tests.fakes.backfilled import shared, without_name
from tests.grafana.boards import BOARDS, expressions
from tests.grafana.histories.index import HISTORIES
from tests.grafana.histories.series import OF_PROMETHEUS

from llmhost.metrics.catalog import FAMILIES

TARGET = ("cluster", "job", "instance")


@pytest.mark.parametrize("history", HISTORIES)
def test_every_series_has_the_labels_and_values_of_the_catalogue(history: str) -> None:
    for name, labels in HISTORIES[history]().series:
        if name in OF_PROMETHEUS:
            continue
        family = FAMILIES[name]
        values = dict(labels)
        assert values.keys() == {*family.labels, *TARGET}, name
        assert not unknown_values(name, {key: ("=", values[key]) for key in family.labels}), (name, labels)


def test_every_metric_of_boards_and_rules_is_in_a_history() -> None:
    wanted = {metric for board in BOARDS.values() for expr in expressions(board) for metric in metrics_in(expr)}
    wanted |= {metric for path in (RULES, RECORDINGS) for rule in rules(path) for metric in metrics_in(rule["expr"])}
    assert wanted - {name for make in HISTORIES.values() for name, _ in make().series} == set()


# Moments at which a rule that has a result has had one for as long as it waits.
@pytest.mark.parametrize(
    ("name", "second", "alerts"),
    [
        ("incident", 13_140, 9),
        ("incident", 21_600, 1),
        ("lost_gpu", 8_700, 4),
        ("lost_gpu", 14_400, 4),
        ("blind", 14_400, 3),
        ("absences", 7_200, 1),
        ("quiet", 36_060, 1),
        ("quiet", 86_400, 1),
        ("fleet", 21_540, 8),
    ],
)
def test_the_written_alerts_are_those_of_the_rules(name: str, second: int, alerts: int) -> None:
    prometheus = shared(name)
    # Templates are expanded by promtool's tests (alerts/tests), and are no part of the queries that are asked here.
    templates = {name for rule in rules() for name, value in rule["labels"].items() if "{{" in value}
    assert templates == {"memory"}

    def alert(**labels: str) -> tuple[tuple[str, str], ...]:
        return without_name({name: value for name, value in labels.items() if name not in templates})

    written = {alert(**series["metric"]) for series in prometheus.at(second, "ALERTS")}
    fired = {
        alert(**{**series["metric"], **rule["labels"], "alertname": rule["alert"], "alertstate": "firing"})
        for rule in rules()
        for series in prometheus.at(second, rule["expr"])
    }
    assert written == fired
    assert len(written) == alerts
