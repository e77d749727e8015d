"""States of a watched unit, by what has been read and signalled of it. Pure.

A unit is read in steps: GetUnit says whether systemd has it loaded; then its properties are read, or else its file.
systemd signals each change in between, and a message of it is older or newer than another by its place in the order.
"""

from collections.abc import Mapping
from enum import Enum, auto


class WatchedState(Enum):
    UNREAD = auto()  # not read so far, or signals were lost since: only a read shows what it is
    UNREAD_ABSENT = auto()  # the same; systemd has it not loaded, and its file is being read
    LOADED = auto()  # its properties are known, and signals keep them up to date
    ABSENT = auto()  # systemd has it not loaded, and its file is being read
    UNLOADED = auto()  # systemd has it not loaded, and its file is known, or that there is none
    OUTDATED = auto()  # unloaded or loaded since the last read, or that failed: it is being read; signals count

    @property
    def has_gap(self) -> bool:
        """Something may have happened since the last report of which there was no signal."""
        return self in (WatchedState.UNREAD, WatchedState.UNREAD_ABSENT)


class Event(Enum):
    PROPERTIES_READ = auto()  # all of them
    NOT_LOADED = auto()  # answer to GetUnit
    FILE_READ = auto()  # or found missing; follows NOT_LOADED
    READ_FAILED = auto()
    CHANGED = auto()  # signal PropertiesChanged
    LOADED = auto()  # signal UnitNew
    REMOVED = auto()  # signal UnitRemoved
    SIGNALS_LOST = auto()


# An event without a next state is ignored. A file that was read of a unit that is loaded again is out of date; a signal
# of a unit that has not been read brings nothing that the read will not.
TRANSITIONS: Mapping[WatchedState, Mapping[Event, WatchedState]] = {
    WatchedState.UNREAD: {
        Event.PROPERTIES_READ: WatchedState.LOADED,
        Event.NOT_LOADED: WatchedState.UNREAD_ABSENT,
        Event.READ_FAILED: WatchedState.UNREAD,
    },
    WatchedState.UNREAD_ABSENT: {
        Event.PROPERTIES_READ: WatchedState.LOADED,
        Event.NOT_LOADED: WatchedState.UNREAD_ABSENT,
        Event.FILE_READ: WatchedState.UNLOADED,
        Event.READ_FAILED: WatchedState.UNREAD,
        Event.LOADED: WatchedState.UNREAD,
    },
    WatchedState.LOADED: {
        Event.PROPERTIES_READ: WatchedState.LOADED,
        Event.NOT_LOADED: WatchedState.ABSENT,
        Event.READ_FAILED: WatchedState.OUTDATED,
        Event.CHANGED: WatchedState.LOADED,
        Event.REMOVED: WatchedState.OUTDATED,
        Event.SIGNALS_LOST: WatchedState.UNREAD,
    },
    WatchedState.ABSENT: {
        Event.PROPERTIES_READ: WatchedState.LOADED,
        Event.NOT_LOADED: WatchedState.ABSENT,
        Event.FILE_READ: WatchedState.UNLOADED,
        Event.READ_FAILED: WatchedState.OUTDATED,
        Event.CHANGED: WatchedState.LOADED,
        Event.LOADED: WatchedState.OUTDATED,
        Event.REMOVED: WatchedState.ABSENT,
        Event.SIGNALS_LOST: WatchedState.UNREAD_ABSENT,
    },
    WatchedState.UNLOADED: {
        Event.PROPERTIES_READ: WatchedState.LOADED,
        Event.NOT_LOADED: WatchedState.ABSENT,
        Event.READ_FAILED: WatchedState.OUTDATED,
        Event.CHANGED: WatchedState.LOADED,
        Event.LOADED: WatchedState.OUTDATED,
        Event.SIGNALS_LOST: WatchedState.UNREAD,
    },
    WatchedState.OUTDATED: {
        Event.PROPERTIES_READ: WatchedState.LOADED,
        Event.NOT_LOADED: WatchedState.ABSENT,
        Event.READ_FAILED: WatchedState.OUTDATED,
        Event.CHANGED: WatchedState.LOADED,
        Event.REMOVED: WatchedState.OUTDATED,
        Event.SIGNALS_LOST: WatchedState.UNREAD,
    },
}


def next_state(state: WatchedState, event: Event) -> WatchedState | None:
    """Return the state after an event; None where the event is ignored."""
    return TRANSITIONS[state].get(event)
