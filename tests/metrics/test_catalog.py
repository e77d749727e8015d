"""The catalogue keeps the rules of Prometheus and of docs/metrics.md."""

import re
from pathlib import Path

import pytest

from llmhost.metrics import catalog
from llmhost.metrics.catalog import FAMILIES, Family, MetricKind
from llmhost.metrics.docs import markdown

FORBIDDEN_LABELS = {"pid", "cmdline", "user", "container", "hostname", "instance", "job", "type", "le", "quantile"}
ALL = list(FAMILIES.values())


@pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)
def test_names_and_labels_keep_the_conventions(family: Family) -> None:
    assert re.fullmatch(r"llmhost_[a-z][a-z0-9_]*[a-z0-9]", family.name)
    assert family.name.endswith("_total") == (family.kind is MetricKind.COUNTER)
    assert len(set(family.labels)) == len(family.labels)
    assert not FORBIDDEN_LABELS & set(family.labels)
    assert family.help.endswith(".")
    if family.kind is MetricKind.GAUGE:
        assert f"{family.name}_total" not in FAMILIES  # one family in OpenMetrics


def test_what_is_declared_has_its_place_on_the_page_and_no_name_is_declared_twice() -> None:
    declared = [family.name for family in vars(catalog).values() if isinstance(family, Family)]
    assert sorted(declared) == sorted(FAMILIES)


def test_gpu_series_say_which_gpu_and_unit_series_which_unit() -> None:
    for family in ALL:
        if family.name.startswith("llmhost_gpu_"):
            assert family.labels[:2] == ("gpu", "uuid")
        if family.name.startswith("llmhost_unit_"):
            assert family.labels[:2] == ("unit", "manager")


def test_the_docs_are_what_the_catalogue_says() -> None:
    docs = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert docs.read_text() == markdown(), "run make docs"
