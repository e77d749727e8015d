"""Boards opened on a written history: every query of every panel, variable and annotation, answered by Prometheus.

view = View("incident", 11430, (("unit", ("vllm@glm.service",)),))  # history, second that is now, what is chosen
opened(view, "llmhost-incident")["State", "A"]                      # -> [Answer(labels, values)]
"""

import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from tests.fakes.backfilled import Backfilled, shared, without_name
from tests.grafana.boards import BOARDS, Json
from tests.grafana.histories.series import Labels
from tests.grafana.variables import Variable, queries, variables

_SECONDS = {"s": 1, "m": 60}


@dataclass(frozen=True)
class View:
    """The time shown, which ends at a second of a history, and the chosen values of variables."""

    history: str
    now: int
    chosen: tuple[tuple[str, tuple[str, ...]], ...] = ()
    seconds: int = 0  # of the time shown; 0: since the history began

    @property
    def prometheus(self) -> Backfilled:
        return shared(self.history)

    @property
    def shown(self) -> tuple[float, float]:
        """Start and end, in seconds since 1970."""
        end = self.prometheus.began + self.now
        return end - (self.seconds or self.now), end

    def step(self, target: Json) -> int:
        """Return the target's least step, or the time between two scrapes: no panel is so narrow that it needs more."""
        least = target.get("interval", "0s")
        return max(self.prometheus.history.every, int(least[:-1]) * _SECONDS[least[-1]])

    def results(self, target: Json, values: Mapping[str, Variable]) -> list[Json]:
        """Return Prometheus's answer to a query of a panel."""
        step, seconds = self.step(target), self.seconds or self.now
        expr = queries(target["expr"], values, step, seconds)
        assert "$" not in expr, expr
        if target.get("instant"):
            return self.prometheus.at(self.now, expr)
        first, last = (at // step * step for at in (self.now - seconds, self.now))
        return self.prometheus.over(first, last, step, expr)

    def label_values(self, selector: str, label: str) -> list[str]:
        start, end = self.shown
        parameters = {"start": start, "end": end} | ({"match[]": selector} if selector else {})
        found: list[str] = self.prometheus.api(f"label/{label}/values?{urllib.parse.urlencode(parameters)}")["data"]
        return found


class Answer(NamedTuple):
    labels: Labels
    values: tuple[float, ...]
    lasts: bool = True  # it has a value at the end of the time shown


Answers = Mapping[tuple[str, str], Sequence[Answer]]  # by title and refId; of a repeated panel, all together


@cache
def chosen(view: View, board: str) -> Mapping[str, Variable]:
    return variables(BOARDS[board], view.label_values, dict(view.chosen))


@cache
def opened(view: View, board: str) -> Answers:
    """Give what the panels and annotations show; a query that Prometheus refuses fails here."""
    found: dict[tuple[str, str], list[Answer]] = {}
    values = chosen(view, board)
    for panel in BOARDS[board]["panels"]:
        repeated = panel.get("repeat")
        for value in values[repeated].values if repeated else (None,):
            own = values if value is None else {**values, repeated: Variable(repeated, (value,))}
            for target in panel.get("targets", ()):
                found.setdefault((panel["title"], target["refId"]), []).extend(_answers(view, target, own))
    for annotation in BOARDS[board]["annotations"]["list"]:
        target = {"expr": annotation["expr"], "interval": annotation["step"]}
        found[f"annotation {annotation['name']}", "A"] = list(_answers(view, target, values))
    return found


def _answers(view: View, target: Json, values: Mapping[str, Variable]) -> Iterator[Answer]:
    step, end = view.step(target), view.shown[1]
    for series in view.results(target, values):
        samples = series.get("values") or [series["value"]]
        shown = tuple(float(value) for _, value in samples)
        yield Answer(without_name(series["metric"]), shown, lasts=samples[-1][0] >= end // step * step)


def empty(answers: Answers) -> set[str]:
    """Name the panels that find nothing; where some of a panel's queries do, those that do not: "title/B"."""
    silent = {title for title, _ in answers} - {title for (title, _), found in answers.items() if found}
    return silent | {f"{title}/{ref}" for (title, ref), found in answers.items() if not found and title not in silent}
