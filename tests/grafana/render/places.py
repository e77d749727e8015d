"""Where panels of a board lie: Grafana's grid, with the copies of repeated panels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.grafana.substitution import Variable

Json = dict[str, Any]

COLUMNS = 24
CELL, GAP, EDGE = 30, 8, 16  # pixels


@dataclass(frozen=True)
class Placed:
    """A panel at its place in cells; `scoped` has the one value of the variable that it is repeated for."""

    panel: Json
    x: int
    y: int
    w: int
    h: int
    scoped: Mapping[str, Variable]

    def pixels(self, width: int) -> Json:
        column = (width - 2 * EDGE - (COLUMNS - 1) * GAP) / COLUMNS
        return {
            "x": round(EDGE + self.x * (column + GAP)),
            "y": self.y * (CELL + GAP),
            "w": round(self.w * column + (self.w - 1) * GAP),
            "h": self.h * CELL + (self.h - 1) * GAP,
        }


def placed(panels: Sequence[Json], chosen: Mapping[str, Variable]) -> list[Placed]:
    """Place all, those of collapsed rows too, as if these had been opened; copies push down what is below them."""
    down = 0
    found: list[Placed] = []
    for one in sorted(_opened(panels), key=lambda panel: (panel["gridPos"]["y"], panel["gridPos"]["x"])):
        place = one["gridPos"]
        at = Placed(one, place["x"], place["y"] + down, place["w"], place["h"], {})
        name = one.get("repeat")
        if not name or name not in chosen:
            found.append(at)
            continue
        assert one["type"] != "row", "rows that are repeated are not drawn"
        copies = list(_copies(at, chosen[name], one.get("maxPerRow", 4), one.get("repeatDirection", "h")))
        found += copies
        down += max(copy.y + copy.h for copy in copies) - (at.y + at.h)
    return found


def _opened(panels: Sequence[Json]) -> Iterator[Json]:
    """Give panels and those inside rows, which have their places as if the row were open."""
    down = 0
    for one in panels:
        place = one["gridPos"]
        yield {**one, "gridPos": {**place, "y": place["y"] + down}}
        inside = one.get("panels") or [] if one["type"] == "row" else []
        for inner in inside:
            yield {**inner, "gridPos": {**inner["gridPos"], "y": inner["gridPos"]["y"] + down}}
        if inside:
            bottom = max(inner["gridPos"]["y"] + inner["gridPos"]["h"] for inner in inside)
            down += bottom - (place["y"] + place["h"])


def _copies(first: Placed, variable: Variable, per_row: int, direction: str) -> Iterator[Placed]:
    values = variable.values or ("",)  # of none there is one copy, for "None"
    across = min(per_row, len(values)) if direction == "h" else 1
    for number, value in enumerate(values):
        scoped = {variable.name: replace(variable, values=(value,), all_of_them=False)}
        row, column = divmod(number, across)
        width = COLUMNS // across if direction == "h" else first.w
        yield replace(
            first, x=column * width if direction == "h" else first.x, y=first.y + row * first.h, w=width, scoped=scoped
        )
