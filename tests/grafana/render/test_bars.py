"""Bars of a state timeline, whose module runs in Chromium: what has ended must not seem to go on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.browser import Browser, Page

BARS = (Path(__file__).parent / "page" / "bars.js").read_text(encoding="utf-8").replace("export ", "")


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with Browser() as browser, browser.page() as one:
        one.run(BARS)
        yield one


@pytest.mark.parametrize(
    ("points", "bars"),
    [
        ([(0, 1), (30, 1), (60, 1)], [(0, 75, 1)]),  # up to the last step, which is not over at 75
        ([(0, 1), (30, 1)], [(0, 60, 1)]),  # ended: one step more, and no further
        ([(0, 1), (60, 1)], [(0, 30, 1), (60, 75, 1)]),  # a point is missing
        ([(0, 1), (30, 2), (60, 1)], [(0, 30, 1), (30, 60, 2), (60, 75, 1)]),
        ([(0, 1), (30, None), (60, 1)], [(0, 30, 1), (60, 75, 1)]),
        ([(30, 3)], [(30, 60, 3)]),
        ([], []),
    ],
)
def test_a_value_holds_until_the_next_point_but_no_longer_than_a_step(
    page: Page, points: list[tuple[int, int | None]], bars: list[tuple[int, int, int]]
) -> None:
    time: dict[str, Any] = {"config": {"interval": 30}, "values": [at for at, _ in points]}
    field = {"values": [value for _, value in points]}
    made = page.run(f"barsOf({json.dumps(time)}, {json.dumps(field)}, 75)")
    assert [(one["from"], one["to"], one["value"]) for one in made] == bars
