"""What holds for all boards: as generated, of no server, whole, and asking for what is exported of the chosen hosts."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.alerts.expressions import check_that_all_parse
from tests.grafana.answered import BOARDS, FOLDER, asked, everything_in, expressions, unknown

from grafana import generate

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# A selector, of series of ours, of Prometheus's own, or of what the rules record.
SELECTOR = re.compile(r'\b((?:[a-z_]+:)?llmhost_[\w:]+|up|ALERTS\w*)\b(\{(?:[^{}"]|"[^"]*")*\})?')
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
    assert [one for one in told if one != DATASOURCE] == []
    (variable,) = (one for one in board["templating"]["list"] if one["type"] == "datasource")
    assert (variable["name"], variable["query"], variable["current"]) == ("datasource", "prometheus", {})


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
def test_every_panel_says_what_it_shows_and_in_what_unit(name: str) -> None:
    for panel in BOARDS[name]["panels"]:
        assert panel["title"]
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith("."), panel["title"]
        if panel["type"] == "text":
            continue
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert references
        assert len(set(references)) == len(references)


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
def test_every_query_parses(name: str, tmp_path: Path) -> None:
    found = [asked(BOARDS[name], expr) for expr in expressions(BOARDS[name])]
    assert len(found) > 20
    check_that_all_parse(found, tmp_path)


@each_board
def test_every_query_asks_for_what_there_is(name: str) -> None:
    assert [what for expr in expressions(BOARDS[name]) for what in unknown(expr)] == []


@each_board
def test_every_query_asks_of_what_is_chosen(name: str) -> None:
    board = BOARDS[name]
    chosen = ["cluster", "job", *(["instance"] if "instance" in variables_of(board) else [])]
    for expr in expressions(board):
        found = SELECTOR.findall(re.sub(r"\b(?:by|on|group_left|group_right) \([^)]*\)", "", expr))
        assert found, expr
        for metric, matchers in found:
            wanted = chosen[:2] if metric == OF_WHOLE_JOBS else chosen
            assert all(f'{label}=~"${label}"' in matchers for label in wanted), expr


def test_a_selector_that_asks_of_all_is_seen() -> None:
    (found,) = SELECTOR.findall("sum(instance_unit:llmhost_unit_state:code) + on () vector(1)")
    assert found == ("instance_unit:llmhost_unit_state:code", "")
    assert unknown('sum by (bar) (llmhost_foo) + llmhost_gpu_up{cause="lost"} + instance:llmhost_foo:sum{x="y"}') == [
        "metric llmhost_foo",
        "label cause of llmhost_gpu_up",
        "metric instance:llmhost_foo:sum",
        "label bar",
    ]
