"""The monitoring of a host: a real Prometheus and Alertmanager, set up as the examples in alerts/ do.

with Monitoring({"gpu-1": exporter.port}, Pace(shorter=20)) as seen: seen.hooks.until(lambda: seen.hooks.sent("pager"))

All durations of rules and routes can be shorter by one factor, so that hours pass in minutes: what happens on the host
must then be quicker by as much. Targets are named, though all are on loopback.
"""

import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from tests.fakes.alertmanager import Alertmanager, example
from tests.fakes.prometheus import Prometheus
from tests.fakes.webhooks import Notification, Webhooks

ALERTS = Path(__file__).parents[2] / "alerts"
_PART = re.compile(r"(\d+)(ms|[smhdwy])")
_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000, "y": 31_536_000_000}
_RANGE = re.compile(r"\[([^\]]*)\]")
_SINCE = re.compile(r"(\btime\(\) - \w+(?:\{[^}]*\})?\s*[<>]=?\s*)(\d+)\b")
_AHEAD = re.compile(r"(predict_linear\([^,]+,\s*)([^)]+)\)")
_OFFSET = re.compile(r"\boffset\s+(-?)(\d[0-9a-z]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The intervals of Prometheus, and the factor by which all durations of rules and routes are shorter."""

    scrape: str = "1s"
    evaluation: str = "1s"
    shorter: float = 1.0


def shorter(duration: str, by: float) -> str:
    """Give a duration as Prometheus writes it, divided, in whole milliseconds; 0 stays 0."""
    assert re.fullmatch(rf"({_PART.pattern})+|0", duration), duration
    whole = sum(int(number) * _MS[unit] for number, unit in _PART.findall(duration))
    return f"{round(whole / by)}ms"


def shortened_rules(text: str, by: float) -> str:
    """Give the rules with all their durations divided; their groups are evaluated as often as all others."""
    rules: dict[str, Any] = yaml.safe_load(text)
    for group in rules["groups"]:
        group.pop("interval", None)
        for rule in group["rules"]:
            for key in ("for", "keep_firing_for"):
                if key in rule:
                    rule[key] = shorter(str(rule[key]), by)
            rule["expr"] = shorter_expression(rule["expr"], by)
    return yaml.safe_dump(rules, sort_keys=False, width=1000)


def shorter_expression(expression: str, by: float) -> str:
    """Give the expression with ranges, offsets and what is compared with a time that has passed divided.

    It knows the forms that the rules have: tests/alerts/test_shortened.py finds a duration in another one.
    """

    def inside(found: re.Match[str]) -> str:
        return "[" + ":".join(part and shorter(part, by) for part in found[1].split(":")) + "]"

    expression = _RANGE.sub(inside, expression)
    expression = _OFFSET.sub(lambda found: f"offset {found[1]}{shorter(found[2], by)}", expression)
    expression = _AHEAD.sub(lambda found: f"{found[1]}({found[2]}) / {by:g})", expression)
    return _SINCE.sub(lambda found: f"{found[1]}{int(found[2]) / by:g}", expression)


def _waits(by: float) -> Callable[[dict[str, Any]], None]:
    def change(route: dict[str, Any]) -> None:
        for key in ("group_wait", "group_interval", "repeat_interval"):
            if key in route:
                route[key] = shorter(route[key], by)

    return change


class Monitoring:
    """`targets` are the hosts and the ports of their exporters. `directory` keeps what they write."""

    def __init__(
        self,
        targets: Mapping[str, int],
        pace: Pace,
        on_notification: Callable[[Notification], None] = lambda _: None,
        *,
        directory: Path | None = None,
        ports: tuple[int | None, int | None] = (None, None),
    ) -> None:
        self._stack = ExitStack()
        with ExitStack() as stack:
            scratch = directory or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            for path in ALERTS.glob("*.rules.yml"):
                (scratch / path.name).write_text(shortened_rules(path.read_text(), pace.shorter))
            self.hooks = stack.enter_context(Webhooks(on_notification))
            config = example(self.hooks.url, _waits(pace.shorter))
            self.alertmanager = stack.enter_context(Alertmanager(config, directory=directory, port=ports[1]))
            config = _prometheus(targets, pace, scratch, self.alertmanager.port)
            self.prometheus = stack.enter_context(Prometheus(config, directory=directory, port=ports[0]))
            self._stack = stack.pop_all()

    def pages(self, **labels: str) -> list[Notification]:
        """Give the firing notifications of the pager with an alert of these labels."""
        return [notification for notification in self.hooks.sent("pager", **labels) if notification.status == "firing"]

    def firing(self, **labels: str) -> set[str]:
        """Give the names of what fires in Prometheus, be it quiet or not."""
        alerts = self.prometheus.api("alerts")["data"]["alerts"]
        return {
            alert["labels"]["alertname"]
            for alert in alerts
            if alert["state"] == "firing" and labels.items() <= alert["labels"].items()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _prometheus(targets: Mapping[str, int], pace: Pace, rules: Path, alertmanager_port: int) -> str:
    """Give the example's config for these targets, with rules and receivers of ours."""
    config: dict[str, Any] = yaml.safe_load((ALERTS / "prometheus.example.yml").read_text())
    config["global"] |= {
        "scrape_interval": pace.scrape,
        "scrape_timeout": min(pace.scrape, "10s", key=lambda duration: _MS[duration[-1]] * int(duration[:-1])),
        "evaluation_interval": pace.evaluation,
    }
    config["rule_files"] = [str(rules / "*.rules.yml")]
    config["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager_port}"]}]}]
    (job,) = config["scrape_configs"]
    job.pop("scrape_timeout", None)
    job["static_configs"] = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": f"{host}:10061"}} for host, port in targets.items()
    ]
    return yaml.safe_dump(config, sort_keys=False)
