"""The watched units of one run of systemd: read once, then kept up to date by signals."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmhost.model.unit import Unit, UnitsReport
from llmhost.runtime.log_throttle import OnceLog
from llmhost.sources.systemd.bus.connection import CallFailedError
from llmhost.sources.systemd.bus.message import Received
from llmhost.sources.systemd.calls import CALLEE_DISCONNECTED, PROPERTIES, Systemd
from llmhost.sources.systemd.names import is_service
from llmhost.sources.systemd.properties.unit import UnreadableUnitError, unloaded_unit
from llmhost.sources.systemd.units.discovery import Discovery
from llmhost.sources.systemd.units.match_rules import MatchRules
from llmhost.sources.systemd.units.reading import list_units, read_unit
from llmhost.sources.systemd.units.surroundings import Surroundings
from llmhost.sources.systemd.units.waiting import Changed, Requests, all_served
from llmhost.sources.systemd.units.watched_unit import OnChange, WatchedUnit
from llmhost.sources.systemd.units.watchlist import Watchlist

log = logging.getLogger(__name__)

READ_SECONDS = 0.25  # between two reads of a unit: to read one that has just been unloaded would load it again
MAX_UNITS = 1000  # watched at a time; any user can have systemd load units whose names match a glob
MAX_MISSED = 100  # followed at a time, though they are not there; any user can have systemd load units by name
_MAX_RECENTLY_LOADED = 10_000  # beyond it, the start that such a unit begins with is not counted


class Units:
    """Used from the source's event loop. `run` ends only by raising why; signals come in through `on_signal`."""

    def __init__(
        self,
        systemd: Systemd,
        watchlist: Watchlist,
        changed: Changed,
        *,
        is_engine_command: Callable[[tuple[str, ...]], bool],
        on_synced: Callable[[], None],
        on_reload: Callable[[], None],
        on_change: OnChange | None,
        root: Path,
        clock: Callable[[], float],
    ) -> None:
        self.systemd = systemd
        self._watchlist = watchlist
        self._changed = changed
        self._on_synced = on_synced
        self._on_reload = on_reload
        self._on_change = on_change
        self._root = root
        self._clock = clock
        self._rules = MatchRules(systemd.bus)
        self._surroundings = Surroundings(systemd, self._spawn, lambda name: name in self._by_name)
        self._discovery = Discovery(systemd, is_engine_command, found=self._discovered, progressed=changed.notify)
        self._by_name: dict[str, WatchedUnit] = {}
        self._by_path: dict[str, WatchedUnit] = {}
        # Units that were gone when they were to be read, longest ago first: they may live for milliseconds again and
        # again. They are followed, so that their signals count, but not watched until systemd loads them again.
        self._missed: dict[str, WatchedUnit] = {}
        self._over_limit = False  # some, for being too many
        self._files: frozenset[str] = frozenset()  # those that match a glob
        # Services that systemd has loaded since all was read, and not let go of: what is seen of them is all that they
        # ever were. One that goes with a reload stays; it could only come back as one that is loaded since, too.
        self._recently_loaded: set[str] = set()
        self._tasks = asyncio.TaskGroup()
        self._running = False
        self._reloading = False
        self._syncs = Requests()
        self._version = ""
        self._boot_times: tuple[tuple[float, float], ...] = ()
        self._warn = OnceLog(log).warning  # each text once for a run of systemd

    async def run(self) -> None:
        async with self._tasks:
            await self.systemd.subscribe()
            self._version = await self.systemd.version()
            with contextlib.suppress(CallFailedError):  # one without these properties
                self._boot_times = await self.systemd.boot_times()
            await self._surroundings.read_environment()
            self._spawn(self._discovery.run())
            self._running = True  # what came before is in the reads that follow
            self.resync()

    def end(self) -> None:
        """Report nothing more: another run of systemd, or another connection, has taken over."""
        self._running = False
        for unit in self._by_path.values():
            unit.stop_reports()

    # for readers

    def caught_up(self) -> Callable[[], bool]:
        """Make a condition: all that has been requested by now is read, and no reload is going on."""
        syncs = max(1, self._syncs.made)
        units_read = all_served(unit.reads for unit in self._by_name.values())
        return lambda: not self._reloading and self._syncs.served >= syncs and units_read()

    def _report_change(self, unit: Unit, gap: bool) -> None:
        if self._on_change is not None:
            self._on_change(self._completed(unit), gap)

    def _completed(self, unit: Unit) -> Unit:
        """Add what systemd says of it in other places, and its other names while it is not loaded."""
        if unit.settings is None and not unit.aliases:
            unit = replace(unit, aliases=self._watchlist.aliases_of(unit.id.name))
        return self._surroundings.completed(unit)

    def retry(self) -> None:
        """Read again what could not be read."""
        for unit in list(self._by_name.values()):
            if unit.unreadable:
                self.watch(unit.name)

    def discovered_all(self) -> bool:
        return self._discovery.done()

    def disconnected(self) -> bool:
        """Nothing more can be learnt; the end of the run follows."""
        return self.systemd.bus.closed

    def report(self, resyncs: tuple[tuple[str, int], ...]) -> UnitsReport:
        """All that is known. Raises UnreadableUnitError where there are units and none can be read."""
        units: list[Unit] = []
        unreadable: list[str] = []
        for watched in list(self._by_name.values()):
            try:
                unit = watched.unit()
            except UnreadableUnitError as error:
                unreadable.append(str(error))
                continue
            if unit is not None:
                units.append(self._completed(unit))
            elif watched.unreadable:
                unreadable.append(f"{watched.name}: {watched.unreadable}")
            elif watched.is_missing:
                if self._watchlist.keeps_missing(watched.name, self._clock()):
                    units.append(unloaded_unit(watched.name, None))
                elif not watched.reads.pending:  # else systemd may have loaded it again just now; the read decides
                    self._forget(watched)
        if unreadable and not units:
            raise UnreadableUnitError(unreadable[-1])
        for why in unreadable:
            self._warn(why)
        units.sort(key=lambda unit: unit.id)
        return UnitsReport(
            systemd_version=self._version, units=tuple(units), resyncs=resyncs, boot_times=self._boot_times
        )

    # signals

    def on_signal(self, message: Received) -> None:
        if not self._running:
            return
        if message.interface == PROPERTIES:
            self._on_changed(message)
            return
        match message.member:
            case "Reloading":
                (self._reloading,) = message.body()
                if not self._reloading:
                    self._on_reload()
                    self._surroundings.relatives.read_again()
                    self._surroundings.refresh()
                    self._discovery.check_all_again()
                    self.resync()
            case "UnitFilesChanged":
                self.resync()
            case "UnitNew" if not self._reloading:
                self._on_loaded(message.body()[0])
            case "UnitRemoved" if not self._reloading:
                self._on_removed(message.body()[0])
            case _:
                pass

    def _on_changed(self, message: Received) -> None:
        unit, relatives = self._by_path.get(message.path), self._surroundings.relatives
        if unit is not None and unit.state.has_gap:
            if not unit.reads.pending:  # it could not be read
                self.watch(unit.name)
            unit = None
        if unit is None and not relatives.follows(message.path):
            return
        interface, properties, _ = message.body()
        relatives.changed(message.path, properties)
        if unit is not None:
            unit.changed(interface, properties)
            self._surroundings.refresh(unit.name)

    def _on_loaded(self, name: str) -> None:
        self._surroundings.unit_loaded()
        if self._syncs.served and len(self._recently_loaded) < _MAX_RECENTLY_LOADED and is_service(name):
            self._recently_loaded.add(name)
        unit = self._by_name.get(name) or self._missed.get(name)
        if unit is not None:
            unit.loaded(is_new=name in self._recently_loaded)
        if self._watchlist.wants(name):
            self.watch(name)
            return
        for unit in self._by_name.values():
            if unit.is_unresolved_alias:
                self.watch(unit.name)
        if self._watchlist.discover:
            self._discovery.check_new(name)

    def _on_removed(self, name: str) -> None:
        self._recently_loaded.discard(name)
        self._discovery.forget(name)
        if name in self._by_name:
            self._by_name[name].removed()
            self._surroundings.unit_removed(name)
            self.watch(name)

    def _discovered(self, name: str) -> None:
        if self._watchlist.discover and not self._watchlist.by_name(name):
            self._watchlist.discovered.add(name)
            self.watch(name)

    # reads

    def watch(self, name: str, *, has_past: bool = False) -> None:
        """Read a unit, for the first time or again; not a new one above MAX_UNITS, unless it is configured.

        A unit that systemd has loaded since all was read is a new one, unless it `has_past` even so.
        """
        if not self._running:
            return
        unit = self._by_name.get(name)
        if unit is None:
            if len(self._by_name) >= MAX_UNITS and name not in self._watchlist.exact:
                self._over_limit = True
                self._warn(f"more than {MAX_UNITS} units match what is to be watched; the others are left out")
                return
            unit = self._missed.pop(name, None)
            if unit is None:
                is_new = name in self._recently_loaded and not has_past
                unit = WatchedUnit(
                    name,
                    is_new=is_new,
                    on_change=self._report_change if self._on_change is not None else None,
                    warn=self._warn,
                )
            self._by_name[name] = self._by_path[unit.path] = unit
        if unit.reads.make():
            self._spawn(self._read_until_served(unit))

    def reconfigured(self) -> None:
        """Act on a watchlist that has other patterns."""
        self._discovery.forget_all()
        self.resync()

    def resync(self, *, signals_lost: bool = False) -> None:
        """List and read everything again."""
        if signals_lost:
            self._surroundings.relatives.signals_lost()
            for unit in self._by_path.values():
                unit.signals_lost()
        if self._running and self._syncs.make():
            self._spawn(self._sync_until_served())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._tasks.create_task(work)
        except RuntimeError:  # this run is ending
            work.close()

    async def _sync_until_served(self) -> None:
        while self._syncs.pending:
            made = self._syncs.made
            await self._sync()
            if not self._syncs.served:
                self._on_synced()
            self._syncs.served = made
            self._changed.notify()
            if self._syncs.pending:
                await asyncio.sleep(READ_SECONDS)

    async def _sync(self) -> None:
        before = list(self._by_name.values())
        listing = await list_units(self.systemd, self._watchlist)
        self._files = listing.files
        self._over_limit = False
        names = set(listing.names)
        for unit in before:  # not one that came after the list was made, nor one that was loaded again since
            came_back = self._watchlist.wants(unit.name) and (unit.is_loaded or unit.reads.pending)
            if unit.name not in names and not came_back:
                self._drop(unit)
        for unit in [unit for name, unit in self._missed.items() if not self._watchlist.wants(name)]:
            self._unfollow(unit)
        for name in listing.names:
            self.watch(name)
        units = [self._by_name[name] for name in names if name in self._by_name]
        for unit in units:
            unit.read_not_before = 0.0
        await self._changed.wait_for(all_served(unit.reads for unit in units))
        if self._watchlist.discover:
            self._discovery.keep_only(listing.loaded)
            self._discovery.check_listed(name for name in listing.unwatched if not self._watchlist.wants(name))

    async def _read_until_served(self, unit: WatchedUnit) -> None:
        while unit.reads.pending:
            wait_seconds = unit.read_not_before - time.monotonic()
            if wait_seconds > 0:
                await asyncio.sleep(wait_seconds)
            made = unit.reads.made
            try:
                await self._read(unit)
            except (CallFailedError, ValueError) as error:
                if isinstance(error, CallFailedError) and error.name in CALLEE_DISCONNECTED:
                    raise
                unit.read_failed(str(error))
            # A unit that was not loaded at first is read at once when it is: it may be gone again soon.
            if unit.reads.served or unit.is_loaded:
                unit.read_not_before = time.monotonic() + READ_SECONDS
            unit.reads.served = made
            self._changed.notify()
        if not self._is_watched(unit):
            return
        if not self._is_kept(unit):
            self._forget(unit)
        elif unit.is_missing:
            unit.report_missing()

    async def _read(self, unit: WatchedUnit) -> None:
        if not self._is_watched(unit):
            return  # dropped meanwhile
        name = await read_unit(unit, self.systemd, self._rules, self._root)
        self._watchlist.alias(unit.name, name)
        if name != unit.name:
            await self._resolve(unit, name)
        elif unit.is_loaded and not unit.is_missing:
            self._watchlist.saw_loaded(name, transient=unit.is_transient)
            await self._surroundings.relatives.learn(name, unit.relations)

    def _is_watched(self, unit: WatchedUnit) -> bool:
        return self._by_name.get(unit.name) is unit

    def _is_kept(self, unit: WatchedUnit) -> bool:
        """Decide on a unit that has just been read. Units that any user can have systemd load must not add up."""
        if unit.is_missing:
            return self._watchlist.keeps_missing(unit.name, self._clock())
        return not unit.is_idle_instance or unit.name in self._files or self._watchlist.by_name(unit.name)

    async def _resolve(self, alias: WatchedUnit, name: str) -> None:
        """Watch the unit itself instead of its alias."""
        self._drop(alias)
        if name not in self._by_name:
            self.watch(name)
        unit = self._by_name.get(name)
        if unit is not None:
            await self._changed.wait_for(lambda: unit.reads.served > 0)

    def _forget(self, unit: WatchedUnit) -> None:
        self._watchlist.forget(unit.name)
        self._drop(unit)

    def _drop(self, unit: WatchedUnit) -> None:
        if not self._is_watched(unit):
            return
        del self._by_name[unit.name]
        if self._watchlist.wants(unit.name) and not unit.is_loaded:
            self._missed[unit.name] = unit
            if len(self._missed) > MAX_MISSED:
                self._unfollow(next(iter(self._missed.values())))
        else:
            self._unfollow(unit)
        if self._over_limit and len(self._by_name) <= MAX_UNITS // 2:
            self._over_limit = False
            self.resync()

    def _unfollow(self, unit: WatchedUnit) -> None:
        unit.stop_reports()
        self._recently_loaded.discard(unit.name)  # should it be watched again, it has a past
        self._missed.pop(unit.name, None)
        del self._by_path[unit.path]
        self._spawn(self._rules.unfollow(unit.path))
        self._surroundings.unit_removed(unit.name)
