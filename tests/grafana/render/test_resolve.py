"""Boards resolved over the incident's history, on a real Prometheus."""

from typing import Any

from tests.fakes.backfilled import Backfilled, shared
from tests.grafana.histories.incident import CRASH, GLM, INSTANCE, RESTARTS
from tests.grafana.render.resolve import Resolver
from tests.grafana.substitution import Span

HOUR = 3600


def query(name: str, text: str, **more: object) -> dict[str, Any]:
    return {"type": "query", "name": name, "query": {"query": text, "refId": name}, "multi": True, **more}


def resolved(panels: list[dict[str, Any]], annotations: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Resolve it over the hour that ends before somebody stops the unit, 11475 s after the history began."""
    board = {
        "uid": "tried",
        "title": "Tried",
        "templating": {
            "list": [
                query("instance", "label_values(llmhost_build_info, instance)"),
                query("unit", 'label_values(llmhost_unit_info{instance=~"$instance"}, unit)'),
                query(
                    "gpu", 'label_values(llmhost_gpu_up{instance=~"$instance"}, gpu)', includeAll=True, allValue=".+"
                ),
            ]
        },
        "annotations": {"list": annotations or []},
        "panels": panels,
    }
    prometheus = asked()
    span = Span(prometheus.began + 11460 - HOUR, prometheus.began + 11460)
    return Resolver(prometheus.api, span, scrape_seconds=30).board(board, 1600, {"unit": [GLM]})


def asked() -> Backfilled:
    return shared("incident")


def panel(*targets: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"type": "stat", "gridPos": {"x": 0, "y": 0, "w": 24, "h": 6}, "targets": list(targets), **more}


def test_variables_have_what_is_chosen_and_what_there_is() -> None:
    told = resolved([panel()])["variables"]
    assert told == [
        {"label": "instance", "text": INSTANCE},
        {"label": "unit", "text": GLM},
        {"label": "gpu", "text": "All"},
    ]


def test_an_instant_query_is_asked_at_the_end_of_the_time_shown() -> None:
    starts = 'sum(increase(llmhost_unit_starts_total{unit=~"$unit", verdict="resident"}[$__range]))'
    made = resolved([panel({"refId": "A", "expr": starts, "instant": True}, title="Starts of $unit")])
    (one,) = made["panels"]
    assert one["title"] == f"Starts of {GLM}"
    assert one["asked"][0]["series"] == 1
    (value,) = one["frames"][0]["fields"][1]["values"]
    assert round(float(value)) == len(RESTARTS) == 6


def test_a_range_query_has_points_as_close_as_the_panel_is_wide() -> None:
    made = resolved([panel({"refId": "A", "expr": 'llmhost_gpu_up{gpu="0"}', "legendFormat": "GPU {{gpu}}"})])
    time, value = made["panels"][0]["frames"][0]["fields"]
    assert value["config"]["displayNameFromDS"] == "GPU 0"
    # 3600 s of 1550 points are 2 s, which is below the scrape interval; both ends have a point
    assert (len(time["values"]), time["config"]) == (121, {"interval": 30000})


def test_a_repeated_panel_asks_for_one_value_each() -> None:
    expr = 'llmhost_gpu_up{gpu=~"$gpu", instance=~"$instance"}'
    made = resolved([panel({"refId": "A", "expr": expr}, title="GPU $gpu", repeat="gpu", maxPerRow=4)])
    assert [(one["title"], one["asked"][0]["series"]) for one in made["panels"]] == [
        (f"GPU {gpu}", 1) for gpu in range(8)
    ]


def test_what_prometheus_complains_of_is_told() -> None:
    (one,) = resolved([panel({"refId": "A", "expr": "sum(", "instant": True})])["panels"]
    assert one["frames"] == []
    assert one["asked"][0]["error"] == 'invalid parameter "query": 1:5: parse error: unclosed left parenthesis'


def test_annotations_that_are_on_mark_moments_and_spans() -> None:
    resident = 'llmhost_unit_last_resident_start_timestamp_seconds{unit=~"$unit"} * 1000'
    told = {"iconColor": "red", "titleFormat": "{{unit}}", "step": "30s"}
    made = resolved(
        [panel()],
        [
            {**told, "name": "resident", "enable": True, "expr": resident, "useValueForTime": True},
            {**told, "name": "XID", "enable": True, "expr": 'ALERTS{alertname="LlmhostXidApplication"}'},
            {**told, "name": "off", "enable": False, "expr": "vector(1)"},
        ],
    )
    assert [(one["name"], one["on"]) for one in made["layers"]] == [("resident", True), ("XID", True), ("off", False)]
    began = asked().began
    spans = [(one["from"] / 1000 - began, one["to"] / 1000 - began) for one in made["events"]]
    assert spans == [*((at, at) for at in RESTARTS), (CRASH, 11460)]
