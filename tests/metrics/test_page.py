"""The page under construction refuses what prometheus_client lets through."""

import math

import pytest

from llmhost.metrics import catalog
from llmhost.metrics.page import Page


def test_a_missing_or_foreign_label_is_refused() -> None:
    page = Page(10)
    with pytest.raises(TypeError, match="llmhost_gpu_up has labels"):
        page.add(catalog.GPU_UP, 1, gpu="0")
    with pytest.raises(TypeError):
        page.add(catalog.GPU_UP, 1, gpu="0", uuid="u", unit="x")


def test_a_series_cannot_be_there_twice() -> None:
    page = Page(10)
    page.add(catalog.GPU_UP, 1, gpu="0", uuid="u")
    with pytest.raises(ValueError, match="already there"):
        page.add(catalog.GPU_UP, 0, gpu="0", uuid="u")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_is_a_finite_number(value: float) -> None:
    with pytest.raises(ValueError, match="is no value"):
        Page(10).add(catalog.GPUS, value)


def test_what_is_not_known_is_absent() -> None:
    page = Page(10)
    page.add(catalog.GPU_POWER, None, gpu="0", uuid="u")
    assert list(page.families()) == []


def test_what_is_over_the_bound_is_dropped_and_counted() -> None:
    page = Page(2)
    for index in range(5):
        page.add(catalog.GPU_UP, 1, gpu=str(index), uuid=f"GPU-{index}")
    ((family, series),) = page.families()
    assert family is catalog.GPU_UP
    assert list(series) == [("0", "GPU-0"), ("1", "GPU-1")]
    assert page.dropped == {"llmhost_gpu_up": 3}


def test_a_family_has_one_section() -> None:
    first, second = Page(10), Page(10)
    first.add(catalog.GPUS, 8)
    second.add(catalog.GPUS, 8)
    with pytest.raises(ValueError, match="two sections"):
        first.take(second)
