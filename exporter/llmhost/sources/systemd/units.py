"""The watched units of one run of systemd: read once, then kept up to date by signals."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from llmhost.model.unit import UnitsReport
from llmhost.sources.systemd.bus import CallFailedError
from llmhost.sources.systemd.calls import CALLEE_GONE, PROPERTIES, Systemd
from llmhost.sources.systemd.changed import read_changed
from llmhost.sources.systemd.discovery import Discovery
from llmhost.sources.systemd.entry import Entry, Tell
from llmhost.sources.systemd.listing import list_units
from llmhost.sources.systemd.newcomers import Newcomers
from llmhost.sources.systemd.parse import SIGNALLED
from llmhost.sources.systemd.progress import Progress
from llmhost.sources.systemd.reader import UnitReader
from llmhost.sources.systemd.reading import read_all, refreshed
from llmhost.sources.systemd.rules import UnitRules
from llmhost.sources.systemd.seldom import Once
from llmhost.sources.systemd.watchlist import Watchlist
from llmhost.sources.systemd.wire import Received

REFRESH_SECONDS = 0.25  # no more often per unit: what has just been unloaded would be loaded again by being looked at
MAX_UNITS = 1000  # watched at a time; anybody may have systemd load units whose names match a glob


class Units:
    """Used from the source's event loop. `run` ends only by raising why; signals come in through `on_signal`."""

    def __init__(
        self,
        systemd: Systemd,
        watchlist: Watchlist,
        progress: Progress,
        *,
        is_engine_command: Callable[[tuple[str, ...]], bool],
        on_synced: Callable[[], None],
        on_reload: Callable[[], None],
        tell: Tell | None,
        root: Path,
        clock: Callable[[], float],
    ) -> None:
        self._systemd = systemd
        self._watchlist = watchlist
        self._progress = progress
        self._on_synced = on_synced
        self._on_reload = on_reload
        self._tell = tell
        self._clock = clock
        self._newcomers = Newcomers()
        self._discovery = Discovery(systemd, is_engine_command, found=self._discovered, progressed=progress.made)
        self._entries: dict[str, Entry] = {}
        self._by_path: dict[str, Entry] = {}
        self._left_out = False  # some, for being too many
        self._files: frozenset[str] = frozenset()  # those that match a glob
        self._tasks = asyncio.TaskGroup()
        self._running = False
        self._reloading = False
        self._syncing = False
        self._sync_wanted = 0
        self._sync_done = 0
        self._rules = UnitRules(systemd.bus)
        self._reader = UnitReader(systemd, self._rules, root)
        self._version = ""
        self._warn = Once().warn  # each once for a run of systemd

    async def run(self) -> None:
        async with self._tasks:
            await self._systemd.subscribe()
            self._version = await self._systemd.version()
            self._spawn(self._discovery.run())
            self._running = True  # what came before is in the snapshots that follow
            self.resync()

    def end(self) -> None:
        """Tell nothing more: another run of systemd, or another connection, has taken over."""
        self._running = False
        for entry in self._entries.values():
            entry.dropped = True

    # what a read needs

    def caught_up(self) -> Callable[[], bool]:
        """Make a predicate: whether all is in that has been asked for by now, and no reload is going on."""
        sync = max(1, self._sync_wanted)
        read = refreshed(self._entries.values())
        return lambda: not self._reloading and self._sync_done >= sync and read()

    def retry(self) -> None:
        """Look again at what could not be read."""
        for entry in list(self._entries.values()):
            if entry.unreadable:
                self.watch(entry.name)

    def discovered_all(self) -> bool:
        return self._discovery.done()

    def disconnected(self) -> bool:
        """Whether nothing more can be learnt; the end of the run follows."""
        return self._systemd.bus.gone

    def report(self, resyncs: tuple[tuple[str, int], ...]) -> UnitsReport:
        """All that is known. Raises UnreadableUnitError where there are units and none can be read."""
        units, gone = read_all(
            self._entries.values(), lambda name: self._watchlist.keeps_missing(name, self._clock()), self._warn
        )
        for entry in gone:
            self._drop(entry)
        return UnitsReport(systemd_version=self._version, units=units, resyncs=resyncs)

    # what comes in

    def on_signal(self, message: Received) -> None:
        if not self._running:
            return
        if message.interface == PROPERTIES:
            entry = self._by_path.get(message.path)
            if entry is not None and entry.followed:
                entry.changed(*read_changed(message, SIGNALLED))
            return
        match message.member:
            case "Reloading":
                (self._reloading,) = message.body()
                if not self._reloading:
                    self._on_reload()
                    self._discovery.look_again()
                    self.resync()
            case "UnitFilesChanged":
                self.resync()
            case "UnitNew" if not self._reloading:
                self._on_loaded(message.body()[0])
            case "UnitRemoved" if not self._reloading:
                self._on_removed(message.body()[0])
            case _:
                pass

    def _on_loaded(self, name: str) -> None:
        if self._sync_done:
            self._newcomers.add(name)
        if name in self._entries:
            self._entries[name].appeared(born=name in self._newcomers)
        if self._watchlist.wants(name):
            self.watch(name)
            return
        for entry in self._entries.values():
            if entry.unresolved_alias:
                self.watch(entry.name)
        if self._watchlist.discover:
            self._discovery.look_at_new(name)

    def _on_removed(self, name: str) -> None:
        self._newcomers.discard(name)
        self._discovery.forget(name)
        if name in self._entries:
            self._entries[name].removed()
            self.watch(name)

    def _discovered(self, name: str) -> None:
        if self._watchlist.discover and not self._watchlist.by_name(name):
            self._watchlist.discovered.add(name)
            self.watch(name)

    def watch(self, name: str, *, born: bool = True) -> None:
        """Look at a unit, for the first time or again; not at a new one above MAX_UNITS, unless it is configured.

        `born`: where systemd has loaded it since all was read, what it is from then on is all that it ever was.
        """
        if not self._running:
            return
        entry = self._entries.get(name)
        if entry is None:
            if len(self._entries) >= MAX_UNITS and name not in self._watchlist.exact:
                self._left_out = True
                self._warn(f"more than {MAX_UNITS} units match what is to be watched; the others are left out")
                return
            born = born and name in self._newcomers
            entry = self._entries[name] = Entry(name, born=born, tell=self._tell, warn=self._warn)
            self._by_path[entry.path] = entry
        entry.wanted += 1
        if not entry.refreshing:
            entry.refreshing = True
            self._spawn(self._refresh_until_done(entry))

    def reconfigured(self) -> None:
        """Act on a watchlist that has other patterns."""
        self._discovery.forget_all()
        self.resync()

    def resync(self, *, lost: bool = False) -> None:
        """Look at everything again; `lost`: something was told that could not be understood."""
        for entry in self._entries.values():
            entry.followed &= not lost
        if not self._running:
            return
        self._sync_wanted += 1
        if not self._syncing:
            self._syncing = True
            self._spawn(self._sync_until_done())

    # the work

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._tasks.create_task(work)
        except RuntimeError:  # this run is ending
            work.close()

    async def _sync_until_done(self) -> None:
        while self._sync_done < self._sync_wanted:
            wanted = self._sync_wanted
            await self._sync()
            if not self._sync_done:
                self._on_synced()
            self._sync_done = wanted
            self._progress.made()
            if self._sync_done < self._sync_wanted:
                await asyncio.sleep(REFRESH_SECONDS)
        self._syncing = False

    async def _sync(self) -> None:
        before = list(self._entries.values())
        listing = await list_units(self._systemd, self._watchlist)
        self._files = listing.files
        self._left_out = False
        names = set(listing.names)
        for entry in before:  # not what came after the list was made
            if entry.name not in names:
                self._drop(entry)
        for name in listing.names:
            self.watch(name)
        entries = [self._entries[name] for name in names if name in self._entries]
        for entry in entries:
            entry.refresh_not_before = 0.0
        await self._progress.until(refreshed(entries))
        if self._watchlist.discover:
            self._discovery.keep_only(listing.loaded)
            self._discovery.look_at_listed(name for name in listing.others if not self._watchlist.wants(name))

    async def _refresh_until_done(self, entry: Entry) -> None:
        while entry.done < entry.wanted:
            wait_seconds = entry.refresh_not_before - time.monotonic()
            if wait_seconds > 0:
                await asyncio.sleep(wait_seconds)
            wanted = entry.wanted
            try:
                await self._refresh(entry)
            except (CallFailedError, ValueError) as error:
                if isinstance(error, CallFailedError) and error.name in CALLEE_GONE:
                    raise
                entry.fail(str(error))
            if entry.done or entry.loaded:  # when it first comes, its settings are to be known before it is gone again
                entry.refresh_not_before = time.monotonic() + REFRESH_SECONDS
            entry.done = wanted
            self._progress.made()
        entry.refreshing = False
        if self._entries.get(entry.name) is not entry:
            return
        if not self._kept(entry):
            self._drop(entry)
        elif entry.missing:
            entry.tell_missing()

    async def _refresh(self, entry: Entry) -> None:
        if self._entries.get(entry.name) is not entry:
            return  # dropped meanwhile
        name = await self._reader.read(entry)
        self._watchlist.alias(entry.name, name)
        if name != entry.name:
            await self._resolve(entry, name)
        elif entry.loaded and not entry.not_found:
            self._watchlist.saw_loaded(name, transient=entry.transient)

    def _kept(self, entry: Entry) -> bool:
        """Whether what has just been looked at stays watched. What anybody can have systemd load must not add up."""
        if entry.missing:
            return self._watchlist.keeps_missing(entry.name, self._clock())
        return not entry.idle_instance or entry.name in self._files or self._watchlist.by_name(entry.name)

    async def _resolve(self, entry: Entry, name: str) -> None:
        """Watch the unit itself instead of its alias."""
        self._drop(entry)
        if name not in self._entries:
            self.watch(name)
        unit = self._entries.get(name)
        if unit is not None:
            await self._progress.until(lambda: unit.done > 0)

    def _drop(self, entry: Entry) -> None:
        if self._entries.get(entry.name) is entry:
            entry.dropped = True
            self._newcomers.discard(entry.name)  # should it be watched again, it has a past
            del self._entries[entry.name]
            del self._by_path[entry.path]
            self._spawn(self._rules.unfollow(entry.path))
            if self._left_out and len(self._entries) <= MAX_UNITS // 2:
                self._left_out = False
                self.resync()
