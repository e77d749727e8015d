"""The time from the start of a crash loop until our alert, or a public one, fires: `make time-to-fire`.

Each loop is played to promtool as the series that the exporters would have, scraped each 15 s. Of public rules, which
know a restart counter and a unit's state, these are the expressions:
- node-mixin (kubernetes-monitoring, node_exporter's docs/node-mixin): NodeSystemdServiceCrashlooping
- awesome-prometheus-alerts (samber), systemd_exporter: SystemdServiceCrashLooping
"""

import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.alerts.days import promtool_values
from tests.alerts.rule_files import promtool, source_of
from tests.fakes.needs import run_by_hand

from llmhost.model.unit import ACTIVE_STATES

SCRAPE_SECONDS = 15
TURNS_SECONDS = (20, 60, 110, 180, 300, 700, 900)
_QUIET_SECONDS = 3600  # the unit runs, before it begins to loop
_LOOP_SECONDS = 4 * 3600
_DELAY_SECONDS = 10  # of each turn it waits to restart (RestartSec=)

_UNIT = 'cluster="c",job="llmhost",instance="a:10061",unit="vllm.service",manager="system"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    title: str
    alert: str
    rules: tuple[Mapping[str, Any], ...] = ()  # (): our own


PUBLIC = (
    Column(
        title="node-mixin",
        alert="NodeSystemdServiceCrashlooping",
        rules=(
            {
                "alert": "NodeSystemdServiceCrashlooping",
                "expr": "increase(node_systemd_service_restart_total[5m]) > 2",
                "for": "15m",
            },
        ),
    ),
    Column(
        title="awesome-prometheus-alerts",
        alert="SystemdServiceCrashLooping",
        rules=(
            {
                "alert": "SystemdServiceCrashLooping",
                "expr": "increase(systemd_service_restart_total[1h]) > 5",
                "for": "5m",
            },
        ),
    ),
    Column(
        title='state="failed"',
        alert="SystemdUnitFailed",
        rules=({"alert": "SystemdUnitFailed", "expr": 'systemd_unit_state{state="failed"} == 1', "for": "5m"},),
    ),
)
OURS = Column(title="llmhost", alert="LlmhostRestartLoop")


def loop_series(turn_seconds: int, verdict: str = "clean") -> list[dict[str, str]]:
    """Return the exporters' series of a unit that runs for an hour, and then dies again and again.

    It dies first at _QUIET_SECONDS, waits, starts anew, and dies again a turn after it died.
    """
    times = range(0, _QUIET_SECONDS + _LOOP_SECONDS, SCRAPE_SECONDS)

    def starts(at: int) -> int:
        """Count the automatic starts up to then."""
        since = at - _QUIET_SECONDS - _DELAY_SECONDS
        return 0 if since < 0 else since // turn_seconds + 1

    def waits(at: int) -> bool:
        return at >= _QUIET_SECONDS and (at - _QUIET_SECONDS) % turn_seconds < _DELAY_SECONDS

    def last_start(at: int) -> int:
        return 0 if not starts(at) else _QUIET_SECONDS + _DELAY_SECONDS + (starts(at) - 1) * turn_seconds

    def deaths(at: int) -> int:
        return 0 if at < _QUIET_SECONDS else (at - _QUIET_SECONDS) // turn_seconds + 1

    def state_is(state: str) -> Callable[[int], int]:
        return lambda at: int(state == ("activating" if waits(at) else "active"))

    of_time: dict[str, Callable[[int], int | None]] = {
        'up{job="llmhost",cluster="c",instance="a:10061"}': lambda _at: 1,
        f"llmhost_unit_wanted{{{_UNIT}}}": lambda _at: 1,
        f"llmhost_unit_nrestarts{{{_UNIT}}}": starts,
        f"llmhost_unit_last_start_timestamp_seconds{{{_UNIT}}}": last_start,
        f'llmhost_unit_failures_total{{{_UNIT},result="exit-code"}}': deaths,
        f'llmhost_unit_last_failure_timestamp_seconds{{{_UNIT},cause="unknown"}}': lambda at: (
            _QUIET_SECONDS + (deaths(at) - 1) * turn_seconds if deaths(at) else None
        ),
        f'llmhost_unit_sub_state{{{_UNIT},state="running"}}': lambda at: None if waits(at) else 1,
        f'llmhost_unit_sub_state{{{_UNIT},state="auto-restart"}}': lambda at: 1 if waits(at) else None,
        'node_systemd_service_restart_total{job="node",instance="a:9100",name="vllm.service"}': starts,
        'systemd_service_restart_total{job="systemd",instance="a:9558",name="vllm.service"}': starts,
        'systemd_unit_state{job="systemd",instance="a:9558",name="vllm.service",state="failed"}': lambda _at: 0,
    }
    for state in ACTIVE_STATES:
        of_time[f'llmhost_unit_active_state{{{_UNIT},state="{state}"}}'] = state_is(state)
    for trigger in ("auto", "manual"):
        for found in ("clean", "resident", "unknown", "not_started"):
            counts = starts if (trigger, found) == ("auto", verdict) else (lambda at: 0)  # noqa: ARG005 - of time too
            of_time[f'llmhost_unit_starts_total{{{_UNIT},trigger="{trigger}",verdict="{found}"}}'] = counts
    return [{"series": name, "values": promtool_values([value(at) for at in times])} for name, value in of_time.items()]


