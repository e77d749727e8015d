"""Written histories are such as the exporter, Prometheus and the alert rules would have made them."""

import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from tests.alerts.label_values import unknown_values, values_of
from tests.alerts.rule_files import rules
from tests.fakes.backfilled import shared, without_name
from tests.grafana.histories.index import HISTORIES
from tests.grafana.histories.series import END, OF_PROMETHEUS, History, Labels

from llmhost.metrics.catalog import FAMILIES, Kind, Mode

HOSTS = Path(__file__).parents[1] / "hosts"
TARGET = ("cluster", "job", "instance")

Values = dict[tuple[str, Labels], list[float | None]]


@pytest.fixture(scope="module", params=HISTORIES)
def history(request: pytest.FixtureRequest) -> History:
    return HISTORIES[request.param]()


@pytest.fixture(scope="module")
def sampled(history: History) -> Values:
    return {(name, labels): values for name, labels, values in history.sampled(END - history.seconds)}


def test_every_series_has_the_labels_and_values_of_the_catalogue(history: History) -> None:
    for name, labels in history.series:
        if name in OF_PROMETHEUS:
            continue
        family = FAMILIES[name]
        told = dict(labels)
        assert told.keys() == {*family.labels, *TARGET}, name
        assert not unknown_values(name, {key: ("=", told[key]) for key in family.labels}), (name, labels)


def test_enums_are_whole_and_one_value_is_current(sampled: Values) -> None:
    shown: dict[tuple[str, Labels], dict[str, list[float | None]]] = defaultdict(dict)
    for (name, labels), values in sampled.items():
        if name in FAMILIES and FAMILIES[name].mode in {Mode.ALL, Mode.CURRENT}:
            last = FAMILIES[name].labels[-1]
            rest = tuple((key, value) for key, value in labels if key != last)
            shown[name, rest][dict(labels)[last]] = values
    assert shown
    for (name, rest), by_value in shown.items():
        family = FAMILIES[name]
        whole = (values_of(name, family.labels[-1]) or frozenset()) - {"none"}  # which is of orphans alone
        for at_once in zip(*by_value.values(), strict=True):
            there = [value for value in at_once if value is not None]
            if family.mode is Mode.CURRENT:
                assert len(there) <= 1, (name, rest)
                assert there in ([], [1]) or name.endswith("_timestamp_seconds"), (name, rest)
            else:
                assert by_value.keys() == whole, (name, rest)
                assert len(there) in {0, len(at_once)}, (name, rest)


def test_counters_never_fall_unless_an_engine_begins_anew(sampled: Values) -> None:
    for (name, labels), values in sampled.items():
        if name in FAMILIES and FAMILIES[name].kind is Kind.COUNTER:
            there = [value for value in values if value is not None]
            falls = sum(after < before for before, after in pairwise(there))
            gaps = sum(before is None and after is not None for before, after in pairwise(values))
            assert falls == 0 or (name.startswith("llmhost_engine_") and falls <= gaps), (name, labels)


def test_memory_adds_up_on_every_gpu(sampled: Values) -> None:
    by_gpu: dict[Labels, Mapping[str, list[list[float | None]]]] = defaultdict(lambda: defaultdict(list))
    for (name, labels), values in sampled.items():
        if name.startswith("llmhost_gpu_") and "_memory_" in name:
            by_gpu[tuple((key, value) for key, value in labels if key in {*TARGET, "uuid"})][name].append(values)
    for gpu, series in by_gpu.items():
        for number, total in enumerate(next(iter(series.get("llmhost_gpu_memory_total_bytes", [])), [])):

            def has(part: str, number: int = number, of: Mapping[str, list[list[float | None]]] = series) -> float:
                return sum(values[number] or 0 for values in of.get(f"llmhost_gpu_{part}", []))

            if total is not None and "llmhost_gpu_memory_used_bytes" in series:
                used = has("holder_memory_bytes") + has("unattributed_memory_bytes")
                assert used == has("memory_used_bytes"), (gpu, number)
                assert used + has("memory_free_bytes") + has("memory_reserved_bytes") == total, (gpu, number)
                assert has("memory_free_bytes") > 0, (gpu, number)


def test_a_host_that_is_not_scraped_has_nothing_but_up(sampled: Values) -> None:
    up = {labels: values for (name, labels), values in sampled.items() if name == "up"}
    for (name, labels), values in sampled.items():
        if name not in OF_PROMETHEUS:
            target = up[tuple((key, value) for key, value in labels if key in TARGET)]
            assert not any(value is not None for value, seen in zip(values, target, strict=True) if not seen), name


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
