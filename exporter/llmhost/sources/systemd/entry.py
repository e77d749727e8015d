"""What is known of one watched unit: a snapshot, kept up to date by signals. No I/O."""

import time
from collections.abc import Callable
from typing import Any

from llmhost.model.unit import Unit
from llmhost.sources.systemd.names import is_instance, unit_path
from llmhost.sources.systemd.parse import SIGNALLED, USED, Parsed, Properties, parse_unit

UNIT_INTERFACE = "org.freedesktop.systemd1.Unit"
SERVICE_INTERFACE = "org.freedesktop.systemd1.Service"
_PAIR_SECONDS = 0.1  # the second half of a pair follows within a millisecond


class Entry:
    """One unit. `wanted` and `done` count refreshes: once `done` has reached what `wanted` was, that one is in."""

    def __init__(self, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.path = unit_path(name)
        self.loaded = False
        self.has_run = False  # as far as has been seen
        self.unreadable = ""  # why the last refresh failed; "" if it did not
        self.refreshing = False
        self.refresh_not_before = 0.0
        self.wanted = 0
        self.done = 0
        self._clock = clock
        self._properties: dict[str, Any] = {}
        self._unloaded: Unit | None = None
        self._staged: dict[str, Any] = {}
        self._staged_at = 0.0
        self._parsed: Parsed | None = None

    def snapshot(self, properties: Properties) -> None:
        """Take everything. Signals that came before are older (one sender's messages keep their order), so they go."""
        self._properties = {name: properties[name] for name in USED if name in properties}
        self._staged.clear()
        self._parsed = None
        self._unloaded = None
        self.loaded = True
        self.has_run |= bool(properties.get("InvocationID"))
        self.unreadable = ""

    def changed(self, interface: str, properties: Properties) -> None:
        """Apply a PropertiesChanged. Before the snapshot it is of no use: the snapshot will be newer.

        systemd sends two at a time, Service before Unit. The first is held back until the second is there, so that a
        reader never sees a new main process in an old state.
        """
        if not self.loaded:
            return
        news = {name: properties[name] for name in SIGNALLED if name in properties}
        if interface == UNIT_INTERFACE:
            self._apply({**self._staged, **news})
            self._staged.clear()
        elif interface == SERVICE_INTERFACE:
            self._staged.update(news)
            self._staged_at = self._clock()

    def unload(self, unit: Unit | None) -> None:
        """Know that systemd has it not loaded; `unit` says what there is instead, None that nothing is to be told."""
        self.loaded = False
        self.unreadable = ""
        self._properties = {}
        self._staged.clear()
        self._parsed = None
        self._unloaded = unit

    def fail(self, why: str) -> None:
        """Know that it could not be read: it is then absent."""
        self.unload(None)
        self.unreadable = why

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

    def unit(self, warn: Callable[[str], None]) -> Unit | None:
        """Read it as a unit; None where it is missing, or not read so far. Raises UnreadableUnitError."""
        if self.missing:
            return None
        if not self.loaded:
            return self._unloaded
        if self._staged and self._clock() - self._staged_at > _PAIR_SECONDS:
            self._apply(self._staged)  # its second half was never sent
            self._staged.clear()
        if self._parsed is None:
            self._parsed = parse_unit(self._properties)
            for wrong in self._parsed.wrong:
                warn(f"{self.name}: {wrong}")
        return self._parsed.unit

    def _apply(self, news: Properties) -> None:
        self._properties.update(news)
        self.has_run |= bool(news.get("InvocationID"))
        self._parsed = None
