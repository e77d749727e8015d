"""What a command that tells of the host has to go by."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmhost.config.schema import Policy
from llmhost.derive.facts import Facts
from llmhost.derive.rates import Endpoint, Rate
from llmhost.model.history.history import History
from llmhost.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    snapshot: Snapshot
    facts: Facts
    history: History
    policy: Policy
    gpus_expected: int | None = None  # as configured
    rates: Mapping[Endpoint, Rate] = field(default_factory=dict)
    history_fault: str = ""  # why what the exporter has recorded could not be read
