"""Rules that each board keeps: identity, places, units, texts, and what its queries may ask for.

Among them are the rules of Grafana's dashboard-linter (github.com/grafana/dashboard-linter) whose breach a user would
notice. Whether queries parse, and answer, is in test_answers.py.
"""

import re
from types import SimpleNamespace

import pytest
import yaml
from tests.alerts.expressions import catalogue, metrics_in, selectors, unknown_in
from tests.alerts.rule_files import RECORDINGS, RULES, rules
from tests.grafana.boards import BOARDS, GRAFANA, Json, dictionaries, expressions, stats, targets

from grafana import generate

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
NO_JUDGEMENT = {"#8e8e8e", "text"}  # colours
# The exporters of whole jobs: they tell llmhost's targets from others.
OF_WHOLE_JOBS = "llmhost_build_info"
# Grafana's units that the boards use, and suffixes.
UNIT = re.compile(r"none|short|percentunit|bytes|s|celsius|watt|dateTimeFromNow|suffix: ?\S+")
# Metrics beside the exporter's, with their labels: recordings, and alerts.
RECORDED = {rule["record"]: re.findall(r"\bby \((.*?)\)", rule["expr"])[0].split(", ") for rule in rules(RECORDINGS)}
OF_ALERTS = {"alertname", "alertstate", "severity"}.union(*(family.labels for family in catalogue().values()))
METRICS = {
    **catalogue(),
    **{name: SimpleNamespace(labels=tuple(labels)) for name, labels in RECORDED.items()},
    **dict.fromkeys(("ALERTS", "ALERTS_FOR_STATE"), SimpleNamespace(labels=tuple(OF_ALERTS))),
}

each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def variables(board: Json) -> dict[str, Json]:
    return {variable["name"]: variable for variable in board["templating"]["list"] if variable["type"] == "query"}


def content(panel: Json) -> str:
    return str(panel.get("options", {}).get("content", ""))


def asking(board: Json) -> list[Json]:
    return [panel for panel in board["panels"] if panel["type"] not in {"row", "text"}]


def test_the_files_are_what_the_generator_writes() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in GRAFANA.glob("*.json")}
    assert written == generate.files(), "run: make dashboards"


def test_boards_have_the_names_that_bookmarks_and_alerts_use() -> None:
    assert {uid: board["uid"] for uid, board in BOARDS.items()} == {uid: uid for uid in BOARDS}
    assert {board["title"] for board in BOARDS.values()} == {
        f"llmhost / {name}" for name in ("Incident", "Host", "Fleet", "Engines")
    }


@each_board
def test_a_board_belongs_to_no_server(board: Json) -> None:
    assert board["tags"] == ["llmhost"]
    assert board["id"] is None
    assert board["schemaVersion"] == 39
    assert board["editable"] is False
    assert not {"version", "iteration", "__inputs"} & board.keys()


@each_board
def test_every_datasource_is_the_variable(board: Json) -> None:
    used = [value["datasource"] for value in dictionaries(board) if "datasource" in value]
    assert len(used) > 10
    assert [datasource for datasource in used if datasource != DATASOURCE] == []
    assert all("datasource" in panel for panel in asking(board))
    (variable,) = (variable for variable in board["templating"]["list"] if variable["type"] == "datasource")
    assert (variable["name"], variable["label"], variable["query"]) == ("datasource", "Data source", "prometheus")
    assert variable["current"] == {}


@each_board
def test_hosts_are_chosen_step_by_step_from_what_is_always_there(board: Json) -> None:
    found = variables(board)
    metric = "instance:llmhost_blind:bool" if board["uid"] == "llmhost-fleet" else "llmhost_build_info"
    assert found["cluster"]["query"]["query"] == f"label_values({metric}, cluster)"
    assert found["job"]["query"]["query"] == f'label_values({metric}{{cluster=~"$cluster"}}, job)'
    if "instance" in found:
        of_jobs = 'cluster=~"$cluster", job=~"$job"'
        assert found["instance"]["query"]["query"] == f"label_values({metric}{{{of_jobs}}}, instance)"
    # "All" of clusters is also what has no such label.
    assert found["cluster"]["allValue"] == ".*"
    assert {found[name]["allValue"] for name in ("job", "instance", "unit") if name in found} == {".+"}
    # Only of `multi` does Grafana escape values, and systemd's names have backslashes.
    assert all(variable["multi"] and variable["refresh"] == 2 for variable in found.values())
    assert all(variable["definition"] == variable["query"]["query"] for variable in found.values())


@each_board
def test_panels_have_titles_descriptions_numbers_and_places_of_their_own(board: Json) -> None:
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["title"], panel["type"] == "row") for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["title"]
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not taken & cells, panel["title"]
        assert all(0 <= x < 24 for x, _ in cells)
        taken |= cells


@each_board
def test_panels_ask_and_their_queries_have_names_of_their_own(board: Json) -> None:
    for panel in asking(board):
        references = [target["refId"] for target in panel["targets"]]
        assert references, panel["title"]
        assert len(set(references)) == len(references), panel["title"]


@each_board
def test_every_value_has_a_unit(board: Json) -> None:
    for panel in asking(board):
        config = panel["fieldConfig"]
        overrides = [value for override in config["overrides"] for value in override["properties"]]
        units = [config["defaults"].get("unit", ""), *(value["value"] for value in overrides if value["id"] == "unit")]
        assert [unit for unit in units if not UNIT.fullmatch(unit)] == [], panel["title"]


