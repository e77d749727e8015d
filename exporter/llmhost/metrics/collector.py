"""The page of metrics: observed, derived and rendered section by section; a section that fails costs itself alone."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from prometheus_client import PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from llmhost.collect.observer import Observation
from llmhost.collect.worker import CollectorHealth
from llmhost.config.schema import Config
from llmhost.derive.facts import Facts
from llmhost.derive.host_view import HostView, host_view
from llmhost.metrics.catalog import FAMILIES, Family, MetricKind
from llmhost.metrics.page import Labels, Page
from llmhost.metrics.sections import SECTIONS, Section
from llmhost.metrics.view import Own, PageView
from llmhost.model.reading import Cause, Failed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """The config that is in force, and its last reload."""

    config: Config
    loaded_at: float
    reload_success: bool


class Exposition:
    """Makes pages of metrics. Safe to use from several threads."""

    def __init__(
        self,
        *,
        observe: Callable[[float], Observation],
        in_force: Callable[[], InForce],
        version: str,
        revision: str,
        python_version: str,
        sections: tuple[tuple[str, Section], ...] = SECTIONS,
    ) -> None:
        self._observe = observe
        self._in_force = in_force
        self._version = version
        self._revision = revision
        self._python_version = python_version
        self._sections = sections
        self._lock = threading.Lock()
        self._dropped: dict[str, int] = {}
        empty = CollectorRegistry(auto_describe=False)
        self._process: tuple[Collector, ...] = (ProcessCollector(registry=empty), PlatformCollector(registry=empty))

    def metrics(self, deadline: float) -> Iterator[Metric]:
        """Observe by `deadline` on the monotonic clock and yield every family that has series."""
        page = self.page(deadline)
        series = {family.name: series for family, series in page.families()}
        for name, family in FAMILIES.items():
            if name in series:
                yield _metric(family, series[name])
        for collector in self._process:
            yield from collector.collect()

    def page(self, deadline: float) -> Page:
        in_force = self._in_force()
        host, health = self._observed(deadline, in_force.config)
        page = Page(in_force.config.series.max_per_family)
        patterns = frozenset(in_force.config.units.patterns)
        for collector, section in self._sections:
            part = Page(in_force.config.series.max_per_family)
            try:
                section(PageView(host=host, health=health, own=self._own(in_force), patterns=patterns), part)
                page.take(part)
            except Exception as error:
                log.exception("a bug in section %s of the page", section.__name__)
                health = _with_fault(health, collector, f"{type(error).__name__}: {error}")
            self._count_dropped(part.dropped)
        return page

    def _observed(self, deadline: float, config: Config) -> tuple[HostView, tuple[CollectorHealth, ...]]:
        """Observe and derive; a bug in a derivation leaves what needs none on the page, and shows in the health."""
        observation = self._observe(deadline)
        health = observation.health
        try:
            return host_view(observation.snapshot, observation.history, config), health
        except Exception as error:
            log.exception("a bug in what is derived for the page")
            detail = f"{type(error).__name__}: {error}"
            for collector in ("nvml", "systemd", "procfs", "shm"):
                health = _with_fault(health, collector, detail)
            nothing = Failed(Cause.UNKNOWN, detail)
            facts = Facts(attribution=nothing, units=nothing, segments=nothing, trackers=nothing, orphans=nothing)
            return host_view(observation.snapshot, observation.history, config, facts=facts), health

    def _own(self, in_force: InForce) -> Own:
        with self._lock:
            dropped = dict(self._dropped)
        return Own(
            version=self._version,
            revision=self._revision,
            python_version=self._python_version,
            config_reload_success=in_force.reload_success,
            config_loaded_at=in_force.loaded_at,
            dropped=dropped,
        )

    def _count_dropped(self, dropped: Mapping[str, int]) -> None:
        with self._lock:
            for family, count in dropped.items():
                self._dropped[family] = self._dropped.get(family, 0) + count


def _with_fault(health: tuple[CollectorHealth, ...], collector: str, detail: str) -> tuple[CollectorHealth, ...]:
    """Show a bug of ours in the collector whose series it cost."""
    return tuple(
        replace(state, fault=Failed(Cause.UNKNOWN, detail))
        if state.collector == collector and state.fault is None
        else state
        for state in health
    )


def _metric(family: Family, series: Mapping[Labels, float]) -> Metric:
    kind = CounterMetricFamily if family.kind is MetricKind.COUNTER else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in series.items():
        metric.add_metric(labels, value)
    return metric
