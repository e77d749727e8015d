"""A unit that systemd has loaded: its properties as they were read, kept up to date by signals. No I/O."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from llmhost.model.unit import Unit, UnitSettings
from llmhost.sources.systemd.properties.relations import Relation, relations_of
from llmhost.sources.systemd.properties.typed_properties import Properties, TypedProperties
from llmhost.sources.systemd.properties.unit import (
    SIGNALLED,
    USED,
    first_process_seconds,
    parse_state,
    parse_unit,
    restarts_directly,
)

UNIT_INTERFACE = "org.freedesktop.systemd1.Unit"
SERVICE_INTERFACE = "org.freedesktop.systemd1.Service"
_PAIR_SECONDS = 0.1  # the second half of a pair follows within a millisecond


class LoadedUnit:
    """Properties of a loaded unit.

    systemd signals changes in pairs, Service before Unit. The first half is held back until the second is there, so
    that a reader never sees a new main process in an old state.
    """

    def __init__(
        self, properties: Properties, constants: "_Constants | None" = None, parsed: Unit | None = None
    ) -> None:
        self._properties: dict[str, Any] = {name: properties[name] for name in USED if name in properties}
        self._attempt = _Attempt(self._properties.get("InvocationID"), first_process=first_process_seconds(properties))
        self._constants = constants or _Constants(self._properties)
        self._unit = parsed  # None until it is parsed again
        self._first_half: dict[str, Any] = {}
        self._first_half_at = 0.0

    def read_again(self, properties: Properties) -> "LoadedUnit":
        """Make the unit of properties that were read after these. What is known of an attempt stays known of it."""
        unit = LoadedUnit(properties)
        unit._attempt = unit._attempt.joined(self._attempt)
        return unit

    def loaded_again(self, name: str, before: Unit | None) -> "LoadedUnit":
        """Make the unit that is loaded another time: with the same settings, and no state until that is signalled.

        `before` is what readers get until then.
        """
        return LoadedUnit({**self._constants.properties, "Id": name, "LoadState": "loaded"}, self._constants, before)

    @property
    def transient(self) -> bool:
        return self._properties.get("Transient") is True

    @property
    def not_found(self) -> bool:
        """Systemd itself looked for it and found nothing. One that is not at rest is there even without its file."""
        return self._properties.get("LoadState") == "not-found" and self._properties.get("ActiveState") == "inactive"

    @property
    def has_run(self) -> bool:
        return bool(self._properties.get("InvocationID"))

    @property
    def relations(self) -> tuple[Relation, ...]:
        return relations_of(self._properties)

    @property
    def parsed(self) -> Unit | None:
        """The unit as last parsed; None where something has changed since."""
        return self._unit

    @property
    def file_state(self) -> str | None:
        """State of its unit file; None where nothing is known of that."""
        state = self._properties.get("UnitFileState")
        return state if isinstance(state, str) else None

    def change(self, interface: str, properties: Properties, now: float) -> bool:
        """Take in a PropertiesChanged; returns whether that completes a pair, and the unit is another now."""
        news = {name: value for name, value in properties.items() if name in SIGNALLED}
        if interface == UNIT_INTERFACE:
            self._apply({**self._first_half, **news})
            return True
        if interface == SERVICE_INTERFACE:
            self._first_half.update(news)
            self._first_half_at = now
        return False

    def is_half_a_pair_overdue(self, now: float) -> bool:
        return bool(self._first_half) and now - self._first_half_at > _PAIR_SECONDS

    def apply_half_a_pair(self) -> None:
        """Go on without the second half."""
        self._apply(self._first_half)

    def drop_half_a_pair(self) -> None:
        self._first_half = {}

    def unit(self, warn: Callable[[str], None]) -> Unit:
        """Parse it, unless nothing changed. Raises UnreadableUnitError. `warn` gets properties of a wrong type."""
        if self._unit is None:
            constants = self._constants
            if constants.settings_parsed:
                parsed = parse_state(self._properties, constants.settings)
            else:
                parsed = parse_unit(self._properties)
                constants.settings, constants.settings_parsed = parsed.unit.settings, True
            for wrong in parsed.wrong:
                warn(f"{parsed.unit.id.name}: {wrong}")
            self._unit = parsed.unit
            if restarts_directly(self._properties):
                self._unit = replace(
                    self._unit,
                    first_process_monotonic=self._attempt.first_process,
                    begun_after_monotonic=self._attempt.begun_after,
                )
        return self._unit

    def _apply(self, news: Properties) -> None:
        self._properties.update(news)
        if news.get("InvocationID", self._attempt.invocation) != self._attempt.invocation:
            # systemd first shows it in the state of before, with the time of that
            at = TypedProperties(self._properties).point_seconds("StateChangeTimestampMonotonic")
            self._attempt = _Attempt(news["InvocationID"], begun_after=at)
        self._first_half = {}
        self._unit = None


class _Constants:
    """Properties that no signal changes, and the settings in them once they are parsed."""

    def __init__(self, properties: Properties) -> None:
        self.properties = {name: value for name, value in properties.items() if name not in SIGNALLED}
        self.settings: UnitSettings | None = None
        self.settings_parsed = not self.properties


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The known times of the start attempt of one InvocationID."""

    invocation: object
    first_process: float | None = None
    begun_after: float | None = None

    def joined(self, other: "_Attempt") -> "_Attempt":
        if other.invocation != self.invocation:
            return self
        first_process = other.first_process if self.first_process is None else self.first_process
        return replace(self, first_process=first_process, begun_after=other.begun_after)
