"""One page of series under construction: labels strict, values finite, no series twice, families bounded."""

import math
from collections.abc import Iterator, Mapping

from llmhost.metrics.catalog import Family

Labels = tuple[str, ...]


class Page:
    """Families and their series by label values, in the order they were added.

    prometheus_client drops a missing label without a word and exposes a series twice; Prometheus then keeps the
    first. Here either raises, so that a bug costs the section it is in and is seen.
    """

    def __init__(self, max_per_family: int) -> None:
        self.max_per_family = max_per_family
        self._families: dict[str, tuple[Family, dict[Labels, float]]] = {}
        self.dropped: dict[str, int] = {}

    def add(self, family: Family, value: float | None, /, **labels: str) -> None:
        """Add one series; a value of None adds nothing: what is not known is absent.

        Raises TypeError for a wrong label set, ValueError for a value that is no finite number and for a series
        that is already there.
        """
        if value is None:
            return
        if labels.keys() != set(family.labels):
            raise TypeError(f"{family.name} has labels {family.labels}, got {tuple(labels)}")
        if not math.isfinite(value):
            raise ValueError(f"{family.name}: {value} is no value")
        key = tuple(labels[name] for name in family.labels)
        _, series = self._families.setdefault(family.name, (family, {}))
        if key in series:
            raise ValueError(f"{family.name}{key} is already there")
        if len(series) >= self.max_per_family:
            self.dropped[family.name] = self.dropped.get(family.name, 0) + 1
            return
        series[key] = float(value)

    def take(self, other: "Page") -> None:
        """Add another page's families. Raises ValueError for a family that both have: each has one place."""
        twice = self._families.keys() & other._families.keys()  # noqa: SLF001
        if twice:
            raise ValueError(f"families of two sections: {sorted(twice)}")
        self._families.update(other._families)  # noqa: SLF001
        self.dropped.update(other.dropped)

    def families(self) -> Iterator[tuple[Family, Mapping[Labels, float]]]:
        yield from self._families.values()
