"""Names of the units that are watched, and for how long. Pure; it outlives connections.

A unit is watched if a configured pattern matches it or, where units are discovered, if it runs an engine or holds GPU
memory. A transient unit, which leaves no file behind, is kept for an hour after it is unloaded.
"""

from collections.abc import Iterable

from llmhost.sources.systemd.names import is_glob, is_service, matches

TRANSIENT_KEPT_SECONDS = 3600.0
MAX_TRANSIENTS = 200  # that are unloaded; a loop of systemd-run leaves a new name each time


class Watchlist:
    """Used from the source's own thread. Times are on one monotonic clock."""

    def __init__(self, patterns: Iterable[str], *, discover: bool) -> None:
        self.globs: tuple[str, ...] = ()
        self.exact: frozenset[str] = frozenset()
        self.discover = discover
        self.discovered: set[str] = set()
        self.requested: set[str] = set()
        self._aliases: dict[str, str] = {}  # alias → the unit's own name
        self._transients: dict[str, float | None] = {}  # name → when it was found unloaded
        self.configure(patterns, discover=discover)

    def configure(self, patterns: Iterable[str], *, discover: bool) -> None:
        names = tuple(dict.fromkeys(patterns))
        self.globs = tuple(name for name in names if is_glob(name))
        self.exact = frozenset(name for name in names if not is_glob(name))
        self.discover = discover
        if not discover:
            self.discovered.clear()
            self.requested.clear()
        self._aliases.clear()
        kept = {*self.exact, *self.requested, *self.discovered}
        self._transients = {name: at for name, at in self._transients.items() if name in kept or self.matches(name)}

    def ask_for(self, names: Iterable[str]) -> list[str]:
        """Watch these as well, where units are discovered; returns those that were not watched by name so far."""
        if not self.discover:
            return []
        new = [name for name in names if is_service(name) and not self.by_name(name)]
        self.requested.update(new)
        return new

    def matches(self, name: str) -> bool:
        return is_service(name) and matches(name, self.globs)

    def by_name(self, name: str) -> bool:
        return (
            name in self.exact
            or name in self.requested
            or name in self.discovered
            or name in self._transients
            or name in self._aliases.values()
        )

    def wants(self, name: str) -> bool:
        return self.by_name(name) or self.matches(name)

    def names(self) -> set[str]:
        """All names that are watched as such: aliases too, and the units behind them as far as these are known."""
        return {*self.exact, *self.requested, *self.discovered, *self._transients, *self._aliases.values()}

    def alias(self, name: str, of: str) -> None:
        """Note the unit that a name stands for; that may be itself."""
        if name == of:
            self._aliases.pop(name, None)
        else:
            self._aliases[name] = of

    def aliases_of(self, name: str) -> tuple[str, ...]:
        """Give the names that were found to stand for a unit."""
        return tuple(sorted(alias for alias, of in self._aliases.items() if of == name))

    def configured(self, name: str) -> bool:
        """Check whether it is reported even when there is no such unit."""
        return name in self.exact or any(self._aliases.get(exact) == name for exact in self.exact)

    def saw_loaded(self, name: str, *, transient: bool) -> None:
        if transient:
            self._transients[name] = None
        else:
            self._transients.pop(name, None)

    def keeps_missing(self, name: str, now: float) -> bool:
        """Decide whether a unit that does not exist is still reported."""
        if self.configured(name):
            return True
        if name in self._transients:
            unloaded_at = self._transients[name]
            if unloaded_at is None:
                self._bound_transients()
                self._transients[name] = unloaded_at = now
            return now - unloaded_at < TRANSIENT_KEPT_SECONDS
        return False

    def forget(self, name: str) -> None:
        self._transients.pop(name, None)
        self.discovered.discard(name)
        self.requested.discard(name)

    def _bound_transients(self) -> None:
        unloaded = sorted((at, name) for name, at in self._transients.items() if at is not None)
        for _, name in unloaded[: max(0, len(unloaded) - MAX_TRANSIENTS + 1)]:
            self.forget(name)
