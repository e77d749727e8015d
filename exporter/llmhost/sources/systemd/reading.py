"""What is said of all entries together. No I/O."""

from collections.abc import Callable, Iterable

from llmhost.model.unit import Unit
from llmhost.sources.systemd.entry import Entry
from llmhost.sources.systemd.parse import UnreadableUnitError, unloaded_unit


def refreshed(entries: Iterable[Entry]) -> Callable[[], bool]:
    """Make a predicate: whether all is in that has been asked for by now."""
    wanted = {entry: entry.wanted for entry in entries}
    return lambda: all(entry.done >= count for entry, count in wanted.items())


def read_all(
    entries: Iterable[Entry], keeps_missing: Callable[[str], bool], warn: Callable[[str], None]
) -> tuple[tuple[Unit, ...], list[Entry]]:
    """Give all units by id, and the entries of units that do not exist and need not be kept.

    Raises UnreadableUnitError where there are units and none can be read.
    """
    units = []
    unreadable: list[str] = []
    gone = []
    for entry in entries:
        try:
            unit = entry.unit()
        except UnreadableUnitError as error:
            unreadable.append(str(error))
            continue
        if unit is not None:
            units.append(unit)
        elif entry.unreadable:
            unreadable.append(f"{entry.name}: {entry.unreadable}")
        elif entry.missing:
            if keeps_missing(entry.name):
                units.append(unloaded_unit(entry.name, None))
            else:
                gone.append(entry)
    if unreadable and not units:
        raise UnreadableUnitError(unreadable[-1])
    for why in unreadable:
        warn(why)
    units.sort(key=lambda unit: unit.id)
    return tuple(units), gone
