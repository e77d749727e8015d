"""Units and GPUs that are looked at, and told of, because the history knows them."""

from dataclasses import replace

from llmhost.model.gpu import SeenGpus
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.ids import SYSTEM_MANAGER
from llmhost.model.reading import Ok
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit

VANISHED_SECONDS = 3600.0  # for which a unit is told of once its file has vanished
MOST_UNITS = 200  # a loop of systemd-run leaves the history a new name each time


def remembered_units(history: History) -> list[str]:
    """Give the names of the system manager's units that were watched before, those that were seen last."""
    known = sorted(history.units.items(), key=lambda item: -item[1].last_seen_at)
    return [unit.name for unit, _ in known if unit.manager == SYSTEM_MANAGER][:MOST_UNITS]


def has_vanished(history: UnitHistory | None, at: float) -> bool:
    """Say whether the unit's file has vanished of late, while it should have run."""
    since = history.vanished_at if history is not None else None
    return since is not None and 0 <= at - since < VANISHED_SECONDS


def with_vanished_units(snapshot: Snapshot, history: History) -> Snapshot:
    """Add the units that have vanished to those that are watched: there are no such units any more."""
    if not isinstance(snapshot.units, Ok):
        return snapshot
    report = snapshot.units.value
    there = {unit.id for unit in report.units}
    gone = [
        Unit(id=unit, load_state="not-found", unit_file_state="", active_state="inactive", sub_state="dead")
        for unit, unit_history in history.units.items()
        if unit not in there and has_vanished(unit_history, snapshot.at)
    ]
    if not gone:
        return snapshot
    units = tuple(sorted((*report.units, *gone), key=lambda unit: unit.id))
    return replace(snapshot, units=Ok(replace(report, units=units)))


def gpus_to_miss(history: History, expected: int | None) -> SeenGpus:
    """Give the GPUs of this boot, which are lost where the driver lists them no more.

    None where fewer are expected than there were: then some were taken away on purpose.
    """
    taken_away = expected is not None and expected < max(len(history.gpus.gpus), history.gpus.listed_most)
    return SeenGpus() if taken_away else history.gpus
