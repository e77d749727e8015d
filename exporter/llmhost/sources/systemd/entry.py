"""What is known of one watched unit: a snapshot, kept up to date by signals, and told of as it changes. No I/O."""

import time
from collections.abc import Callable
from typing import Any, TypeAlias

from llmhost.model.unit import Unit, UnitSettings
from llmhost.sources.systemd.checked import Properties
from llmhost.sources.systemd.names import is_instance, unit_path
from llmhost.sources.systemd.parse import (
    SIGNALLED,
    USED,
    Parsed,
    UnreadableUnitError,
    parse_state,
    parse_unit,
    unloaded_unit,
)

Tell: TypeAlias = Callable[[Unit, bool], None]  # with whether there is a gap before it (see model.unit_event)

UNIT_INTERFACE = "org.freedesktop.systemd1.Unit"
SERVICE_INTERFACE = "org.freedesktop.systemd1.Service"
_PAIR_SECONDS = 0.1  # the second half of a pair follows within a millisecond


class Entry:
    """One unit in one run of systemd. `wanted` and `done` count refreshes: `done` is what `wanted` was for the last.

    Signals count from the first snapshot on, or from when the unit was found not loaded: they tell all that changes,
    also while it comes and goes faster than it can be read. What must be in its place among them is called there:
    `snapshot`, `found_absent`, `appeared`, `removed`, `changed`.
    """

    def __init__(
        self,
        name: str,
        *,
        born: bool = False,
        tell: Tell | None = None,
        warn: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`born`: systemd has loaded it since all was read, so it had no past then."""
        self.name = name
        self.path = unit_path(name)
        self.loaded = False
        self.followed = False  # whether signals go on from what is known; else the next snapshot has a gap before it
        self.dropped = False
        self.has_run = False  # as far as has been seen
        self.unreadable = ""  # why the last refresh failed; "" if it did not
        self.refreshing = False
        self.refresh_not_before = 0.0
        self.wanted = 0
        self.done = 0
        self._born = born
        self._tell_of = tell
        self._warn = warn
        self._clock = clock
        self._properties: dict[str, Any] = {}
        self._constants: dict[str, Any] = {}  # of the last snapshot
        self._settings: UnitSettings | None = None  # the same, once parsed
        self._settings_parsed = False
        self._unloaded: Unit | None = None
        self._file_state = ""  # as it was when the unit was last found unloaded
        self._absent = False  # as far as has been heard since it was asked for by name
        self._removed = False  # and what there is instead is not known yet
        self._staged: dict[str, Any] = {}
        self._staged_at = 0.0
        self._parsed: Parsed | None = None
        self._told: Unit | None = None

    # what comes in, in order

    def snapshot(self, properties: Properties) -> None:
        """Take everything. Signals that came before are older (one sender's messages keep their order), so they go.

        While its signals were all heard, a snapshot tells no more than the next signal would.
        """
        self._properties = {name: properties[name] for name in USED if name in properties}
        self._constants = {name: value for name, value in self._properties.items() if name not in SIGNALLED}
        self._settings_parsed = False
        self._staged.clear()
        self._unloaded = None
        self._absent = self._removed = False
        self.loaded = True
        self.unreadable = ""
        gap, self.followed = not self.followed, True
        self._changed(gap=gap)

    def changed(self, interface: str, properties: Properties) -> None:
        """Apply a PropertiesChanged. Before the first snapshot it is of no use: the snapshot will be newer.

        systemd sends two at a time, Service before Unit. The first is held back until the second is there, so that a
        reader never sees a new main process in an old state.
        """
        if not self.followed:
            return
        if not self.loaded or self._removed:
            self._come_back()
        news = {name: properties[name] for name in SIGNALLED if name in properties}
        if interface == UNIT_INTERFACE:
            self._apply({**self._staged, **news})
        elif interface == SERVICE_INTERFACE:
            self._staged.update(news)
            self._staged_at = self._clock()

    def appeared(self, *, born: bool) -> None:
        """Know from systemd that it has just been loaded."""
        self._absent = False
        self._born |= born and not self.followed

    def removed(self) -> None:
        """Know from systemd that it has let go of it. It is told at once; what a reader may know is to be asked."""
        if self.followed and self.loaded and not self._removed:
            self._removed = True
            self._staged.clear()
            state = self._properties.get("UnitFileState", self._file_state)
            has_file = isinstance(state, str) and state and not self.transient
            self._tell(unloaded_unit(self.name, state if has_file else None), gap=False)

    def found_absent(self) -> None:
        """Know from systemd that it has it not loaded; `unload` follows when it is known what there is instead."""
        self._absent = True

    def unload(self, unit: Unit | None) -> None:
        """Know what there is of a unit that was found absent, None: nothing. Of no use if it came back meanwhile."""
        if not self._absent:
            return
        gap, self.followed = not self.followed, True
        self._file_state = unit.unit_file_state if unit is not None else ""
        self._let_go(unit, gap=gap)

    def fail(self, why: str) -> None:
        """Know that it could not be read: it is then absent, until a signal tells of it or it can be read."""
        self._let_go(None, told=False)
        self.unreadable = why

    # what a reader may know

    @property
    def unresolved_alias(self) -> bool:
        """Whether it is another name of a unit that could not be told."""
        return self._unloaded is not None and self._unloaded.unit_file_state == "alias"

    @property
    def transient(self) -> bool:
        return self._properties.get("Transient") is True

    @property
    def not_found(self) -> bool:
        """Whether systemd itself looked for it and found nothing."""
        return self._properties.get("LoadState") == "not-found"

    @property
    def idle_instance(self) -> bool:
        """Whether it is an instance of a template that is not loaded and was not seen to run."""
        return self._unloaded is not None and is_instance(self.name) and not self.has_run

    @property
    def missing(self) -> bool:
        """Whether there is no such unit, neither loaded nor as a file."""
        if not self.done or self.unreadable:
            return False
        return self.not_found if self.loaded else self._unloaded is None

    def unit(self) -> Unit | None:
        """Read it as a unit; None where it is missing, or not read so far. Raises UnreadableUnitError."""
        if self.missing:
            return None
        if not self.loaded:
            return self._unloaded
        if self._staged and self._clock() - self._staged_at > _PAIR_SECONDS:
            self._apply(self._staged)  # its second half was never sent
        return self._present()

    def tell_missing(self) -> None:
        """Tell that there is no such unit: of one that is kept on the list even so."""
        self._tell(unloaded_unit(self.name, None), gap=self._told is None)

    # the work

    def _come_back(self) -> None:
        """Take up a unit that is told of while it is not known to be loaded: systemd has just loaded it."""
        self._properties = {**self._constants, "Id": self.name, "LoadState": "loaded"}
        self._unloaded = None
        self._absent = self._removed = False
        self.loaded = True

    def _let_go(self, unit: Unit | None, *, gap: bool = False, told: bool = True) -> None:
        self.loaded = self._removed = False
        self.unreadable = ""
        self._properties = {}
        self._staged.clear()
        self._parsed = None
        self._unloaded = unit
        if told and (unit is not None or self._told is not None):
            self._tell(unit or unloaded_unit(self.name, None), gap=gap)

    def _apply(self, news: Properties) -> None:
        self._properties.update(news)
        self._staged.clear()
        self._changed(gap=False)

    def _changed(self, *, gap: bool) -> None:
        self._parsed = None
        self.has_run |= bool(self._properties.get("InvocationID"))
        if self._tell_of is not None:
            try:
                self._tell(self._present(), gap=gap)
            except UnreadableUnitError:
                self.followed = False  # a read says why; the next snapshot has a gap before it

    def _present(self) -> Unit:
        if self._parsed is None:
            if self._settings_parsed:
                self._parsed = parse_state(self._properties, self._settings)
            elif self._constants:
                self._parsed = parse_unit(self._properties)
                self._settings, self._settings_parsed = self._parsed.unit.settings, True
            else:
                self._parsed = parse_state(self._properties, None)
            for wrong in self._parsed.wrong:
                self._warn(f"{self.name}: {wrong}")
        return self._parsed.unit

    def _tell(self, unit: Unit, *, gap: bool) -> None:
        """Tell of it, unless it was just told so. Of one that came with no past, that it was not there comes first.

        And nothing before it has run: anybody can have systemd load units without end by asking for their names.
        """
        if self._tell_of is None or self.dropped or unit == self._told:
            return
        if self._told is None and self._born:
            if not unit.invocation_id:
                return
            self._tell_of(unloaded_unit(self.name, unit.unit_file_state or None), True)
        self._told = unit
        self._tell_of(unit, gap)
