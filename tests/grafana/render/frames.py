"""Prometheus's answers as the data frames that Grafana's data source makes of them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Json = dict[str, Any]


def series_frames(ref: str, legend: str, step: float, result: Sequence[Json]) -> list[Json]:
    """One frame for each series; the step tells how far apart points may be without a gap."""
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
                    "labels": one["metric"],
                    "values": [value for _, value in points],
                    "config": {"displayNameFromDS": named(legend, one["metric"])},
                },
            ],
        }
        for one in result
        for points in [one.get("values") or [one["value"]]]
    ]


def table_frame(ref: str, result: Sequence[Json], *, alone: bool) -> Json:
    """Give one frame of a row for each series: the time, all labels in order, the value."""
    labels = sorted({label for one in result for label in one["metric"]})
    points = [(one["metric"], *(one.get("values") or [one["value"]])[-1]) for one in result]
    return {
        "refId": ref,
        "fields": [
            {"name": "Time", "type": "time", "values": [round(float(at) * 1000) for _, at, _ in points], "config": {}},
            *(
                {
                    "name": label,
                    "type": "string",
                    "values": [metric.get(label, "") for metric, _, _ in points],
                    "config": {"filterable": True},
                }
                for label in labels
            ),
            {
                "name": "Value" if alone else f"Value #{ref}",
                "type": "number",
                "values": [value for _, _, value in points],
                "config": {},
            },
        ],
    }


def named(legend: str, metric: Mapping[str, str]) -> str:
    if not legend or legend == "__auto":
        labels = ", ".join(f'{label}="{value}"' for label, value in metric.items() if label != "__name__")
        return f"{metric.get('__name__', '')}{{{labels}}}"
    return re.sub(r"\{\{\s*(.+?)\s*\}\}", lambda match: metric.get(match[1], ""), legend)


def events(told: Json, result: Sequence[Json], step: float) -> Iterator[Json]:
    """Moments and spans that an annotation marks: points above 0 that are no more than a step apart are one span."""
    for one in result:
        moments = [
            float(value) if told.get("useValueForTime") else float(at) * 1000
            for at, value in one["values"]
            if told.get("useValueForTime") or float(value) > 0
        ]
        spans: list[list[float]] = []
        for moment in moments:
            if spans and spans[-1][1] + step * 1000 >= moment:
                spans[-1][1] = moment
            else:
                spans.append([moment, moment])
        for start, end in spans:
            yield {
                "from": start,
                "to": end,
                "colour": told.get("iconColor", "red"),
                "title": named(told.get("titleFormat") or " ", one["metric"]),
            }
