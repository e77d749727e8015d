"""On days when all is as it should be no alert fires: every rule, on each kind of day, at two scrape intervals."""

import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.alerts.days import Day, series_of
from tests.alerts.expressions import catalogue, metrics_in, unknown_in
from tests.alerts.quiet_days import AFTER_INCIDENTS, ALMOST, QUIET, SECONDS, T
from tests.alerts.rule_files import RULES, changed, promtool, rules, source_of

_FIRED = (
    'count by (instance, alertname) (count_over_time(ALERTS{alertstate="firing",alertname!="LlmhostWatchdog"}[3h]))'
)


def played(
    folder: Path, text: str, scrape_seconds: int, days: Iterable[Day] = QUIET, silent_from: int = 0
) -> subprocess.CompletedProcess[str]:
    """Have promtool play the days, and expect that no alert has fired on them, from that second on."""
    (folder / RULES.name).write_text(text, encoding="utf-8")
    test = {
        "interval": f"{scrape_seconds}s",
        "input_series": [series for day in days for series in series_of(day, SECONDS, scrape_seconds)],
        "promql_expr_test": [
            {
                "expr": _FIRED.replace("3h", f"{SECONDS - scrape_seconds - silent_from}s"),
                "eval_time": f"{SECONDS - scrape_seconds}s",
                "exp_samples": [],
            }
        ],
    }
    whole = {"rule_files": [RULES.name], "evaluation_interval": "30s", "tests": [test]}
    (folder / "quiet.test.yml").write_text(json.dumps(whole), encoding="utf-8")
    return promtool("test", "rules", folder / "quiet.test.yml")


def fired(output: str) -> set[tuple[str, str]]:
    """Read (day, alert) from what promtool found in place of nothing."""
    _, _, got = output.partition("got:")
    return {(day, alert) for alert, day in re.findall(r'\{alertname="([^"]*)", instance="([^"]*)"\}', got)}


@pytest.mark.parametrize("scrape_seconds", [15, 60])
def test_no_alert_fires_on_a_quiet_day(scrape_seconds: int, tmp_path: Path) -> None:
    done = played(tmp_path, RULES.read_text(encoding="utf-8"), scrape_seconds)
    assert done.returncode == 0, sorted(fired(done.stdout + done.stderr)) or done.stdout + done.stderr


@pytest.mark.parametrize("scrape_seconds", [15, 60])
def test_no_alert_fires_anew_within_the_hour_after_an_incident_that_is_over(
    scrape_seconds: int, tmp_path: Path
) -> None:
    text = RULES.read_text(encoding="utf-8")
    done = played(tmp_path, text, scrape_seconds, AFTER_INCIDENTS, T)
    assert done.returncode == 0, sorted(fired(done.stdout + done.stderr)) or done.stdout + done.stderr
    paged = {"LlmhostRestartLoop", "LlmhostRestartedWhileMemoryResident"}
    whole = fired(played(tmp_path, text, scrape_seconds, AFTER_INCIDENTS).stderr)
    assert whole == {(day.name, alert) for day in AFTER_INCIDENTS for alert in paged}
    # without what they say of starts since it was well
    forgetful = text.replace("==\n                last_over_time(", "==\n                -1 + last_over_time(")
    anew = fired(played(tmp_path, forgetful, scrape_seconds, AFTER_INCIDENTS, T).stderr)
    assert anew == whole


def test_the_days_come_close_to_it(tmp_path: Path) -> None:
    """Without their `for` alerts fire on just these days; else the days would prove nothing of how long it is."""
    text = re.sub(r"(?m)^        for: \d+m\n", "", RULES.read_text(encoding="utf-8"))
    done = played(tmp_path, text, 60)
    assert fired(done.stdout + done.stderr) == ALMOST


