"""Written histories are such as the exporter, Prometheus and the alert rules would have made them."""

import re
from collections import defaultdict
from pathlib import Path

import pytest
from tests.alerts.label_values import unknown_values
from tests.alerts.rule_files import rules
from tests.fakes.backfilled import shared, without_name
from tests.grafana.histories.index import HISTORIES
from tests.grafana.histories.series import END, OF_PROMETHEUS, History

from llmhost.metrics.catalog import FAMILIES

HOSTS = Path(__file__).parents[1] / "hosts"
TARGET = ("cluster", "job", "instance")


@pytest.fixture(scope="module", params=HISTORIES)
def history(request: pytest.FixtureRequest) -> History:
    return HISTORIES[request.param]()


def test_every_series_has_the_labels_and_values_of_the_catalogue(history: History) -> None:
    for name, labels in history.series:
        if name in OF_PROMETHEUS:
            continue
        family = FAMILIES[name]
        values = dict(labels)
        assert values.keys() == {*family.labels, *TARGET}, name
        assert not unknown_values(name, {key: ("=", values[key]) for key in family.labels}), (name, labels)


def test_memory_adds_up_on_every_gpu(history: History) -> None:
    by_gpu: dict[tuple[str, ...], dict[str, list[list[float | None]]]] = defaultdict(lambda: defaultdict(list))
    for name, labels, values in history.sampled(END - history.seconds):
        if name.startswith("llmhost_gpu_") and "_memory_" in name:
            gpu = tuple(value for key, value in labels if key in {*TARGET, "uuid"})
            by_gpu[gpu][name.removeprefix("llmhost_gpu_")].append(values)
    for gpu, series in by_gpu.items():
        for number, used in enumerate(next(iter(series["memory_used_bytes"]), [])):
            parts = {part: sum(values[number] or 0 for values in several) for part, several in series.items()}
            if used is not None:
                assert used == parts.get("holder_memory_bytes", 0) + parts["unattributed_memory_bytes"], (gpu, number)
                rest = parts["memory_free_bytes"] + parts["memory_reserved_bytes"]
                assert used + rest == parts.get("memory_total_bytes", used + rest), (gpu, number)


def test_every_metric_of_the_catalogue_is_in_a_history_and_the_pages_of_real_exporters_in_the_incident() -> None:
    incident = {name for name, _ in HISTORIES["incident"]().series}
    anywhere = {name for make in HISTORIES.values() for name, _ in make().series}
    assert anywhere == {*FAMILIES, *OF_PROMETHEUS}
    for host in ("incident", "engine-vllm-tp1"):
        page = (HOSTS / host / "expected" / "metrics.prom").read_text(encoding="utf-8")
        on_page = set(re.findall(r"^# TYPE (llmhost_\w+)", page, re.MULTILINE))
        assert len(on_page) > 40
        assert on_page <= incident


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
    written = {without_name(series["metric"]) for series in prometheus.at(second, "ALERTS")}
    fired = {
        without_name({**series["metric"], **rule["labels"], "alertname": rule["alert"], "alertstate": "firing"})
        for rule in rules()
        for series in prometheus.at(second, rule["expr"])
    }
    assert written == fired
    assert len(written) == alerts
