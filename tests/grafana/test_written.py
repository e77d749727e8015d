"""Written histories are such as the exporter, Prometheus and the rules would have made them."""

import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.alerts.label_values import unknown_values, values_of
from tests.fakes.backfilled import Backfilled, rules, shared, without_name
from tests.grafana.written.firing import firing, with_a_result
from tests.grafana.written.histories import HISTORIES
from tests.grafana.written.incident import EMBED, GLM
from tests.grafana.written.series import END, OF_PROMETHEUS, History, Labels

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


@pytest.mark.parametrize("name", ["incident", "lost_gpu", "blind", "absences"])
def test_the_alerts_that_are_written_down_are_those_that_the_rules_fire(name: str) -> None:
    prometheus = shared(name)
    history, began = prometheus.history, prometheus.began
    active = {
        (without_name(one["metric"]), float(at)): round(float(since) - began)
        for one in prometheus.over(0, history.seconds, history.every, "ALERTS_FOR_STATE")
        for at, since in one["values"]
    }
    written: dict[Labels, dict[int, int]] = {}
    for one in prometheus.over(0, history.seconds, history.every, "ALERTS"):
        labels = without_name(one["metric"])
        plain = tuple(label for label in labels if label[0] != "alertstate")
        written[labels] = {round(float(at) - began): active[plain, float(at)] for at, _ in one["values"]}
    fires = firing(prometheus)
    assert _spans(written) == _spans(fires)
    assert written == fires


def _spans(found: Mapping[Labels, Mapping[int, int]]) -> dict[Labels, tuple[int, int, int]]:
    """Give first and last second at which each fires, and since when it was active first: legible where they differ."""
    return {labels: (min(seconds), max(seconds), min(seconds.values())) for labels, seconds in found.items()}


# Where a rule has a result now, it has had one for longer than it waits, and will have.
@pytest.mark.parametrize(
    ("name", "second", "alerts"),
    [
        *(("quiet", second, 1) for second in (0, 35_940, 36_000, 36_060, 36_420, 40_000, 86_400)),
        ("fleet", 7_140, 1),
        ("fleet", 9_060, 6),
        ("fleet", 21_540, 8),
    ],
)
def test_at_settled_moments_the_alerts_are_those_whose_rules_have_a_result(name: str, second: int, alerts: int) -> None:
    prometheus = shared(name)
    written = {without_name(one["metric"]) for one in prometheus.at(second, "ALERTS")}
    assert len(written) == alerts
    assert written == with_a_result(prometheus, second)


