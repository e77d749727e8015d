"""A dashboard around its panels: layout, variables, annotations, links."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from grafana.kit.panels import DATASOURCE, Json
from grafana.kit.queries import CLUSTERS, HOST

WIDTH = 24  # columns of Grafana's grid


@dataclass(slots=True)
class Layout:
    """Panels in rows of the grid, from the top."""

    panels: list[Json] = field(default_factory=list)
    _y: int = 0

    def heading(self, title: str) -> None:
        self._place({"type": "row", "title": title, "collapsed": False, "panels": []}, 0, WIDTH, 1)
        self._y += 1

    def line(self, height: int, *panels: Json, widths: Sequence[int] = ()) -> None:
        """Place panels side by side; without `widths` they share the row equally, and the last one takes the rest."""
        wide = list(widths) or [WIDTH // len(panels)] * len(panels)
        if not widths:
            wide[-1] = WIDTH - sum(wide[:-1])
        assert sum(wide) == WIDTH, [panel["title"] for panel in panels]  # noqa: S101 - a fault of ours, seen by make dashboards
        x = 0
        for panel, width in zip(panels, wide, strict=True):
            self._place(panel, x, width, height)
            x += width
        self._y += height

    def _place(self, panel: Json, x: int, width: int, height: int) -> None:
        place = {"h": height, "w": width, "x": x, "y": self._y}
        self.panels.append({"id": len(self.panels) + 1, **panel, "gridPos": place})


def variable(name: str, label: str, query: str, *, every: bool = True, everything: str = ".+") -> Json:
    """Make a variable with the query's values; with `every` all are chosen at first, else the first one.

    It is always `multi`: only then does Grafana escape the characters of regular expressions, such as the backslash in
    names of systemd units.
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


def cluster_variables(metric: str = "llmhost_build_info") -> list[Json]:
    """Make the variables for the data source, cluster and job, from the labels of a metric that every host has."""
    return [
        datasource(),
        # "All" includes series without a cluster label.
        variable("cluster", "Cluster", f"label_values({metric}, cluster)", everything=".*"),
        variable("job", "Job", f'label_values({metric}{{cluster=~"$cluster"}}, job)'),
    ]


def host_variables(*, every: bool = True) -> list[Json]:
    """Make the variables of cluster_variables(), and one for the host."""
    hosts = f"label_values(llmhost_build_info{{{CLUSTERS}}}, instance)"
    return [*cluster_variables(), variable("instance", "Instance", hosts, every=every)]


def unit_variables(metric: str = "llmhost_unit_info", *, every: bool = True) -> list[Json]:
    """Make the variables for the unit, and for its manager: two managers may have a unit of the same name."""
    managers = f'label_values({metric}{{{HOST}, unit=~"$unit"}}, manager)'
    return [
        variable("unit", "Unit", f"label_values({metric}{{{HOST}}}, unit)", every=every),
        variable("manager", "Manager", managers),
    ]


def annotation(
    name: str, colour: str, expr: str, *, title: str, text: str, at_value: bool = False, shown: bool = True
) -> Json:
    """Mark moments; with `at_value` the series' value is the moment, in milliseconds."""
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
    """Mark the start of each critical alert. Regions over their whole time would hide the panels."""
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
    """Return the address of another llmhost board for the same time; `variables` are parts of its query string."""
    return "&".join((f"/d/{uid}?${{__url_time_range}}", "${datasource:queryparam}", *variables))


def row_url(uid: str, *columns: str) -> str:
    """Return the address of another llmhost board for a table row: each column sets the variable of its name."""
    return board_url(uid, "${job:queryparam}", *(f"var-{column}=${{__data.fields.{column}}}" for column in columns))


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
