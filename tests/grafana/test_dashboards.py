"""What holds for all boards: as generated, of no server, whole, and asking for what is exported of the chosen hosts."""

import re
from typing import Any

import pytest
from tests.grafana.answered import BOARDS, FOLDER, everything_in, expressions
from tests.grafana.linter import PROMETHEUS
from tests.grafana.promql import selectors

from grafana import generate

RULES = FOLDER.parent / "alerts" / "llmhost.rules.yml"
# Which exporters there are is asked of whole jobs: it tells targets of ours from others'.
OF_WHOLE_JOBS = "llmhost_build_info"

each_board = pytest.mark.parametrize("name", BOARDS)


def variables_of(board: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in board["templating"]["list"] if one["type"] == "query"}


def test_the_files_are_what_the_generator_writes() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert written == generate.files(), "run: make dashboards"


@each_board
def test_a_board_keeps_its_identity_and_belongs_to_no_server(name: str) -> None:
    board = BOARDS[name]
    assert board["uid"] == name  # links, alerts and bookmarks go by it: never change it
    assert board["tags"] == ["llmhost"]
    assert board["id"] is None
    assert board["schemaVersion"] == 39
    assert board["editable"] is False
    assert not {"version", "iteration", "__inputs"} & board.keys()


@each_board
def test_every_datasource_is_the_variable(name: str) -> None:
    board = BOARDS[name]
    told = [one["datasource"] for one in everything_in(board) if "datasource" in one]
    assert len(told) > 10
    assert [one for one in told if one != PROMETHEUS] == []
    (variable,) = (one for one in board["templating"]["list"] if one["type"] == "datasource")
    assert variable["current"] == {}


@each_board
def test_hosts_are_chosen_step_by_step_from_what_is_always_there(name: str) -> None:
    found = variables_of(BOARDS[name])
    told_by = "instance:llmhost_blind:bool" if name == "llmhost-fleet" else "llmhost_build_info"
    assert found["cluster"]["query"]["query"] == f"label_values({told_by}, cluster)"
    assert found["job"]["query"]["query"] == f'label_values({told_by}{{cluster=~"$cluster"}}, job)'
    if "instance" in found:
        of_jobs = 'cluster=~"$cluster", job=~"$job"'
        assert found["instance"]["query"]["query"] == f"label_values({told_by}{{{of_jobs}}}, instance)"
    # "All" of clusters is also what has no such label.
    assert found["cluster"]["allValue"] == ".*"
    assert {found[one]["allValue"] for one in ("job", "instance", "unit") if one in found} == {".+"}
    # Only of these does Grafana escape values, and systemd's names have backslashes.
    assert all(one["multi"] and one["refresh"] == 2 for one in found.values())


@each_board
def test_descriptions_are_sentences_and_a_panels_queries_have_names_of_their_own(name: str) -> None:
    for panel in BOARDS[name]["panels"]:
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]
        references = [target["refId"] for target in panel.get("targets", [])]
        assert len(set(references)) == len(references), panel["title"]


@each_board
def test_the_titles_of_numbers_fit_above_them_on_a_laptop(name: str) -> None:
    """Of 1280 pixels a column has 52; the icon of the description and the edges take 48 of a panel's."""
    for panel in BOARDS[name]["panels"]:
        if panel["type"] == "stat":
            assert len(panel["title"]) * 8 <= 52 * panel["gridPos"]["w"] - 48, panel["title"]


@each_board
def test_no_legend_tells_what_was_as_if_it_were_still_so(name: str) -> None:
    """Grafana's lastNotNull is the last value that there was, also of hours ago: of memory that has long come back."""
    legends = [panel["options"]["legend"] for panel in BOARDS[name]["panels"] if panel["type"] == "timeseries"]
    assert legends
    assert {one for legend in legends for one in legend["calcs"]} <= {"last", "max", "mean", "sum"}


@each_board
def test_panels_have_numbers_and_places_of_their_own(name: str) -> None:
    board = BOARDS[name]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in board["panels"]):
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not taken & cells
        assert all(0 <= x < 24 for x, _ in cells)
        taken |= cells


@each_board
def test_every_query_asks_of_what_is_chosen(name: str) -> None:
    board = BOARDS[name]
    chosen = ["cluster", "job", *(["instance"] if "instance" in variables_of(board) else [])]
    for expr in expressions(board):
        found = list(selectors(expr))
        assert found, expr
        for one in found:
            wanted = chosen[:2] if one.name == OF_WHOLE_JOBS else chosen
            assert all(one.matchers.get(label) == ("=~", f"${label}") for label in wanted), (one.name, expr)


def test_links_of_alerts_lead_to_boards_and_choose_by_variables_that_they_have() -> None:
    told = set(re.findall(r"dashboard_url: \S+?/d/(\S+?)(?:\?(.*))?$", RULES.read_text(encoding="utf-8"), re.MULTILINE))
    assert {uid for uid, _ in told} == {"llmhost-incident", "llmhost-host", "llmhost-fleet"}
    for uid, query in told:
        variables = {one["name"] for one in BOARDS[uid]["templating"]["list"]}
        chosen = set(re.findall(r"\bvar-(\w+)=", query))
        assert chosen == (variables - {"datasource", "gpu"} if uid != "llmhost-fleet" else set()), uid
