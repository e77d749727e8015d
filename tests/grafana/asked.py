"""Boards opened on a written history: every query of every panel, variable and annotation, answered by Prometheus.

view = View("incident", 11430, {"unit": ["vllm@glm.service"]})  # history, second that is now, what is chosen
opened(view, "llmhost-incident")["State", "A"]                   # -> [Answer(labels, values)]
"""

import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from tests.fakes.backfilled import Backfilled, matrix, shared, without_name
from tests.grafana.answered import BOARDS, Json
from tests.grafana.substitution import Span, Variable, aligned, steps_of, substituted, variables
from tests.grafana.written.series import Labels

POINTS = 600  # pixels that a panel is wide


@dataclass(frozen=True)
class View:
    """A board, opened at a second of a history, which shows all of it until then."""

    history: str
    now: int
    chosen: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def prometheus(self) -> Backfilled:
        return shared(self.history)

    @property
    def span(self) -> Span:
        return Span(self.prometheus.began, self.prometheus.began + self.now)


class Answer(NamedTuple):
    labels: Labels
    values: tuple[float, ...]
    lasts: bool = True  # it has a value at the end of what is shown


Answers = Mapping[tuple[str, str], Sequence[Answer]]  # by title and refId; of a repeated panel, all together


@cache
def chosen(view: View, board: str) -> Mapping[str, Variable]:
    return variables(BOARDS[board], lambda selector, label: _label_values(view, selector, label), dict(view.chosen))


@cache
def opened(view: View, board: str) -> Answers:
    """Give what the panels and annotations show; a query that Prometheus refuses fails here."""
    found: dict[tuple[str, str], list[Answer]] = {}
    for title, ref, target, values in _targets(view, board):
        found.setdefault((title, ref), []).extend(_answers(view, target, values))
    for annotation in BOARDS[board]["annotations"]["list"]:
        if "expr" in annotation:
            target = {"expr": annotation["expr"], "interval": annotation["step"]}
            found[f"annotation {annotation['name']}", "A"] = list(_answers(view, target, chosen(view, board)))
    return found


def _targets(view: View, board: str) -> Iterator[tuple[str, str, Json, Mapping[str, Variable]]]:
    for panel in BOARDS[board]["panels"]:
        repeated = panel.get("repeat")
        values = chosen(view, board)
        for value in values[repeated].values if repeated else (None,):
            mine = values if value is None else {**values, repeated: Variable(repeated, (value,), several=True)}
            for target in panel.get("targets", ()):
                asked = {"panel_min": panel.get("interval"), "points": panel.get("maxDataPoints") or POINTS}
                yield panel["title"], target["refId"], target | asked, mine


def _answers(view: View, target: Json, values: Mapping[str, Variable]) -> Iterator[Answer]:
    steps = steps_of(
        view.span,
        points=target.get("points", POINTS),
        min_step=target.get("interval"),
        panel_min=target.get("panel_min"),
        scrape_seconds=view.prometheus.history.every,
    )
    expr = substituted(target["expr"], values, view.span, steps)
    assert "$" not in expr, expr
    if target.get("instant"):
        for one in view.prometheus.at(view.now, expr):
            yield Answer(without_name(one["metric"]), (float(one["value"][1]),))
    else:
        start, end = aligned(view.span, steps.step)
        for one in matrix(view.prometheus, expr, start, end, steps.step):
            shown = tuple(float(value) for _, value in one["values"])
            yield Answer(without_name(one["metric"]), shown, lasts=one["values"][-1][0] == end)


def _label_values(view: View, selector: str, label: str) -> list[str]:
    asked = {"start": view.span.start, "end": view.span.end} | ({"match[]": selector} if selector else {})
    found: list[str] = view.prometheus.api(f"label/{label}/values?{urllib.parse.urlencode(asked)}")["data"]
    return found


def empty(answers: Answers) -> set[str]:
    """Name the panels that find nothing; where some of a panel's queries do, those that do not: "title/B"."""
    silent = {title for title, _ in answers} - {title for (title, _), found in answers.items() if found}
    return silent | {f"{title}/{ref}" for (title, ref), found in answers.items() if not found and title not in silent}
