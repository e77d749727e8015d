"""Places of panels: Grafana's grid of 24 columns, its repeated panels and its rows."""

from typing import Any

from tests.grafana.render.places import placed
from tests.grafana.substitution import Variable

GPUS = Variable("gpu", ("0", "1", "2", "3", "4"), several=True, all_of_them=True, all_value=".+")


def panel(x: int, y: int, w: int, h: int, **more: object) -> dict[str, Any]:
    return {"type": "stat", "gridPos": {"x": x, "y": y, "w": w, "h": h}, **more}


def test_a_repeated_panel_has_a_copy_for_each_value_and_pushes_down_what_is_below() -> None:
    panels = [panel(0, 0, 24, 4), panel(0, 4, 24, 6, repeat="gpu", maxPerRow=4), panel(0, 10, 24, 2)]
    found = placed(panels, {"gpu": GPUS})
    assert [(one.x, one.y, one.w, one.h) for one in found] == [
        (0, 0, 24, 4),
        *((column * 6, 4, 6, 6) for column in range(4)),
        (0, 10, 6, 6),
        (0, 16, 24, 2),
    ]
    assert [one.scoped["gpu"].as_promql() for one in found[1:6]] == ["0", "1", "2", "3", "4"]


def test_fewer_copies_than_fit_are_wider() -> None:
    found = placed([panel(0, 0, 24, 6, repeat="gpu", maxPerRow=4)], {"gpu": Variable("gpu", ("0", "1"), several=True)})
    assert [(one.x, one.w) for one in found] == [(0, 12), (12, 12)]


def test_there_is_one_copy_where_the_variable_has_no_value() -> None:
    gpus = Variable("gpu", (), several=True, all_of_them=True, all_value=".+")
    (only,) = placed([panel(0, 0, 24, 6, repeat="gpu", maxPerRow=4)], {"gpu": gpus})
    assert (only.w, only.scoped["gpu"].as_promql(), only.scoped["gpu"].as_text()) == (24, "", "None")


def test_what_a_collapsed_row_hides_is_drawn_as_if_it_were_open() -> None:
    hidden = panel(0, 1, 12, 8, title="hidden")
    row = {"type": "row", "title": "more", "collapsed": True, "panels": [hidden], **panel(0, 0, 24, 1)} | {
        "type": "row"
    }
    found = placed([row, panel(0, 1, 24, 3, title="after")], {})
    assert [(one.panel["type"], one.y) for one in found] == [("row", 0), ("stat", 1), ("stat", 9)]


def test_pixels_are_those_of_grafana() -> None:
    (whole,) = placed([panel(0, 2, 24, 3)], {})
    assert whole.pixels(1600) == {"x": 16, "y": 76, "w": 1568, "h": 106}
    (half,) = placed([panel(12, 0, 12, 1)], {})
    assert half.pixels(1600) == {"x": 804, "y": 0, "w": 780, "h": 30}
