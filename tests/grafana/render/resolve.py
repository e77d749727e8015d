"""A board with all its questions answered, as JSON for the page that draws it."""

import json
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.grafana.render.frames import events, series_frames, table_frame
from tests.grafana.render.places import Placed, placed
from tests.grafana.substitution import Span, Variable, aligned, duration, steps_of, substituted, variables

Json = dict[str, Any]
Ask = Callable[[str], Any]  # a path below /api/v1/ -> the JSON of Prometheus's answer; raises where it is none

_ANNOTATION_STEP = "60s"  # where an annotation has none of its own
_INNER = 18  # what a panel's frame takes of its width, in pixels
_TEXTS = ("title", "description")


@dataclass(frozen=True)
class Asked:
    """One query of a panel: how many series it found, or Prometheus's complaint."""

    ref: str
    expr: str
    series: int
    error: str = ""


class Resolver:
    def __init__(self, ask: Ask, span: Span, *, scrape_seconds: float = 15.0) -> None:
        self._ask = ask
        self._span = span
        self._scrape = scrape_seconds

    def board(self, board: Json, width: int, chosen: Mapping[str, Sequence[str]] | None = None) -> Json:
        """Give what the page draws: panels with places and data, annotations, variables with what is chosen."""
        found = variables(board, self._label_values, chosen)
        layers = [one for one in board.get("annotations", {}).get("list", []) if "expr" in one]
        return {
            "uid": board["uid"],
            "title": board["title"],
            "width": width,
            "from": self._span.start * 1000,
            "to": self._span.end * 1000,
            "variables": [
                {"label": one.get("label") or one["name"], "text": found[one["name"]].as_text()}
                for one in board.get("templating", {}).get("list", [])
                if one.get("hide") != 2  # not even its label is shown
            ],
            "layers": [
                {"name": one["name"], "colour": one.get("iconColor", "red"), "on": one["enable"]} for one in layers
            ],
            "events": [event for one in layers if one["enable"] for event in self._events(one, found, width)],
            "links": [one["title"] for one in board.get("links", [])],
            "panels": [self._panel(one, found, width) for one in placed(board["panels"], found)],
        }

    def _panel(self, at: Placed, chosen: Mapping[str, Variable], width: int) -> Json:
        panel = at.panel
        known = {**chosen, **at.scoped}
        pixels = at.pixels(width)
        texts = {key: substituted(panel[key], known, form="text") for key in _TEXTS if key in panel}
        made: Json = {**panel, **texts, "place": pixels, "frames": [], "asked": []}
        if panel["type"] == "text":
            options = panel["options"]
            made["options"] = {**options, "content": substituted(options["content"], known, form="text")}
        targets = [one for one in panel.get("targets", []) if not one.get("hide")]
        tables = sum(one.get("format") == "table" for one in targets)
        for target in targets:
            frames, asked = self._target(target, panel, known, pixels["w"] - _INNER, alone=tables == 1)
            made["frames"] += frames
            made["asked"].append(vars(asked))
        return made

    def _target(
        self, target: Json, panel: Json, known: Mapping[str, Variable], points: int, *, alone: bool
    ) -> tuple[list[Json], Asked]:
        steps = steps_of(
            self._span,
            points=panel.get("maxDataPoints") or points,
            min_step=target.get("interval") or None,
            panel_min=panel.get("interval") or None,
            scrape_seconds=self._scrape,
        )
        ref, expr = target["refId"], substituted(target["expr"], known, self._span, steps)
        try:
            if target.get("instant"):
                result = self._query("query", query=expr, time=self._span.end)
            else:
                result = self._over(expr, steps.step)
        except (AssertionError, ValueError, OSError) as error:
            return [], Asked(ref, expr, 0, _told(error))
        asked = Asked(ref, expr, len(result))
        if target.get("format") == "table":
            return [table_frame(ref, result, alone=alone)], asked
        step = 0.0 if target.get("instant") else steps.step
        return series_frames(ref, target.get("legendFormat", ""), step, result), asked

    def _events(self, told: Json, chosen: Mapping[str, Variable], width: int) -> Iterator[Json]:
        least = told.get("step") or _ANNOTATION_STEP
        steps = steps_of(self._span, points=width, min_step=least, scrape_seconds=self._scrape)
        result = self._over(substituted(told["expr"], chosen, self._span, steps), steps.step)
        yield from events(told, result, max(steps.step, duration(least)))

    def _over(self, expr: str, step: float) -> list[Json]:
        start, end = aligned(self._span, step)
        return self._query("query_range", query=expr, start=start, end=end, step=step)

    def _query(self, kind: str, **given: object) -> list[Json]:
        result: list[Json] = self._ask(f"{kind}?{urllib.parse.urlencode(given)}")["data"]["result"]
        return result

    def _label_values(self, selector: str, label: str) -> list[str]:
        given = {"start": self._span.start, "end": self._span.end} | ({"match[]": selector} if selector else {})
        values: list[str] = self._ask(f"label/{label}/values?{urllib.parse.urlencode(given)}")["data"]
        return sorted(values)


def _told(error: Exception) -> str:
    """Say what Prometheus complained of, if it was Prometheus."""
    (told,) = error.args if len(error.args) == 1 else (str(error),)
    try:
        return str(json.loads(told)["error"])
    except (ValueError, TypeError, KeyError):
        return str(error)
