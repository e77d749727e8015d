"""What Grafana puts in place of variables: values worked out by hand from its code (see substitution.py)."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.grafana.substitution import Span, Steps, Variable, aligned, steps_of, substituted, variables

SIX_HOURS = Span(1_000_000, 1_000_000 + 6 * 3600)
HOST = "gpu-1.example.com:10061"


def query(name: str, text: str, **more: object) -> dict[str, Any]:
    return {"type": "query", "name": name, "query": {"query": text, "refId": name}, "current": {}, **more}


BOARD = {
    "templating": {
        "list": [
            {"type": "datasource", "name": "datasource", "query": "prometheus", "current": {}},
            query("cluster", "label_values(llmhost_build_info, cluster)", multi=True, includeAll=True, allValue=".*"),
            query("instance", 'label_values(llmhost_build_info{cluster=~"$cluster"}, instance)', multi=True),
            query(
                "unit", 'label_values(llmhost_unit_info{instance=~"$instance"}, unit)', multi=True, regex="/service$/"
            ),
        ]
    }
}


class Labels:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def __call__(self, selector: str, label: str) -> Sequence[str]:
        self.asked.append((selector, label))
        return {
            "cluster": ["osaka", "tokyo"],
            "instance": [HOST, "gpu-2.example.com:10061"],
            "unit": ["dnsmasq", "vllm@glm.service", "vllm@qwen.service"],
        }[label]


def test_a_board_opened_without_choices_shows_all_where_that_is_offered_else_the_first_value() -> None:
    labels = Labels()
    chosen = variables(BOARD, labels)
    assert chosen["cluster"].all_of_them
    assert chosen["cluster"].values == ("osaka", "tokyo")
    assert chosen["instance"].values == (HOST,)
    assert chosen["unit"].values == ("vllm@glm.service",)
    assert labels.asked == [
        ("llmhost_build_info", "cluster"),
        ('llmhost_build_info{cluster=~".*"}', "instance"),
        (r'llmhost_unit_info{instance=~"gpu-1\\.example\\.com:10061"}', "unit"),
    ]


def test_several_values_are_alternatives_escaped_twice_for_a_string_of_promql_and_for_its_regular_expression() -> None:
    chosen = variables(BOARD, Labels(), {"instance": [HOST, "[::1]:1"], "cluster": ["tokyo"]})
    text = substituted('up{cluster=~"$cluster", instance=~"${instance}"}', chosen)
    assert text == r'up{cluster=~"tokyo", instance=~"(gpu-1\\.example\\.com:10061|\\[::1\\]:1)"}'


def test_a_variable_that_can_have_one_value_only_goes_in_unescaped() -> None:
    assert substituted('{instance=~"$instance"}', {"instance": Variable("instance", (HOST,))}) == (
        f'{{instance=~"{HOST}"}}'
    )


def test_all_goes_in_as_its_own_value_or_as_all_that_there_are() -> None:
    named = Variable("cluster", ("osaka", "tokyo"), several=True, all_of_them=True, all_value=".*")
    unnamed = Variable("unit", ("a.service", "b.service"), several=True, all_of_them=True)
    chosen = {"cluster": named, "unit": unnamed}
    assert substituted("$cluster $unit", chosen) == r".* (a\\.service|b\\.service)"
    assert substituted("$cluster / $unit", chosen, form="text") == "All / All"


def test_formats_say_how_values_are_written() -> None:
    chosen = {"unit": Variable("unit", ("a.service", "b.service"), several=True)}
    text = "${unit:pipe} ${unit:csv} ${unit:regex} ${unit:queryparam} ${unit:text}"
    assert substituted(text, chosen) == (
        r"a.service|b.service a.service,b.service (a\.service|b\.service) "
        "var-unit=a.service&var-unit=b.service a.service + b.service"
    )
    with pytest.raises(ValueError, match="doublequote"):
        substituted("${unit:doublequote}", chosen)


def test_longer_names_are_not_taken_for_shorter_ones_and_unknown_ones_stay() -> None:
    steps = Steps(30, 120)
    text = "$__interval $__interval_ms ${__rate_interval} $__range $__range_s $units ${__data.fields.unit}"
    chosen = {"unit": Variable("unit", ("x",))}
    assert substituted(text, chosen, SIX_HOURS, steps) == ("30s 30000 120s 21600s 21600 $units ${__data.fields.unit}")


def test_an_interval_that_is_no_whole_unit_is_cut_off_as_grafana_does() -> None:
    assert substituted("$__interval", {}, SIX_HOURS, Steps(90, 360)) == "1m"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"points": 800}, Steps(30, 60)),  # 27 s → 30 s; 30 + 15 < 4 × 15
        ({"points": 200}, Steps(120, 135)),  # 108 s → 2 min; 120 + 15
        ({"points": 3000}, Steps(15, 60)),  # 7 s → 5 s, below the scrape interval
        ({"points": 800, "scrape_seconds": 60.0}, Steps(60, 240)),
        ({"points": 800, "min_step": "1m"}, Steps(60, 240)),  # 27 s; 4 × 60
        ({"points": 100, "min_step": "1m"}, Steps(300, 360)),  # 216 s → 5 min; 300 + 60
        ({"points": 800, "min_step": "90"}, Steps(90, 360)),
        ({"points": 800, "panel_min": "5m"}, Steps(300, 315)),
        ({"points": 800, "min_step": "$__interval"}, Steps(30, 120)),
        ({"points": 800, "min_step": "$__rate_interval"}, Steps(60, 60)),
    ],
)
def test_steps_follow_the_width_the_least_step_and_the_scrape_interval(told: dict[str, Any], expected: Steps) -> None:
    assert steps_of(SIX_HOURS, **told) == expected


def test_a_long_range_is_asked_in_steps_that_prometheus_answers() -> None:
    year = Span(0, 365 * 86400)
    assert steps_of(year, points=100_000).step == 3600  # 315 s → 5 min, but 31,536,000 / 11,000 = 2867 s → 1 h


def test_a_range_query_starts_and_ends_at_multiples_of_its_step() -> None:
    assert aligned(Span(1_000_010, 1_003_610), 30) == (999_990, 1_003_590)