_EXACT = (
    'llmhost_unit_starts_total{trigger=~"auto|unit"}\n              -\n                '
    'min_over_time(llmhost_unit_starts_total{trigger=~"auto|unit"}[1h])'
)
_OOM_KILLS = 'llmhost_unit_failures_total{result="oom-kill"}'
_AT_MOST = ("LlmhostOomKilled", f"{_OOM_KILLS}\n            -", f"max_over_time({_OOM_KILLS}[1h])\n            -")
NEVER = "vector(0) > 1"

# Day → alert, a clause of it, and what stands in its place: the alert would fire on that day.
SPOILT = {
    "serves": ("LlmhostUnitDown", '"failed|inactive"', '"active"'),
    "exporter-restarted-without-state": _AT_MOST,
    "counters-set-back": _AT_MOST,
    "long-load": (
        "LlmhostEngineNeverReady",
        "llmhost_unit_ready_budget_seconds",
        "0.2 * llmhost_unit_ready_budget_seconds",
    ),
    "removed-from-discovery": (
        "LlmhostExporterDown",
        'up{job="llmhost"} == 0',
        '(up{job="llmhost"} offset 1h unless up)',
    ),
    "monitored-from-now-on": ("LlmhostRestartLoop", "min_over_time(", "0 * min_over_time("),
    "monitored-as-it-crashes": (
        "LlmhostRestartLoop",
        _EXACT,
        'increase(llmhost_unit_starts_total{trigger=~"auto|unit"}[1h])',
    ),
    "started-by-a-socket": ("LlmhostRestartLoop", '{trigger="auto"}', '{trigger=~"auto|unit"}'),
    "unit-removed": (
        "LlmhostUnitMissing",
        'llmhost_unit_info{load_state=~"not-found|bad-setting|error"}',
        "llmhost_unit_info offset 1h unless llmhost_unit_info",
    ),
    "co-tenant-busy": ("LlmhostMemoryHeldByNobody", 'kind="gone"', 'kind=~"gone|container"'),
    "asleep": ("LlmhostEngineHung", "llmhost_engine_sleeping == 1", NEVER),
    "reads-long-prompts": ("LlmhostEngineHung", "_total[5m]) > 0", "_total[5m]) < 0"),
    "scaled-to-zero": ("LlmhostUnitDown", "llmhost_unit_wanted == 1", "llmhost_unit_wanted >= 0"),
    "gpu-reset": ("LlmhostCollectorFailing", "disabled|released", "disabled"),
    "unified-memory": ("LlmhostMemoryHeldByOrphan", 'unified_memory="true"', 'unified_memory="false"'),
    "no-gpu": ("LlmhostCollectorFailing", "|no_device", ""),
}


def test_each_day_would_fire_rules_that_are_a_little_worse(tmp_path: Path) -> None:
    """A worse rule bears the day's name here."""
    worse = [
        changed(source_of(alert), clause, instead, None).replace(f"- alert: {alert}\n", f"- alert: {day}\n")
        for day, (alert, clause, instead) in SPOILT.items()
    ]
    done = played(tmp_path, "groups:\n  - name: worse\n    rules:\n" + "".join(worse), 60)
    found = {day for day, alert in fired(done.stdout + done.stderr) if alert == day}
    assert sorted(SPOILT.keys() - found) == [], done.stdout + done.stderr
    assert {day.name for day in QUIET} == SPOILT.keys() | {day for day, _ in ALMOST}


def test_the_days_have_what_the_rules_ask_for() -> None:
    """Or silence would be no wonder. What only a fault brings with it is not there."""
    shown = {series["series"].partition("{")[0] for day in QUIET for series in series_of(day, 60, 60)}
    wanted = {metric for rule in rules() for metric in metrics_in(rule["expr"])}
    assert wanted - shown == set()


def test_the_days_have_nothing_that_the_exporter_does_not() -> None:
    unknown = {
        (series["series"], what)
        for day in QUIET
        for series in series_of(day, 60, 60)
        for what in unknown_in(series["series"], catalogue())
    }
    assert unknown == set()