def seconds_to_fire(column: Column, turn_seconds: int) -> int | None:
    """Return the time from the unit's first death until the alert fires; None where it does not in four hours.

    promtool prints values only where a test fails: a wrong value is expected here.
    """
    first = (
        f'min(min_over_time(timestamp(ALERTS{{alertname="{column.alert}",alertstate="firing"}})[6h:{SCRAPE_SECONDS}s]))'
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rules = folder / "one.rules.yml"
        ours = yaml.safe_load(source_of(column.alert))  # by itself: all of them take ten times as long
        group = {"name": "one", "interval": "30s", "rules": list(column.rules) or ours}
        rules.write_text(yaml.safe_dump({"groups": [group]}), encoding="utf-8")
        test = {
            "interval": f"{SCRAPE_SECONDS}s",
            "input_series": loop_series(turn_seconds),
            "promql_expr_test": [
                {
                    "expr": first,
                    "eval_time": f"{_QUIET_SECONDS + _LOOP_SECONDS - SCRAPE_SECONDS}s",
                    "exp_samples": [{"labels": "{}", "value": -1}],
                }
            ],
        }
        whole = {"rule_files": [str(rules)], "evaluation_interval": f"{SCRAPE_SECONDS}s", "tests": [test]}
        file = folder / "loop.test.yml"
        file.write_text(yaml.safe_dump(whole), encoding="utf-8")
        ran = promtool("test", "rules", file)
    found = re.search(r"got:(.*)", ran.stdout + ran.stderr)
    assert found, ran.stdout + ran.stderr
    number = re.search(r"Value:([0-9.e+]+)|\{\} ([0-9.E+]+)", found.group(1))
    return None if number is None else round(float(number.group(1) or number.group(2))) - _QUIET_SECONDS


def measured() -> Mapping[int, tuple[int | None, ...]]:
    """Give for each length of a turn the seconds until ours and the public ones fire."""
    return {turn: tuple(seconds_to_fire(column, turn) for column in (OURS, *PUBLIC)) for turn in TURNS_SECONDS}


def table(found: Mapping[int, tuple[int | None, ...]]) -> str:
    """Write the table of alerts/README.md."""
    titles = [column.title for column in (OURS, *PUBLIC)]
    lines = [f"| a turn takes | {' | '.join(titles)} |", "|---|" + "---|" * len(titles)]
    lines += [f"| {turn} s | {' | '.join(_minutes(cell) for cell in seconds)} |" for turn, seconds in found.items()]
    return "\n".join(lines) + "\n"


def _minutes(seconds: int | None) -> str:
    if seconds is None:
        return "never"
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def main() -> int:
    sys.stdout.write(table(measured()))
    return 0


if __name__ == "__main__":
    sys.exit(run_by_hand(main))
