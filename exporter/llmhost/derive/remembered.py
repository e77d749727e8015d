"""What a new run of the exporter, or a command, looks at because the history knows it."""

from llmhost.model.gpu import SeenGpus
from llmhost.model.history.history import History
from llmhost.model.ids import SYSTEM_MANAGER

MOST_UNITS = 200  # a loop of systemd-run leaves the history a new name each time


def remembered_units(history: History) -> list[str]:
    """Give the names of the system manager's units that were watched before, those that were seen last."""
    known = sorted(history.units.items(), key=lambda item: -item[1].last_seen_at)
    return [unit.name for unit, _ in known if unit.manager == SYSTEM_MANAGER][:MOST_UNITS]


def gpus_to_miss(history: History, expected: int | None) -> SeenGpus:
    """Give the GPUs of this boot, which are lost where the driver lists them no more.

    None where fewer are expected than there were: then some were taken away on purpose.
    """
    taken_away = expected is not None and expected < max(len(history.gpus.gpus), history.gpus.listed_most)
    return SeenGpus() if taken_away else history.gpus
