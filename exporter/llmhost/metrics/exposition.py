"""A page as text: the Prometheus text format or OpenMetrics, as the scraper's Accept header asks."""

from collections.abc import Collection, Iterable

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry


class _Ready(Collector):
    """Metrics that are there already; describing them is not needed, nothing else is in their registry."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = tuple(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def encode(metrics: Iterable[Metric], accept: str, names: Collection[str] = ()) -> tuple[bytes, str]:
    """Return the page and its content type; with `names`, only families of these names or with such samples."""
    encoder, content_type = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Ready(metric for metric in metrics if not names or _is_named(metric, names)))
    return encoder(registry), content_type


def _is_named(metric: Metric, names: Collection[str]) -> bool:
    return metric.name in names or any(sample.name in names for sample in metric.samples)