# History, second, query, value.
KNOWN = (
    ("incident", 9000, f'sum(llmhost_gpu_holder_memory_bytes{{kind="current",unit="{GLM}"}})', 720e9),
    ("incident", 9000, f'rate(llmhost_engine_generation_tokens_total{{unit="{GLM}"}}[5m])', 1500),
    ("incident", 9000, f'rate(llmhost_engine_prompt_tokens_total{{unit="{EMBED}"}}[5m])', 900),
    ("incident", 11400, 'sum(llmhost_gpu_holder_memory_bytes{kind="leftover"})', 630e9),
    ("incident", 11400, 'sum(llmhost_gpu_holder_memory_bytes{kind="orphan"})', 4e9),
    ("incident", 11400, 'llmhost_gpu_unattributed_memory_bytes{gpu="6"}', 90e9),
    ("incident", 11400, 'llmhost_gpu_memory_free_bytes{gpu="0"}', 102_625_181_696 - 652_214_272 - 92e9),
    ("incident", 13200, 'llmhost_unit_starts_total{trigger="auto",verdict="resident",unit="vllm@glm.service"}', 6),
    ("incident", 13200, 'llmhost_unit_failures_total{result="exit-code",unit="vllm@glm.service"}', 7),
    ("incident", 13170, 'llmhost_shm_segments{kind="semaphore",state="stale"}', 21),
    ("incident", 13170, 'llmhost_resource_trackers{state="orphaned"}', 7),
    ("incident", 13200, 'sum(llmhost_shm_segments{state="stale"})', 0),
    ("incident", 13200, 'llmhost_unit_startable{unit="vllm@glm.service"}', 0),
    ("incident", 13500, 'sum(llmhost_unit_last_start_in_the_way_bytes{kind="leftover"})', 720e9),
    ("incident", 13500, 'sum(llmhost_unit_last_start_in_the_way_bytes{kind="orphan"})', 4e9),
    ("incident", 13500, 'llmhost_unit_wanted{unit="vllm@glm.service"}', 0),
    ("incident", 13830, 'llmhost_unit_sub_state{state="start-pre"}', 1),
    ("incident", 14000, "llmhost_guard_last_wait_seconds", 41),
    ("incident", 14000, "llmhost_guard_last_run_timestamp_seconds", END - 21600 + 13841),
    ("incident", 21600, 'llmhost_engine_generation_tokens_total{unit="vllm@glm.service"}', 1500 * (21600 - 14321)),
    # active 3 days and 3 hours, 6 turns of 80 s, and since 13841; 7 waits of 30 s, the last cut short at 15 s
    (
        "incident",
        21600,
        f'llmhost_unit_state_seconds_total{{state="active",unit="{GLM}"}}',
        259200 + 10800 + 480 + 7759,
    ),
    ("incident", 21600, f'llmhost_unit_state_seconds_total{{state="auto_restart",unit="{GLM}"}}', 195),
    ("incident", 21600, f'llmhost_unit_state_seconds_total{{state="start_pre",unit="{GLM}"}}', 41),
    ("quiet", 86400, 'sum(llmhost_unit_starts_total{verdict="clean",trigger="manual"})', 3),
    ("quiet", 36060, 'llmhost_guard_last_wait_seconds{instance=~"gpu-1.+"}', 20),
    ("quiet", 80000, "sum(rate(llmhost_engine_generation_tokens_total[5m]))", 1600),
    ("lost_gpu", 7170, "llmhost_gpus", 8),
    ("lost_gpu", 7200, "llmhost_gpus_expected - llmhost_gpus", 1),
    ("lost_gpu", 7200, 'llmhost_gpu_fault{cause="lost",gpu="5"}', 1),
    ("lost_gpu", 7200, "count(llmhost_gpu_memory_used_bytes)", 7),
    ("lost_gpu", 8000, "rate(llmhost_engine_generation_tokens_total[5m])", 0),
    ("lost_gpu", 14400, 'sum(llmhost_unit_failures_total{result=~"watchdog|exit-code|start-limit-hit"})', 7),
    ("blind", 7200, "count(up == 0)", 1),
    ("blind", 7200, 'count({instance=~"gpu-1.+",__name__!~"ALERTS.*",__name__!~".+:.+"})', 1),
    ("blind", 5400, "count(count by (instance) (llmhost_gpu_up == 1))", 2),
    ("blind", 14400, 'llmhost_collector_failures_total{collector="nvml",cause="timeout"}', 1 + 9000 / 30),
    ("fleet", 14400, "count(up)", 40),
    ("fleet", 21600, 'count by (trigger) (llmhost_unit_starts_total{trigger="auto",verdict=~"clean|resident"} > 0)', 3),
    ("absences", 3600, 'count(llmhost_gpu_info{unified_memory="true"})', 1),
    (
        "absences",
        3600,
        'count(up) - count({__name__=~"llmhost_(engine|guard)_.+|.+_memory_free_bytes"} or vector(0))',
        1,
    ),
    # Recorded.
    ("incident", 10800, f'instance_unit:llmhost_unit_state:code{{unit="{GLM}"}}', 6),
    ("incident", 10830, f'instance_unit:llmhost_unit_state:code{{unit="{GLM}"}}', 1),
    ("incident", 11490, f'instance_unit:llmhost_unit_state:code{{unit="{GLM}"}}', 7),
    ("incident", 13830, f'instance_unit:llmhost_unit_state:code{{unit="{GLM}"}}', 4),
    ("incident", 13200, f'instance_unit:llmhost_unit_automatic_resident_starts:delta1h{{unit="{GLM}"}}', 6),
    # since 11280, where 5 had been counted
    ("incident", 14880, f'instance_unit:llmhost_unit_automatic_starts:delta1h{{unit="{GLM}"}}', 1),
    # each GPU but 7, which has 5 GB of embed's besides; GPU 6 is nobody's, GPU 0 and 1 have orphans
    ("incident", 11400, "sum(instance_gpu:llmhost_gpu_stuck_memory_bytes:sum)", 8 * 90e9 + 4e9),
    ("incident", 13500, "cluster:llmhost_gpu_stuck_memory_bytes:sum", 90e9),
    ("incident", 11400, 'instance_kind:llmhost_gpu_holder_memory_bytes:sum{kind="unattributed"}', 90e9),
    # 10800 to 11460, and 13800 to 14310, at each scrape; not while it was stopped
    ("incident", 21600, f'sum_over_time(instance_unit:llmhost_unit_lost:bool{{unit="{GLM}"}}[6h])', 23 + 18),
    ("quiet", 86400, "sum(sum_over_time(instance_unit:llmhost_unit_lost:bool[1d]))", 6),
    ("fleet", 7140, "cluster:llmhost_unit_lost:sum{cluster='osaka'}", 0),
    ("fleet", 21600, "cluster:llmhost_unit_lost:sum{cluster='osaka'}", 2),
    ("fleet", 21600, "sum(cluster:llmhost_blind:sum)", 1),
    ("fleet", 21600, "cluster:llmhost_blind:sum{cluster='osaka'}", 0),
    ("fleet", 21600, "sum(cluster:llmhost_gpu_stuck_memory_bytes:sum)", 130e9),
    ("fleet", 21600, "count(instance_unit:llmhost_unit_automatic_starts:delta1h > 1)", 3),
    # 20 hosts, less 2 that loop and 1 that is stopped
    ("fleet", 21600, "cluster_model:llmhost_engine_generation_tokens:rate5m{cluster='osaka'}", 17 * 500),
    ("fleet", 7140, "sum(cluster_model:llmhost_engine_generation_tokens:rate5m)", 40 * 500),
    ("blind", 14400, "sum(instance:llmhost_blind:bool)", 2),
    ("absences", 7200, "sum(instance:llmhost_blind:bool)", 0),
)


