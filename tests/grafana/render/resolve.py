"""A board with all its queries answered, as JSON for the page that draws it."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.grafana.boards import BOARDS
from tests.grafana.render.frames import events, series_frames, table_frame
from tests.grafana.variables import Variable, titles
from tests.grafana.views import View, chosen

Json = dict[str, Any]

_COLUMNS = 24
_CELL, _GAP, _EDGE = 30, 8, 16  # pixels


def resolved(view: View, uid: str, width: int) -> Json:
    """Return what the page draws: panels with places and data, annotations, variables with what is chosen."""
    board, values = BOARDS[uid], chosen(view, uid)
    start, end = view.shown
    annotations = board["annotations"]["list"]
    return {
        "title": board["title"],
        "width": width,
        "from": start * 1000,
        "to": end * 1000,
        "variables": [
            {
                "label": shown["label"],
                "text": values[shown["name"]].in_title() if shown["name"] in values else shown["query"],
            }
            for shown in board["templating"]["list"]
            if shown.get("hide") != 2  # not even its label is shown
        ],
        "layers": [
            {"name": annotation["name"], "colour": annotation["iconColor"], "on": annotation["enable"]}
            for annotation in annotations
        ],
        "events": [
            event for annotation in annotations if annotation["enable"] for event in _events(view, annotation, values)
        ],
        "links": [link["title"] for link in board["links"]],
        "panels": [_answered(view, panel, values, width) for panel, values in _placed(board["panels"], values)],
    }


def _placed(panels: list[Json], chosen: Mapping[str, Variable]) -> Iterator[tuple[Json, Mapping[str, Variable]]]:
    """Give each panel and its variables, repeated panels once for each value; copies push down what is below them."""
    down = 0
    for panel in panels:
        place = panel["gridPos"]
        if "repeat" not in panel:
            yield {**panel, "gridPos": {**place, "y": place["y"] + down}}, chosen
            continue
        name = panel["repeat"]
        values = chosen[name].values
        across = min(panel["maxPerRow"], len(values))
        wide = _COLUMNS // across
        for number, value in enumerate(values):
            row, column = divmod(number, across)
            at = {"x": column * wide, "y": place["y"] + down + row * place["h"], "w": wide, "h": place["h"]}
            yield {**panel, "gridPos": at}, {**chosen, name: Variable(name, (value,))}
        down += (len(values) - 1) // across * place["h"]


def _answered(view: View, panel: Json, values: Mapping[str, Variable], width: int) -> Json:
    texts: Json = {key: titles(panel[key], values) for key in ("title", "description") if key in panel}
    made: Json = {**panel, **texts, "place": _pixels(panel["gridPos"], width), "frames": [], "asked": []}
    if panel["type"] == "text":
        made["options"] = {**panel["options"], "content": titles(panel["options"]["content"], values)}
    targets = panel.get("targets", [])
    for target in targets:
        result = view.results(target, values)
        made["asked"].append({"ref": target["refId"], "series": len(result)})
        if target.get("format") == "table":
            made["frames"].append(table_frame(target["refId"], result, alone=len(targets) == 1))
        else:
            step = 0 if target.get("instant") else view.step(target)
            made["frames"] += series_frames(target["refId"], target["legendFormat"], step, result)
    return made


def _pixels(place: Mapping[str, int], width: int) -> Json:
    column = (width - 2 * _EDGE - (_COLUMNS - 1) * _GAP) / _COLUMNS
    return {
        "x": round(_EDGE + place["x"] * (column + _GAP)),
        "y": place["y"] * (_CELL + _GAP),
        "w": round(place["w"] * column + (place["w"] - 1) * _GAP),
        "h": place["h"] * _CELL + (place["h"] - 1) * _GAP,
    }


def _events(view: View, annotation: Json, values: Mapping[str, Variable]) -> Iterator[Json]:
    target = {"expr": annotation["expr"], "interval": annotation["step"]}
    yield from events(annotation, view.results(target, values))
