"""Reading from systemd: the units there are to watch, and one of them. Loads no unit; errors are those of a call."""

from dataclasses import dataclass
from pathlib import Path

from llmhost.sources.systemd.calls import Systemd
from llmhost.sources.systemd.names import is_service, is_unit_name, unit_name
from llmhost.sources.systemd.units.match_rules import MatchRules
from llmhost.sources.systemd.units.watched_unit import WatchedUnit
from llmhost.sources.systemd.units.watchlist import Watchlist

_SERVICES = "*.service"
# systemd.unit(5), "UNIT FILE LOAD PATH": those that an administrator or a package links in, in order of precedence.
_SEARCH_PATH = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
_MAX_LINKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitListing:
    names: tuple[str, ...]  # to be watched; first those that are watched by name, then those with a file
    files: frozenset[str]  # unit files that match a pattern, loaded or not
    loaded: tuple[str, ...]  # all services that are loaded, where units are discovered; else those that match
    unwatched: tuple[str, ...]  # those of the loaded that the watchlist does not want so far


async def list_units(systemd: Systemd, watchlist: Watchlist) -> UnitListing:
    globs = watchlist.globs
    listed = (_SERVICES,) if watchlist.discover else globs
    loaded = await systemd.loaded(listed) if listed else []
    files = frozenset(await systemd.unit_files(globs) if globs else ())
    names = watchlist.names()
    names.update(
        name
        for name, load_state, active_state in loaded
        if (load_state != "not-found" or active_state != "inactive") and watchlist.matches(name)
    )
    names.update(name for name in files if watchlist.matches(name))
    return UnitListing(
        names=tuple(sorted(names, key=lambda name: (not watchlist.by_name(name), name not in files, name))),
        files=files,
        loaded=tuple(name for name, _, _ in loaded),
        unwatched=tuple(name for name, state, _ in loaded if state == "loaded" and not watchlist.wants(name)),
    )


async def read_unit(unit: WatchedUnit, systemd: Systemd, rules: MatchRules, root: Path) -> str:
    """Read a unit, by name first: to read the properties of what is not loaded would make systemd load it.

    Returns the unit's own name; where that is another, nothing more was read.
    """
    if not is_unit_name(unit.name):
        unit.not_loaded()
        unit.file_read(None)
        return unit.name
    await rules.follow(unit.path)
    path = await systemd.unit_path(unit.name, unit.not_loaded)
    if path is not None:
        name = unit_name(path)
        if name == unit.name:
            await systemd.properties(path, unit.properties_read)
        return name
    state = await systemd.unit_file_state(unit.name)
    name = alias_target(unit.name, root) if state is not None else unit.name
    if name == unit.name:
        unit.file_read(state)
    return name


def alias_target(name: str, root: Path) -> str:
    """Name of the unit that `name` is an alias of; `name` itself where it is none, or its file cannot be read.

    A unit file that is a symbolic link is an alias; where it is one is read under `root`.
    """
    for _ in range(_MAX_LINKS):
        target = _link_target(name, root)
        # A link under the unit's own name only says where the file lies; one to a template is an instance of it.
        if target == name or not is_service(target):
            return name
        name = target
    return name


def _link_target(name: str, root: Path) -> str:
    for directory in _SEARCH_PATH:
        path = root / directory / name
        try:
            return path.readlink().name
        except FileNotFoundError:
            continue
        except OSError:  # a plain file, or unreadable
            return name
    return name