@pytest.mark.parametrize(("name", "second", "query", "value"), KNOWN)
def test_prometheus_answers_what_is_known(name: str, second: int, query: str, value: float) -> None:
    assert shared(name).one_at(second, query) == pytest.approx(value)


def test_what_has_ended_is_gone_at_the_next_scrape() -> None:
    incident = shared("incident")
    waits = 'llmhost_unit_sub_state{state="auto-restart"}'
    assert len(incident.at(10829.9, waits)) == 1
    assert incident.at(10830, waits) == []
    assert incident.at(11400, 'llmhost_gpu_holder_memory_bytes{gpu="6",kind="leftover"}') == []
    dead = shared("blind").at(7200, 'instance:llmhost_blind:bool{instance=~"gpu-1.+"}')
    assert [one["value"][1] for one in dead] == ["1"]


def test_nothing_is_stuck_where_memory_is_the_hosts() -> None:
    absences = shared("absences")
    assert len(absences.at(3600, 'llmhost_gpu_holder_memory_bytes{kind="leftover"}')) == 1
    assert absences.at(3600, "instance_gpu:llmhost_gpu_stuck_memory_bytes:sum") == []
    assert absences.at(3600, "llmhost_unit_startable or llmhost_unit_gpu_memory_needed_bytes") == []


@pytest.mark.parametrize("name", HISTORIES)
def test_every_recording_rule_is_recorded_wherever_it_has_a_result(name: str) -> None:
    prometheus = shared(name)
    for record, expr in rules().items():
        assert ":" not in re.sub(r'"[^"]*"|\[[^]]*\]', "", expr), record  # whole, without names of other rules
        for second in (0, prometheus.history.seconds // 2 + 120, prometheus.history.seconds):
            found, expected = prometheus.at(second, record), prometheus.at(second, expr)
            assert _values(found) == pytest.approx(_values(expected)), (record, second)


def _values(vector: list[dict[str, Any]]) -> dict[Labels, float]:
    return {without_name(one["metric"]): float(one["value"][1]) for one in vector}


def test_a_history_can_end_whenever_it_is_asked_to() -> None:
    with Backfilled(HISTORIES["absences"](), end=END + 3600) as later:
        assert (later.began, later.ended) == (END + 3600 - 7200, END + 3600)
        assert later.value(f"timestamp(up{{instance=~'spark.+'}} @ {END + 3600})") == END + 3600
        assert later.query(f"up @ {END + 3601 + 30}") == []