@pytest.mark.parametrize("board", BOARDS)
def test_no_data_is_neither_good_nor_bad(board: str) -> None:
    """Grafana colours it as what is below all steps (scaleFunc(-Infinity) of its displayProcessor)."""
    assert len(stats(board)) >= 5
    for stat in stats(board):
        below, *steps = stat["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert (below["value"], below["color"] in NO_JUDGEMENT) == (None, True), stat["title"]
        assert [step["value"] for step in steps] == sorted(step["value"] for step in steps), stat["title"]
        assert not steps or steps[0]["value"] == 0, stat["title"]


@pytest.mark.parametrize("board", BOARDS)
def test_the_titles_of_numbers_fit_above_them_on_a_laptop(board: str) -> None:
    """Of 1280 pixels a column has 52; the icon of the description and the edges take 48 of a panel's."""
    for stat in stats(board):
        assert len(stat["title"]) * 8 <= 52 * stat["gridPos"]["w"] - 48, stat["title"]


@each_board
def test_no_legend_shows_an_old_value_as_if_it_still_held(board: Json) -> None:
    """Grafana's lastNotNull is the last value that there was, also of hours ago: of memory that has long come back."""
    legends = [panel["options"]["legend"] for panel in board["panels"] if panel["type"] == "timeseries"]
    assert legends
    assert {calculation for legend in legends for calculation in legend["calcs"]} <= {"last", "max", "mean", "sum"}


@each_board
def test_every_query_asks_of_what_is_chosen(board: Json) -> None:
    chosen = ["cluster", "job", *(["instance"] if "instance" in variables(board) else [])]
    for value in dictionaries(board):
        if "expr" in value:
            found = list(selectors(value["expr"]))
            assert found, value["expr"]
            assert metrics_in(value["expr"]) <= {name for name, _ in found}, "a metric without matchers"
            for name, matchers in found:
                wanted = chosen[:2] if name == OF_WHOLE_JOBS else chosen
                assert all(matchers.get(label) == ("=~", f"${label}") for label in wanted), (name, value["expr"])


def test_the_exclusions_for_the_linter_name_what_there_is() -> None:
    """grafana/.lint: the panels whose queries have no instance are those that ask for whole jobs."""
    rules_excluded = yaml.safe_load((GRAFANA / ".lint").read_text(encoding="utf-8"))["exclusions"]
    named = {
        rule: {(entry["dashboard"], entry.get("panel", "")) for entry in excluded["entries"]}
        for rule, excluded in rules_excluded.items()
    }
    panels = {(board["title"], panel["title"]) for board in BOARDS.values() for panel in board["panels"]}
    titles = {(board["title"], "") for board in BOARDS.values()}
    assert set().union(*named.values()) <= panels | titles
    without_instance = {
        (board["title"], panel["title"])
        for board in BOARDS.values()
        for panel, target in targets(board)
        if OF_WHOLE_JOBS in target["expr"] and "instance" in variables(board)
        if any("instance" not in matchers for _, matchers in selectors(target["expr"]))
    }
    assert named["target-instance-rule"] == without_instance | {("llmhost / Fleet", "")}


@each_board
def test_every_metric_label_and_value_exists(board: Json) -> None:
    for expr in expressions(board):
        wanted = re.sub(r"^label_values\((.*?)(, *\w+)?\)$", r"\1", expr).replace('"$manager"', '"system"')
        assert set(unknown_in(wanted, METRICS)) == set(), expr


@each_board
def test_texts_name_metrics_that_exist(board: Json) -> None:
    texts = " ".join(value for panel in board["panels"] for value in (panel.get("description", ""), content(panel)))
    assert set(re.findall(r"(?<![\w:])llmhost_\w+", texts)) - catalogue().keys() == set()


def test_the_board_of_the_fleet_asks_for_recordings_alone() -> None:
    wanted = {name for _, target in targets(BOARDS["llmhost-fleet"]) for name, _ in selectors(target["expr"])}
    assert wanted <= RECORDED.keys()


@each_board
def test_counters_stand_where_a_reset_does_no_harm(board: Json) -> None:
    """In a rate; or counted exactly, as grafana.kit.queries has it: against the least value within a window."""
    for panel, target in targets(board):
        rest = re.sub(r"rate\([^()]*\[\$__rate_interval\]\)|increase\([^()]*\[\w+\]\)", "", target["expr"])
        for counter in re.findall(r"\w+_total\{[^}]*\}", rest):
            shown_as_it_is = panel["title"] == "XID errors"  # a table of all that there has been
            assert f"min_over_time({counter}[" in rest or shown_as_it_is, (panel["title"], counter)


@each_board
def test_what_counts_events_in_each_step_has_a_least_step(board: Json) -> None:
    """Else a drawing of a short time would count them over less than a scrape interval, and find none."""
    for panel, target in targets(board):
        assert "$__interval" not in target["expr"] or target["interval"] == "1m", panel["title"]


def test_links_of_alerts_lead_to_boards_and_choose_by_variables_that_they_have() -> None:
    links = set(
        re.findall(r"dashboard_url: \S+?/d/(\S+?)(?:\?(.*))?$", RULES.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert {uid for uid, _ in links} == {"llmhost-incident", "llmhost-host", "llmhost-fleet"}
    for uid, query in links:
        chosen = set(re.findall(r"\bvar-(\w+)=", query))
        assert chosen == (variables(BOARDS[uid]).keys() - {"gpu"} if uid != "llmhost-fleet" else set()), uid
