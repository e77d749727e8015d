"""Frames and events made of Prometheus's answers, as Grafana's data source makes them."""

from typing import Any

from tests.grafana.render.frames import events, named, series_frames, table_frame

MATRIX = [
    {"metric": {"unit": "a.service", "gpu": "0"}, "values": [[60, "1"], [120, "NaN"]]},
    {"metric": {"unit": "b.service"}, "values": [[60, "3"]]},
]
VECTOR = [
    {"metric": {"unit": "b.service"}, "value": [60, "3"]},
    {"metric": {"gpu": "0", "unit": "a.service"}, "value": [60.5, "1"]},
]


def test_each_series_is_a_frame_named_by_its_legend_which_knows_how_far_apart_its_points_are() -> None:
    first, second = series_frames("A", "{{unit}} GPU {{gpu}}", 60, MATRIX)
    time, value = first["fields"]
    assert (time["values"], time["config"]) == ([60000, 120000], {"interval": 60000})
    assert (value["values"], value["labels"]) == (["1", "NaN"], {"unit": "a.service", "gpu": "0"})
    assert value["config"] == {"displayNameFromDS": "a.service GPU 0"}
    assert second["fields"][1]["config"] == {"displayNameFromDS": "b.service GPU "}


def test_a_series_without_a_legend_is_named_by_its_labels() -> None:
    assert named("", {"__name__": "up", "job": "llmhost"}) == 'up{job="llmhost"}'


def test_a_table_has_a_column_for_each_label_and_one_for_the_value() -> None:
    frame = table_frame("B", VECTOR, alone=False)
    assert [(field["name"], field["values"]) for field in frame["fields"]] == [
        ("Time", [60000, 60500]),
        ("gpu", ["", "0"]),
        ("unit", ["b.service", "a.service"]),
        ("Value #B", ["3", "1"]),
    ]
    assert table_frame("B", VECTOR, alone=True)["fields"][-1]["name"] == "Value"


def test_a_table_that_found_nothing_keeps_its_column() -> None:
    assert [field["name"] for field in table_frame("C", [], alone=False)["fields"]] == ["Time", "Value #C"]


def annotated(result: list[dict[str, Any]], **told: object) -> list[tuple[float, float]]:
    return [(event["from"], event["to"]) for event in events(dict(told), result, 60)]


def test_points_a_step_apart_are_one_span_and_zeros_none() -> None:
    values = [[0, "0"], [60, "1"], [120, "1"], [180, "0"], [300, "2"], [361, "1"]]
    assert annotated([{"metric": {}, "values": values}]) == [(60000, 120000), (300000, 300000), (361000, 361000)]


def test_a_value_that_is_a_moment_is_marked_once() -> None:
    values = [[600, "540000"], [660, "540000"], [720, "700000"]]
    found = annotated([{"metric": {}, "values": values}], useValueForTime=True)
    assert found == [(540000, 540000), (700000, 700000)]


def test_an_event_has_the_annotations_colour_and_a_title() -> None:
    told = {"iconColor": "purple", "titleFormat": "XID {{xid}}"}
    (event,) = events(told, [{"metric": {"xid": "79"}, "values": [[60, "1"]]}], 60)
    assert (event["colour"], event["title"]) == ("purple", "XID 79")
