"""The drawing of each board, up to the page that draws it."""

import pytest
from tests.grafana.boards import BOARDS
from tests.grafana.histories.incident import CRASH, GLM, INSTANCE, RESTARTS
from tests.grafana.render.pictures import SCENES
from tests.grafana.render.resolve import resolved


@pytest.mark.parametrize("uid", BOARDS)
def test_each_board_has_all_that_is_drawn(uid: str) -> None:
    drawn = resolved(SCENES[uid].view(), uid, 1600)
    assert all(len(panel["asked"]) == len(panel.get("targets", [])) for panel in drawn["panels"])
    assert SCENES[uid].last in {panel["title"] for panel in drawn["panels"]}
    assert all("$" not in panel["title"] for panel in drawn["panels"])


def test_the_incident_has_its_variables_repeated_panels_tables_and_marks() -> None:
    view = SCENES["llmhost-incident"].view()
    drawn = resolved(view, "llmhost-incident", 1600)
    assert [(variable["label"], variable["text"]) for variable in drawn["variables"]] == [
        ("Data source", "prometheus"),
        ("Cluster", "All"),
        ("Job", "All"),
        ("Instance", INSTANCE),
        ("Unit", GLM),
        ("Manager", "All"),
    ]
    gpus = [panel for panel in drawn["panels"] if panel.get("repeat")]
    assert [(panel["title"], panel["place"]["x"]) for panel in gpus[:5]] == [
        *((f"GPU {gpu}", x) for gpu, x in enumerate((16, 410, 804, 1198))),
        ("GPU 4", 16),
    ]
    (holders,) = (panel for panel in drawn["panels"] if panel["title"] == "Who holds GPU memory")
    assert [field["name"] for field in holders["frames"][0]["fields"]] == [
        *("Time", "cluster", "gpu", "instance", "job", "kind", "manager", "unit", "Value #A")
    ]
    began = view.prometheus.began
    assert {event["from"] / 1000 - began for event in drawn["events"] if event["title"] == "start, memory held"} == {
        *RESTARTS
    }
    assert [event["from"] / 1000 - began for event in drawn["events"] if event["title"] == "XID 31"] == [CRASH]
