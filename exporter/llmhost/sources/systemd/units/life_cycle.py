"""States of a watched unit, by what has been read and signalled of it. Pure.

A unit is read in steps: GetUnit says whether systemd has it loaded; then its properties are read, or else its file.
systemd signals each change in between, and a message of it is older or newer than another by its place in the order.
"""

from collections.abc import Mapping
from enum import Enum, auto


class State(Enum):
    UNREAD = auto()  # not read so far, or signals were lost since: only a read shows what it is
    UNREAD_ABSENT = auto()  # the same; systemd has it not loaded, and its file is being read
    LOADED = auto()  # its properties are known, and signals keep them up to date
    ABSENT = auto()  # systemd has it not loaded, and its file is being read
    UNLOADED = auto()  # systemd has it not loaded, and its file is known, or that there is none
    OUTDATED = auto()  # unloaded or loaded since the last read, or that failed: it is being read; signals count

    @property
    def has_gap(self) -> bool:
        """Something may have happened since the last report of which there was no signal."""
        return self in (State.UNREAD, State.UNREAD_ABSENT)


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
TRANSITIONS: Mapping[State, Mapping[Event, State]] = {
    State.UNREAD: {
        Event.PROPERTIES_READ: State.LOADED,
        Event.NOT_LOADED: State.UNREAD_ABSENT,
        Event.READ_FAILED: State.UNREAD,
    },
    State.UNREAD_ABSENT: {
        Event.PROPERTIES_READ: State.LOADED,
        Event.NOT_LOADED: State.UNREAD_ABSENT,
        Event.FILE_READ: State.UNLOADED,
        Event.READ_FAILED: State.UNREAD,
        Event.LOADED: State.UNREAD,
    },
    State.LOADED: {
        Event.PROPERTIES_READ: State.LOADED,
        Event.NOT_LOADED: State.ABSENT,
        Event.READ_FAILED: State.OUTDATED,
        Event.CHANGED: State.LOADED,
        Event.REMOVED: State.OUTDATED,
        Event.SIGNALS_LOST: State.UNREAD,
    },
    State.ABSENT: {
        Event.PROPERTIES_READ: State.LOADED,
        Event.NOT_LOADED: State.ABSENT,
        Event.FILE_READ: State.UNLOADED,
        Event.READ_FAILED: State.OUTDATED,
        Event.CHANGED: State.LOADED,
        Event.LOADED: State.OUTDATED,
        Event.REMOVED: State.ABSENT,
        Event.SIGNALS_LOST: State.UNREAD_ABSENT,
    },
    State.UNLOADED: {
        Event.PROPERTIES_READ: State.LOADED,
        Event.NOT_LOADED: State.ABSENT,
        Event.READ_FAILED: State.OUTDATED,
        Event.CHANGED: State.LOADED,
        Event.LOADED: State.OUTDATED,
        Event.SIGNALS_LOST: State.UNREAD,
    },
    State.OUTDATED: {
        Event.PROPERTIES_READ: State.LOADED,
        Event.NOT_LOADED: State.ABSENT,
        Event.READ_FAILED: State.OUTDATED,
        Event.CHANGED: State.LOADED,
        Event.REMOVED: State.OUTDATED,
        Event.SIGNALS_LOST: State.UNREAD,
    },
}


def next_state(state: State, event: Event) -> State | None:
    """State after an event; None where the event is ignored."""
    return TRANSITIONS[state].get(event)
