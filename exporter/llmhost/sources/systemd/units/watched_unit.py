"""One watched unit in one run of systemd: what is known of it, and the reports of its changes. No I/O."""

import time
from collections.abc import Callable
from typing import TypeAlias

from llmhost.model.unit import Unit
from llmhost.sources.systemd.names import is_instance, unit_path
from llmhost.sources.systemd.properties.relations import Relation
from llmhost.sources.systemd.properties.typed_properties import Properties
from llmhost.sources.systemd.properties.unit import UnreadableUnitError, unloaded_unit
from llmhost.sources.systemd.units.life_cycle import Event, WatchedState, next_state
from llmhost.sources.systemd.units.loaded_unit import LoadedUnit
from llmhost.sources.systemd.units.waiting import Requests

OnChange: TypeAlias = Callable[[Unit, bool], None]  # the bool: a gap before the change (see model.unit_event)


class WatchedUnit:
    """One unit. The methods of events are called in the order in which systemd sent the messages.

    Signals count from the first read on. They bring all changes, also of a unit that comes and goes faster than it
    can be read.
    """

    def __init__(
        self,
        name: str,
        *,
        is_new: bool = False,
        on_change: OnChange | None = None,
        warn: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_new`: systemd loaded it after all units had been read, so it had no past then."""
        self.name = name
        self.path = unit_path(name)
        self.state = WatchedState.UNREAD
        self.unreadable = ""  # why the last read failed; "" if it did not
        self.reads = Requests()
        self.read_not_before = 0.0
        self._changes = _Changes(name, on_change, is_new=is_new)
        self._warn = warn
        self._clock = clock
        self._known: LoadedUnit | Unit | None = None  # a Unit is one that is not loaded
        self._last_loaded = LoadedUnit({})
        self._file_state = ""  # as it was when the unit was last found unloaded
        self._has_run = False  # as far as has been seen

    # events

    def properties_read(self, properties: Properties) -> None:
        """Take all properties. Signals that came before are older, so they no longer count.

        As long as no signal was lost, this reports no more than the next signal would.
        """
        gap = self.state.has_gap
        self._advance(Event.PROPERTIES_READ)
        self._known = self._last_loaded = self._last_loaded.read_again(properties)
        self.unreadable = ""
        self._report_loaded(self._known, gap=gap)

    def changed(self, interface: str, properties: Properties) -> None:
        """Take a PropertiesChanged. A unit that was not loaded is so again."""
        was_loaded = self.state is WatchedState.LOADED
        if not self._advance(Event.CHANGED):
            return
        if not was_loaded or not isinstance(self._known, LoadedUnit):
            before = self._known.parsed if isinstance(self._known, LoadedUnit) else self._known
            self._known = self._last_loaded.loaded_again(self.name, before)
        if self._known.change(interface, properties, self._clock()):
            self._report_loaded(self._known, gap=False)

    def loaded(self, *, is_new: bool) -> None:
        """Take a UnitNew."""
        if is_new and self.state.has_gap:
            self._changes.is_new = True
        self._advance(Event.LOADED)

    def removed(self) -> None:
        """Take a UnitRemoved. It is reported at once; readers learn of it once the file has been read."""
        if not self._advance(Event.REMOVED) or not isinstance(self._known, LoadedUnit):
            return
        self._known.drop_half_a_pair()
        state = self._known.file_state
        if state is None:
            state = self._file_state
        has_file = state and not self._known.transient
        self._changes.report(unloaded_unit(self.name, state if has_file else None), gap=False)

    def not_loaded(self) -> None:
        """Take systemd's answer that it has not loaded the unit; `file_read` follows."""
        self._advance(Event.NOT_LOADED)

    def file_read(self, state: str | None) -> None:
        """Take the state of the file of a unit that is not loaded, None: there is none."""
        gap = self.state.has_gap
        if not self._advance(Event.FILE_READ):
            return
        self._known = unloaded_unit(self.name, state)
        self._file_state = state or ""
        self.unreadable = ""
        if state is not None or self._changes.last is not None:
            self._changes.report(self._known, gap=gap)

    def read_failed(self, why: str) -> None:
        """Take the failure of a read: the unit is absent until it can be read, or until its next signal."""
        self._advance(Event.READ_FAILED)
        self._known = None
        self.unreadable = why

    def signals_lost(self) -> None:
        self._advance(Event.SIGNALS_LOST)

    # what readers may know

    @property
    def is_loaded(self) -> bool:
        """Known to be loaded, as of the last read or signal."""
        return isinstance(self._known, LoadedUnit)

    @property
    def relations(self) -> tuple[Relation, ...]:
        """Relations to other units, as of the last read."""
        return self._known.relations if isinstance(self._known, LoadedUnit) else ()

    @property
    def is_unresolved_alias(self) -> bool:
        """Another name of a unit, of which it is not known which."""
        return isinstance(self._known, Unit) and self._known.unit_file_state == "alias"

    @property
    def is_transient(self) -> bool:
        return isinstance(self._known, LoadedUnit) and self._known.transient

    @property
    def is_idle_instance(self) -> bool:
        """An instance of a template that is not loaded and was not seen to run."""
        return isinstance(self._known, Unit) and is_instance(self.name) and not self._has_run

    @property
    def is_missing(self) -> bool:
        """There is no such unit: neither loaded nor as a file."""
        if isinstance(self._known, LoadedUnit):
            return self._known.not_found and not self.unreadable
        return self._known is not None and self._known.load_state == "not-found"

    def unit(self) -> Unit | None:
        """Return the unit; None where it is missing, or nothing is known of it. Raises UnreadableUnitError."""
        known = self._known
        if known is None or self.is_missing:
            return None
        if isinstance(known, Unit):
            return known
        if known.is_half_a_pair_overdue(self._clock()):
            known.apply_half_a_pair()
            self._report_loaded(known, gap=False)
        return known.unit(self._warn)

    # reports

    def report_missing(self) -> None:
        """Report that there is no such unit, of one that is watched even so."""
        self._changes.report(unloaded_unit(self.name, None), gap=self._changes.last is None)

    def stop_reports(self) -> None:
        self._changes.on_change = None

    def _report_loaded(self, loaded: LoadedUnit, *, gap: bool) -> None:
        self._has_run |= loaded.has_run
        if self._changes.on_change is not None:
            try:
                self._changes.report(loaded.unit(self._warn), gap=gap)
            except UnreadableUnitError:
                self._advance(Event.SIGNALS_LOST)  # a reader gets the error; the next report has a gap before it

    def _advance(self, event: Event) -> bool:
        """Go to the next state; returns False where the event is ignored."""
        state = next_state(self.state, event)
        if state is not None:
            self.state = state
        return state is not None


class _Changes:
    """Reports of one unit: each state of it once."""

    def __init__(self, name: str, on_change: OnChange | None, *, is_new: bool) -> None:
        self.on_change = on_change
        self.is_new = is_new
        self.last: Unit | None = None
        self._name = name

    def report(self, unit: Unit, *, gap: bool) -> None:
        """Report a unit. Of one that had no past, first that it was not there.

        And nothing of it before it has run: any user can have systemd load units without end, by name.
        """
        if self.on_change is None or unit == self.last:
            return
        if self.last is None and self.is_new:
            if not unit.invocation_id:
                return
            self.on_change(unloaded_unit(self._name, unit.unit_file_state or None), True)
        self.last = unit
        self.on_change(unit, gap)
