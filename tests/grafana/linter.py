"""The rules of Grafana's dashboard-linter (github.com/grafana/dashboard-linter, 2026-06), and its file of exclusions.

That is a program in Go, and this says what it would: names, meaning and `.lint` are its own. This is never milder, and
stricter in that a counter is known by its name also where it has matchers, and that all units of a panel count.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.fakes.needs import needs
from tests.grafana.promql import Selector, selectors
from tests.grafana.substitution import Span, Steps, Variable, substituted

Json = dict[str, Any]
GRAFANA = Path(__file__).parents[2] / "grafana"
# The committed dashboards, by uid.
BOARDS: Mapping[str, Json] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(GRAFANA.glob("*.json"))
}
PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}
# Of the linter's list, what we use.
UNITS = frozenset(
    {
        *(
            "none",
            "short",
            "percent",
            "percentunit",
            "bytes",
            "Bps",
            "s",
            "ms",
            "celsius",
            "watt",
            "reqps",
            "ops",
            "cps",
        ),
        *("dateTimeFromNow", "dateTimeAsIso", "dateTimeAsLocal", "bool", "bool_yes_no", "dtdurations", "string"),
    }
)
# What does not ask: a heading, and text.
WITHOUT_QUERY = frozenset({"row", "text"})


@dataclass(frozen=True)
class Fault:
    says: str
    panel: str = ""
    target: int | None = None
    rule: str = ""
    dashboard: str = ""


Rule = Callable[[Json], Iterator[Fault]]


def panels_of(board: Json) -> Iterator[Json]:
    """Give all panels, rows and what is folded into them, too."""
    for panel in board.get("panels", []):
        yield panel
        yield from panel.get("panels", [])


def asking(board: Json) -> Iterator[Json]:
    return (panel for panel in panels_of(board) if panel["type"] not in WITHOUT_QUERY)


def targets_of(board: Json) -> Iterator[tuple[str, int, Json]]:
    """Give title of the panel, number and target."""
    for panel in panels_of(board):
        yield from ((panel.get("title", ""), number, one) for number, one in enumerate(panel.get("targets", [])))


def variables_of(board: Json, kind: str) -> list[Json]:
    return [one for one in board.get("templating", {}).get("list", []) if one["type"] == kind]


def query_of(variable: Json) -> str:
    query = variable["query"]
    return str(query["query"] if isinstance(query, dict) else query)


def as_promql(expr: str, board: Json) -> str:
    """Put in what Grafana might."""
    chosen = {one["name"]: Variable(one["name"], ("x",)) for one in board.get("templating", {}).get("list", [])}
    return substituted(expr, chosen, Span(0, 21600), Steps(60, 240))


def unparsable(expressions: Sequence[str]) -> dict[int, str]:
    """Let promtool read them: number → why it cannot."""
    rules = [{"record": f"checked:expression:{number}", "expr": expr} for number, expr in enumerate(expressions)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "expressions.yml"
        file.write_text(yaml.safe_dump({"groups": [{"name": "checked", "rules": rules}]}), encoding="utf-8")
        command = [needs("promtool"), "check", "rules", "--lint=none", str(file)]
        checked = subprocess.run(command, capture_output=True, text=True, check=False)
    said = checked.stdout + checked.stderr
    found = {int(number): why for number, why in re.findall(r'"checked:expression:(\d+)": (.+)', said)}
    assert (checked.returncode == 0) == (not found), said
    return found


def template_datasource(board: Json) -> Iterator[Fault]:
    told = [(one["name"], one.get("label"), one["query"]) for one in variables_of(board, "datasource")]
    if told != [("datasource", "Data source", "prometheus")]:
        yield Fault(f"its data source is not one variable, named datasource and labelled Data source: {told}")


def template_variable(name: str) -> Rule:
    def check(board: Json) -> Iterator[Fault]:
        found = next((one for one in board.get("templating", {}).get("list", []) if one["name"] == name), None)
        if found is None:
            yield Fault(f"there is no variable {name}")
            return
        wanted = {"type": "query", "label": name.title(), "datasource": PROMETHEUS, "multi": True, "allValue": ".+"}
        for key, value in wanted.items():
            if found.get(key) != value:
                yield Fault(f"{key} of the variable {name} is {found.get(key)!r}, not {value!r}")

    return check


def template_label_promql(board: Json) -> Iterator[Fault]:
    asked = []
    for one in variables_of(board, "query"):
        read = re.fullmatch(r"(?:label_values|query_result)\((.+?)(?:, *\w+)?\)", query_of(one))
        if read:
            asked.append((one["name"], as_promql(read[1], board)))
        else:
            yield Fault(f"the variable {one['name']} asks in no way that is known: {query_of(one)}")
    for number, why in unparsable([expr for _, expr in asked]).items():
        yield Fault(f"the query of the variable {asked[number][0]}: {why}")


def template_on_time_change_reload(board: Json) -> Iterator[Fault]:
    for one in variables_of(board, "query"):
        if one.get("refresh") != 2:
            yield Fault(f"the variable {one['name']} is not refreshed on a change of the time range (2)")


def panel_datasource(board: Json) -> Iterator[Fault]:
    for panel in asking(board):
        if panel.get("datasource") != PROMETHEUS:
            yield Fault(f"its data source is not the variable: {panel.get('datasource')}", panel.get("title", ""))


def panel_title_description(board: Json) -> Iterator[Fault]:
    for panel in panels_of(board):
        if not panel.get("title") or (panel["type"] != "row" and not panel.get("description")):
            yield Fault(f"panel {panel.get('id')} has no title, or no description", panel.get("title", ""))


def panel_units(board: Json) -> Iterator[Fault]:
    """Want a unit but where values are shown as texts."""
    for panel in asking(board):
        defaults = panel["fieldConfig"]["defaults"]
        properties = [one for override in panel["fieldConfig"]["overrides"] for one in override["properties"]]
        units = [defaults["unit"]] if "unit" in defaults else []
        units += [one["value"] for one in properties if one["id"] == "unit"]
        mapped = bool(defaults.get("mappings")) or any(one["id"] == "mappings" and one["value"] for one in properties)
        if not units and not mapped:
            yield Fault("it has no unit", panel["title"])
        for unit in units:
            if unit not in UNITS:
                yield Fault(f"its unit {unit} is none that the linter knows", panel["title"])


def panel_no_targets(board: Json) -> Iterator[Fault]:
    for panel in asking(board):
        if not panel.get("targets"):
            yield Fault("it asks nothing", panel.get("title", ""))


def target_promql(board: Json) -> Iterator[Fault]:
    asked = [*targets_of(board)]
    for number, why in unparsable([as_promql(one.get("expr", ""), board) for _, _, one in asked]).items():
        title, target, _ = asked[number]
        yield Fault(f"its query: {why}", title, target)


def _in_selectors(board: Json, wrong: Callable[[Selector], str]) -> Iterator[Fault]:
    for title, number, target in targets_of(board):
        for one in selectors(target.get("expr", "")):
            if said := wrong(one):
                yield Fault(said, title, number)


def target_rate_interval(board: Json) -> Iterator[Fault]:
    def wrong(one: Selector) -> str:
        fixed = one.function in {"rate", "irate"} and one.range != "$__rate_interval"
        return f"{one.function}({one.name}[{one.range}]) is not over $__rate_interval" if fixed else ""

    return _in_selectors(board, wrong)


def target_matcher(label: str) -> Rule:
    def wrong(one: Selector) -> str:
        wanted = ("=~", f"${label}")
        return "" if one.matchers.get(label) == wanted else f'{one.name} is not asked for {label}=~"${label}"'

    return lambda board: _in_selectors(board, wrong)


def target_counter_agg(board: Json) -> Iterator[Fault]:
    def wrong(one: Selector) -> str:
        bare = one.name.endswith("_total") and one.function not in {"rate", "irate", "increase"}
        return f"the counter {one.name} is not in rate or increase" if bare else ""

    return _in_selectors(board, wrong)


def target_loki(board: Json) -> Iterator[Fault]:
    """Find queries of Loki: no board of ours has any, and nothing here could read them."""
    for title, number, target in targets_of(board):
        if target.get("datasource", {}).get("type") == "loki":
            yield Fault("it asks Loki", title, number)


def uneditable_dashboard(board: Json) -> Iterator[Fault]:
    if board.get("editable", True):
        yield Fault("it can be edited")


RULES: Mapping[str, Rule] = {
    "template-datasource-rule": template_datasource,
    "template-job-rule": template_variable("job"),
    "template-instance-rule": template_variable("instance"),
    "template-label-promql-rule": template_label_promql,
    "template-on-time-change-reload-rule": template_on_time_change_reload,
    "panel-datasource-rule": panel_datasource,
    "panel-title-description-rule": panel_title_description,
    "panel-units-rule": panel_units,
    "panel-no-targets-rule": panel_no_targets,
    "target-promql-rule": target_promql,
    "target-rate-interval-rule": target_rate_interval,
    "target-job-rule": target_matcher("job"),
    "target-instance-rule": target_matcher("instance"),
    "target-counter-agg-rule": target_counter_agg,
    "target-logql-rule": target_loki,
    "target-logql-auto-rule": target_loki,
    "uneditable-dashboard-rule": uneditable_dashboard,
}


def faults_of(board: Json) -> Iterator[Fault]:
    for name, rule in RULES.items():
        for one in rule(board):
            yield Fault(one.says, one.panel, one.target, name, board.get("title", ""))


@dataclass(frozen=True)
class Exclusion:
    """An entry of `.lint`, or a rule without entries: what it does not name, it takes as it comes."""

    rule: str
    reason: str
    dashboard: str = ""
    panel: str = ""
    target: str = ""  # its number; a text in the file, too

    def takes(self, fault: Fault) -> bool:
        return (
            self.rule == fault.rule
            and self.dashboard in {"", fault.dashboard}
            and self.panel in {"", fault.panel}
            and self.target in {"", str(fault.target)}
        )


def exclusions(text: str) -> list[Exclusion]:
    """Read a `.lint`. A key that the linter does not know is an error: it would be silent."""
    read = yaml.safe_load(text)
    assert read.keys() == {"exclusions"}, "warnings are not used"
    found = []
    for rule, told in read["exclusions"].items():
        assert rule in RULES, f"there is no rule {rule}"
        assert told.keys() <= {"reason", "entries"}, rule
        for entry in told.get("entries") or [{}]:
            assert entry.keys() <= {"dashboard", "panel", "targetIdx", "reason"}, entry
            reason = entry.get("reason", told.get("reason", ""))
            told_target = entry.get("targetIdx", "")
            assert isinstance(told_target, str), f"{told_target}: the linter reads a text"
            found.append(Exclusion(rule, reason, entry.get("dashboard", ""), entry.get("panel", ""), told_target))
    return found
