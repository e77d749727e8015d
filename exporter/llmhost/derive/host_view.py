"""Snapshot, facts, history and policy together: what pages, commands and decisions are made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmhost.config.schema import Config, Policy, UnitsConfig
from llmhost.derive.facts import Facts, derive
from llmhost.derive.rates import Endpoint, Rate, rates
from llmhost.model.history.history import History
from llmhost.model.ids import UnitId
from llmhost.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    snapshot: Snapshot
    facts: Facts
    history: History
    policy: Policy
    gpus_expected: int | None = None  # as configured
    rates: Mapping[Endpoint, Rate] = field(default_factory=dict)
    history_fault: str = ""  # why the saved history could not be read
    units_config: UnitsConfig = field(default_factory=UnitsConfig)
    config_file: str = "llmhost.yml"
    config_fault: str = ""  # what is wrong with the config, so that all goes by the defaults

    def meant(self, unit: UnitId) -> UnitId:
        """Give the unit that a name stands for: where it is an alias, the unit's own name."""
        watched = (each.id for each in self.snapshot.watched_units if unit.name in each.aliases)
        return next((each for each in watched if each.manager == unit.manager), unit)


def host_view(
    snapshot: Snapshot,
    history: History,
    config: Config,
    *,
    before: Snapshot | None = None,
    history_fault: str = "",
    config_file: str = "llmhost.yml",
    config_fault: str = "",
    facts: Facts | None = None,
) -> HostView:
    """Derive the view; rates are over the time since the snapshot `before`. `facts` stand in for derived ones."""
    return HostView(
        snapshot=snapshot,
        facts=derive(snapshot, config, history) if facts is None else facts,
        history=history,
        policy=config.policy,
        gpus_expected=config.gpus.expected,
        rates=rates(before, snapshot) if before is not None else {},
        history_fault=history_fault,
        units_config=config.units,
        config_file=config_file,
        config_fault=config_fault,
    )
