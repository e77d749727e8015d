"""What a panel looks like while nothing is known."""

import pytest
from tests.grafana.answered import BOARDS, Json

# grafana.kit.queries.CALM, and Grafana's colour of text.
NO_JUDGEMENT = {"#8e8e8e", "text"}


def numbers(board: str) -> list[Json]:
    return [one for one in BOARDS[board]["panels"] if one["type"] == "stat"]


@pytest.mark.parametrize("board", BOARDS)
def test_no_data_is_neither_good_nor_bad(board: str) -> None:
    """Grafana colours it as what is below all steps (scaleFunc(-Infinity) of its displayProcessor)."""
    assert len(numbers(board)) >= 5
    for one in numbers(board):
        steps = one["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert steps[0]["value"] is None, one["title"]
        assert steps[0]["color"] in NO_JUDGEMENT, one["title"]
        assert [step["value"] for step in steps[1:]] == sorted(step["value"] for step in steps[1:]), one["title"]


def test_a_number_that_is_judged_is_judged_from_0_on() -> None:
    (blind,) = (one for one in numbers("llmhost-fleet") if one["title"] == "Blind")
    steps = blind["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [(step["value"], step["color"]) for step in steps[1:]] == [(0, "green"), (1, "red")]
