"""Queries that boards share, answered by promtool: states of units, causes, exact counts."""

from pathlib import Path
from typing import Any

from grafana.kit import causes
from grafana.kit.panels import STATE_VALUES
from grafana.kit.queries import BY_UNIT, counted, events, unit_state
from tests.alerts.label_values import SUB_STATES
from tests.alerts.rule_files import RECORDINGS
from tests.grafana.boards import Series, answers, filled

from llmhost.model.reading import Cause
from llmhost.model.unit import ACTIVE_STATES

HOST = 'job="j",instance="a"'


def texts(mappings: list[dict[str, Any]]) -> dict[str, str]:
    return {code: shown["text"] for code, shown in mappings[0]["options"].items()}


def doing(unit: str, active: str, sub: str) -> Series:
    of_it = f'{HOST},unit="{unit}",manager="system"'
    series: Series = {
        f'llmhost_unit_active_state{{{of_it},state="{state}"}}': int(state == active) for state in ACTIVE_STATES
    }
    return {**series, f'llmhost_unit_sub_state{{{of_it},state="{sub}"}}': 1}


def test_a_unit_shows_as_one_state(tmp_path: Path) -> None:
    states = [
        ("active", "running", 1, "active"),
        ("reloading", "reload", 2, "reloading"),
        ("refreshing", "refresh-extensions", 2, "reloading"),
        ("activating", "start", 3, "activating"),
        ("activating", "start-pre", 4, "start-pre"),
        ("deactivating", "stop-sigterm", 5, "deactivating"),
        ("activating", "auto-restart", 6, "waiting to restart"),
        ("activating", "auto-restart-queued", 6, "waiting to restart"),
        ("failed", "failed-before-auto-restart", 6, "waiting to restart"),
        ("inactive", "dead-before-auto-restart", 6, "waiting to restart"),
        ("inactive", "dead", 7, "inactive"),
        ("failed", "failed", 8, "failed"),
        ("maintenance", "cleaning", 9, "maintenance"),
    ]
    series: Series = {}
    shown: dict[str, float] = {}
    for number, (active, sub, code, text) in enumerate(states):
        series |= doing(f"{number}.service", active, sub)
        shown[f'{{{HOST},unit="{number}.service",manager="system"}}'] = code
        assert texts(STATE_VALUES)[str(code)] == text
    answers(tmp_path, series, {unit_state('unit=~".+"'): shown})


def test_boards_and_the_recording_rule_have_one_code_for_each_state(tmp_path: Path) -> None:
    states = [(active, sub) for active in ACTIVE_STATES for sub in sorted(SUB_STATES)]
    series: Series = {}
    for number, (active, sub) in enumerate(states):
        series |= doing(f"{number}.service", active, sub)
    same = f"count(({unit_state(f'{HOST}')}) == instance_unit:llmhost_unit_state:code)"
    answers(tmp_path, series, {same: {"{}": len(states)}}, rules=[RECORDINGS])


def test_every_cause_has_a_code_of_its_own() -> None:
    assert causes.CAUSES.keys() == set(Cause)
    shown = texts(causes.OK_OR_CAUSE)
    assert len(shown) == len(Cause) + 2
    assert len(set(shown.values())) == len(shown)
    for listed in (causes.OF_GPUS, causes.OF_ENGINES, causes.OF_COLLECTORS):
        assert set(listed) <= set(Cause)


def test_what_fails_shows_its_cause_where_that_is_known(tmp_path: Path) -> None:
    codes = {text: int(code) for code, text in texts(causes.OK_OR_CAUSE).items()}
    series: Series = {f'llmhost_gpu_up{{{HOST},gpu="{gpu}"}}': int(gpu == 0) for gpu in range(4)}
    series[f'llmhost_gpu_fault{{{HOST},gpu="1",cause="lost"}}'] = 1
    series[f'llmhost_gpu_fault{{{HOST},gpu="2",cause="tls"}}'] = 1
    query = causes.ok_or_cause("llmhost_gpu_up", "llmhost_gpu_fault", HOST, "instance, gpu", causes.OF_GPUS)
    expected = {0: codes["ok"], 1: codes["lost"], 2: codes["fails"], 3: codes["fails"]}
    answers(tmp_path, series, {query: {f'{{instance="a",gpu="{gpu}"}}': code for gpu, code in expected.items()}})


def test_counts_are_exact_and_a_counter_that_is_set_back_counts_from_there(tmp_path: Path) -> None:
    of_it = f'{HOST},unit="v.service",manager="system"'
    starts = f'llmhost_unit_starts_total{{{of_it},trigger="auto",verdict="resident"}}'
    unit = f"{{{of_it}}}"
    within = counted("llmhost_unit_starts_total", HOST, BY_UNIT, "1h")
    step = events("llmhost_unit_starts_total", HOST, BY_UNIT).replace("$__interval", "1m")
    # Minute 0 to 30: 4; then 5; from minute 40 on: 7.
    series: Series = {starts: "4x29 5x9 7x50"}
    answers(tmp_path, series, {within: {unit: 3}, step: {unit: 0}}, at="50m")
    answers(tmp_path, series, {within: {unit: 3}, step: {unit: 2}}, at="40m")
    answers(tmp_path, series, {within: {unit: 1}, step: {unit: 1}}, at="30m")
    # From minute 30 on the counter is anew at 1.
    answers(tmp_path, {starts: "4x29 1x60"}, {step: {unit: 1}}, at="30m")
    answers(tmp_path, {starts: "4x29 1x60"}, {step: {unit: 0}}, at="31m")


def test_a_counter_that_appears_with_its_first_count_counts_from_0_on_a_known_host(tmp_path: Path) -> None:
    of_it = f'{HOST},unit="v.service",manager="system"'
    build = f"llmhost_build_info{{{HOST}}}"
    runs = f'llmhost_guard_runs_total{{{of_it},verdict="free"}}'
    step = filled("llmhost-incident", events("llmhost_guard_runs_total", HOST, BY_UNIT, from_0=True))
    unit = f"{{{of_it}}}"
    new: Series = {build: "1x60", runs: "_x30 1x30"}
    answers(tmp_path, new, {step: {}}, at="29m")
    answers(tmp_path, new, {step: {unit: 1}}, at="30m")
    answers(tmp_path, new, {step: {unit: 0}}, at="31m")
    # Prometheus begins to scrape the host: what was counted before is history.
    answers(tmp_path, {build: "_x30 1x30", runs: "_x30 5x30"}, {step: {unit: 0}}, at="30m")
