"""What there is to be watched: asked of systemd all at once."""

from dataclasses import dataclass

from llmhost.sources.systemd.calls import Systemd
from llmhost.sources.systemd.watchlist import Watchlist

_SERVICES = "*.service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    names: tuple[str, ...]  # to be watched; first those that are so by name
    files: frozenset[str]  # unit files that match a pattern, loaded or not
    loaded: tuple[str, ...]  # all services that are loaded, where they are discovered; else those that match
    others: tuple[str, ...]  # of the loaded, those that nothing so far says are to be watched


async def list_units(systemd: Systemd, watchlist: Watchlist) -> Listing:
    """Ask. Loads no unit; errors are those of SafeBus.call."""
    globs = watchlist.globs
    listed = (_SERVICES,) if watchlist.discover else globs
    loaded = await systemd.loaded(listed) if listed else []
    files = frozenset(await systemd.unit_files(globs) if globs else ())
    names = watchlist.names()
    names.update(name for name, load_state in loaded if load_state != "not-found" and watchlist.matches(name))
    names.update(name for name in files if watchlist.matches(name))
    return Listing(
        names=tuple(sorted(names, key=lambda name: (not watchlist.by_name(name), name))),
        files=files,
        loaded=tuple(name for name, _ in loaded),
        others=tuple(name for name, load_state in loaded if load_state == "loaded" and not watchlist.wants(name)),
    )
