"""What a page is made from."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmhost.collect.observer import Observation
from llmhost.config.schema import Config
from llmhost.derive.facts import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What the exporter says of itself beside what it observed."""

    version: str
    revision: str
    python_version: str
    config_reload_success: bool
    config_loaded_at: float
    dropped: Mapping[str, int]  # family → series, since the exporter started


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that the page is made from."""

    observation: Observation
    facts: Facts
    config: Config
    own: Own
