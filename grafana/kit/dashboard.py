"""A board around its panels: variables, annotations, links, and the places of the panels."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from grafana.kit.panels import DATASOURCE, Json
from grafana.kit.queries import CLUSTERS, HOST

WIDTH = 24  # columns of Grafana's grid


@dataclass(slots=True)
class Layout:
    """Places panels in lines, from above."""

    panels: list[Json] = field(default_factory=list)
    _y: int = 0

    def heading(self, title: str) -> None:
        self._place({"type": "row", "title": title, "collapsed": False, "panels": []}, 0, WIDTH, 1)
        self._y += 1

    def line(self, height: int, *panels: Json, widths: Sequence[int] = ()) -> None:
        """Place panels side by side; without widths all are as wide, and the last fills the line."""
        wide = list(widths) or [WIDTH // len(panels)] * len(panels)
        if not widths:
            wide[-1] = WIDTH - sum(wide[:-1])
        assert sum(wide) == WIDTH, [one["title"] for one in panels]  # noqa: S101 - a fault of ours, seen by make dashboards
        x = 0
        for one, width in zip(panels, wide, strict=True):
            self._place(one, x, width, height)
            x += width
        self._y += height

    def _place(self, one: Json, x: int, width: int, height: int) -> None:
        place = {"h": height, "w": width, "x": x, "y": self._y}
        self.panels.append({"id": len(self.panels) + 1, **one, "gridPos": place})


def variable(name: str, label: str, query: str, *, every: bool = True, everything: str = ".+") -> Json:
    """Let the reader choose among the query's values; with `every` all are chosen at first, else the first one.

    It is `multi` in any case: only then does Grafana escape what a regular expression would read otherwise, such as
    the backslash that systemd puts into names.
    """
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": dict(DATASOURCE),
        "definition": query,
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": 2,
        "sort": 7,
        "multi": True,
        "includeAll": every,
        "allValue": everything,
        "current": {"text": ["All"], "value": ["$__all"]} if every else {},
        "options": [],
    }


def datasource() -> Json:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "current": {},
        "options": [],
        "refresh": 1,
    }


def of_clusters(told_by: str = "llmhost_build_info") -> list[Json]:
    """Choose among clusters and jobs, by what every exporter exports, or by another metric."""
    return [
        datasource(),
        # Its "All" takes in what has no such label.
        variable("cluster", "Cluster", f"label_values({told_by}, cluster)", everything=".*"),
        variable("job", "Job", f'label_values({told_by}{{cluster=~"$cluster"}}, job)'),
    ]


def of_hosts(*, every: bool = True) -> list[Json]:
    """Choose among hosts, by what every exporter exports."""
    hosts = f"label_values(llmhost_build_info{{{CLUSTERS}}}, instance)"
    return [*of_clusters(), variable("instance", "Instance", hosts, every=every)]


def of_units(told_by: str = "llmhost_unit_info", *, every: bool = True) -> list[Json]:
    """Choose among units, and where two managers have one of that name, between these."""
    managers = f'label_values({told_by}{{{HOST}, unit=~"$unit"}}, manager)'
    return [
        variable("unit", "Unit", f"label_values({told_by}{{{HOST}}}, unit)", every=every),
        variable("manager", "Manager", managers),
    ]


def annotation(
    name: str, colour: str, expr: str, *, title: str, text: str, at_value: bool = False, shown: bool = True
) -> Json:
    """Mark moments; `at_value`: the series' value is the moment, in milliseconds."""
    made: Json = {
        "name": name,
        "datasource": dict(DATASOURCE),
        "enable": shown,
        "iconColor": colour,
        "expr": expr,
        "step": "60s",
        "titleFormat": title,
        "textFormat": text,
    }
    return {**made, "useValueForTime": True} if at_value else made


def pages(matchers: str, *, text: str, shown: bool = True) -> Json:
    """Mark when each alert that pages began: as regions over all that they last, a few of them hide what is drawn."""
    of_ours = f'alertname=~"Llmhost.+", severity="critical", {matchers}'
    return annotation(
        "Pages",
        "orange",
        f'ALERTS_FOR_STATE{{{of_ours}}} * 1000 and ignoring (alertstate) ALERTS{{alertstate="firing", {of_ours}}}',
        title="{{alertname}}",
        text=text,
        at_value=True,
        shown=shown,
    )


def board_url(uid: str, *variables: str) -> str:
    """Give the address of one of our boards, at the time shown here; `variables` are parts of its query."""
    return "&".join((f"/d/{uid}?${{__url_time_range}}", "${datasource:queryparam}", *variables))


def row_url(uid: str, *columns: str) -> str:
    """Give the address of one of our boards for a row of a table: each of these columns chooses a variable there."""
    return board_url(uid, "${job:queryparam}", *(f"var-{one}=${{__data.fields.{one}}}" for one in columns))


def dashboard(
    uid: str,
    title: str,
    description: str,
    layout: Layout,
    *,
    variables: Sequence[Json],
    annotations: Sequence[Json] = (),
    shown_from: str = "now-6h",
    refresh: str = "30s",
) -> Json:
    def to_boards(name: str, tag: str) -> Json:
        return {
            "type": "dashboards",
            "title": name,
            "tags": [tag],
            "asDropdown": True,
            "icon": "external link",
            "includeVars": True,
            "keepTime": True,
            "targetBlank": False,
            "tooltip": "",
            "url": "",
        }

    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["llmhost"],
        "id": None,
        "schemaVersion": 39,
        "editable": False,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "refresh": refresh,
        "time": {"from": shown_from, "to": "now"},
        "timezone": "",
        "annotations": {"list": list(annotations)},
        "links": [to_boards("llmhost", "llmhost"), to_boards("vLLM", "vllm")],
        "templating": {"list": list(variables)},
        "panels": layout.panels,
    }
