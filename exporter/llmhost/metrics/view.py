"""The view that a page of metrics is made from."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from llmhost.collect.worker import CollectorHealth
from llmhost.derive.host_view import HostView


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """Facts of the exporter itself."""

    version: str
    revision: str
    python_version: str
    config_reload_success: bool
    config_loaded_at: float
    dropped: Mapping[str, int]  # family → series, since the exporter started


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """The host's view, and what a page adds to it."""

    host: HostView
    health: tuple[CollectorHealth, ...]  # of the collectors
    own: Own
    patterns: AbstractSet[str] = frozenset()  # of units, as configured
