"""Prometheus's answers as the data frames that Grafana's data source makes of them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Json = dict[str, Any]


def series_frames(ref: str, legend: str, step: float, result: Sequence[Json]) -> list[Json]:
    """Return a frame for each series; the step tells how far apart points may be without a gap."""
    return [
        {
            "refId": ref,
            "fields": [
                {
                    "name": "Time",
                    "type": "time",
                    "values": [round(float(at) * 1000) for at, _ in points],
                    "config": {"interval": step * 1000} if step else {},
                },
                {
                    "name": "Value",
                    "type": "number",
                    "labels": series["metric"],
                    "values": [value for _, value in points],
                    "config": {"displayNameFromDS": named(legend, series["metric"])},
                },
            ],
        }
        for series in result
        for points in [series.get("values") or [series["value"]]]
    ]


def table_frame(ref: str, result: Sequence[Json], *, alone: bool) -> Json:
    """Return one frame with a row for each series: the time, all labels in order, the value."""
    times = [round(float(series["value"][0]) * 1000) for series in result]
    fields: list[Json] = [{"name": "Time", "type": "time", "values": times, "config": {}}]
    for label in sorted({label for series in result for label in series["metric"]}):
        texts = [series["metric"].get(label, "") for series in result]
        fields.append({"name": label, "type": "string", "values": texts, "config": {"filterable": True}})
    name = "Value" if alone else f"Value #{ref}"
    fields.append({"name": name, "type": "number", "values": [series["value"][1] for series in result], "config": {}})
    return {"refId": ref, "fields": fields}


def named(legend: str, metric: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: metric.get(match[1], ""), legend)


def events(annotation: Json, result: Sequence[Json]) -> Iterator[Json]:
    """Give the moments that an annotation marks, which its series have as values."""
    assert annotation["useValueForTime"], "spans are not drawn here"
    for series in result:
        for moment in dict.fromkeys(float(value) for _, value in series["values"]):
            title = named(annotation["titleFormat"], series["metric"])
            yield {"from": moment, "to": moment, "colour": annotation["iconColor"], "title": title}
