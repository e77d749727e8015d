"""Calls to systemd, and to the bus about it: one per function. Errors are those of BusConnection.call."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from llmhost.sources.systemd.bus.connection import BUS, BUS_DRIVER, BusConnection, Callee, CallFailedError
from llmhost.sources.systemd.names import matches, unit_name, wider
from llmhost.sources.systemd.properties.typed_properties import TypedProperties
from llmhost.sources.systemd.properties.unit import exec_start

SYSTEMD = "org.freedesktop.systemd1"
MANAGER_PATH = "/org/freedesktop/systemd1"
MANAGER = "org.freedesktop.systemd1.Manager"
SERVICE = "org.freedesktop.systemd1.Service"
PROPERTIES = "org.freedesktop.DBus.Properties"
PEER = "org.freedesktop.DBus.Peer"

OWNER_RULE = f"type='signal',sender='{BUS}',interface='{BUS}',member='NameOwnerChanged',arg0='{SYSTEMD}'"
MANAGER_RULES = tuple(
    f"type='signal',sender='{SYSTEMD}',interface='{MANAGER}',member='{member}'"
    for member in ("Reloading", "UnitNew", "UnitRemoved", "UnitFilesChanged")
)
_CHANGED = f"type='signal',sender='{SYSTEMD}',interface='{PROPERTIES}',member='PropertiesChanged'"
ALL_UNITS_RULE = f"{_CHANGED},path_namespace='{MANAGER_PATH}/unit'"

_NO_OWNER = f"{BUS}.Error.NameHasNoOwner"
_NOT_LOADED = frozenset({f"{SYSTEMD}.NoSuchUnit", f"{BUS}.Error.InvalidArgs"})
_NO_UNIT_FOR_PID = f"{SYSTEMD}.NoUnitForPID"
_NO_FILE = _NOT_LOADED | {f"{BUS}.Error.FileNotFound"}
_SUBSCRIBED = f"{SYSTEMD}.AlreadySubscribed"
# Errors of a call whose callee leaves the bus.
CALLEE_DISCONNECTED = frozenset({f"{BUS}.Error.NoReply", f"{BUS}.Error.ServiceUnknown", _NO_OWNER})


def unit_rule(path: str) -> str:
    return f"{_CHANGED},path='{path}'"


async def add_match(bus: BusConnection, rule: str) -> None:
    await bus.call(BUS_DRIVER, "AddMatch", "s", rule)


async def remove_match(bus: BusConnection, rule: str) -> None:
    await bus.call(BUS_DRIVER, "RemoveMatch", "s", rule)


async def name_owner(bus: BusConnection, on_owner: Callable[[str], None]) -> None:
    """Call `on_owner` with the owner of systemd's name, or "", in order among the signals of its changes."""
    try:
        await bus.call(BUS_DRIVER, "GetNameOwner", "s", SYSTEMD, on_reply=lambda body: on_owner(body[0]))
    except CallFailedError as error:
        if error.name != _NO_OWNER:
            raise
        on_owner("")


class Systemd:
    """One run of systemd, by its unique name on the bus."""

    def __init__(self, bus: BusConnection, owner: str) -> None:
        self.bus = bus
        self.owner = owner
        self._manager = Callee(owner, MANAGER_PATH, MANAGER)

    def _properties_of(self, path: str) -> Callee:
        return Callee(self.owner, path, PROPERTIES)

    async def ping(self) -> None:
        await self.bus.call(Callee(self.owner, MANAGER_PATH, PEER), "Ping")

    async def subscribe(self) -> None:
        """Have systemd send signals at all. A re-executed systemd remembers its subscribers."""
        try:
            await self.bus.call(self._manager, "Subscribe")
        except CallFailedError as error:
            if error.name != _SUBSCRIBED:
                raise

    async def version(self) -> str:
        (version,) = await self.bus.call(self._properties_of(MANAGER_PATH), "Get", "ss", MANAGER, "Version")
        return str(version)

    async def boot_times(self) -> tuple[tuple[float, float], ...]:
        """Get the times of systemd's begin and of the end of the boot, each since the epoch and on CLOCK_MONOTONIC."""
        found = []
        for name in ("UserspaceTimestamp", "FinishTimestamp"):
            calls = [
                self.bus.call(self._properties_of(MANAGER_PATH), "Get", "ss", MANAGER, property_name)
                for property_name in (name, f"{name}Monotonic")
            ]
            (realtime,), (monotonic,) = await asyncio.gather(*calls)
            if realtime and monotonic:  # microseconds; 0: not yet
                found.append((realtime / 1e6, monotonic / 1e6))
        return tuple(found)

    async def environment(self) -> tuple[tuple[str, str], ...]:
        """Get the variables that it gives to all services: DefaultEnvironment=, set-environment, a few of its own."""
        (found,) = await self.bus.call(self._properties_of(MANAGER_PATH), "Get", "ss", MANAGER, "Environment")
        return TypedProperties({"Environment": found}).environment()

    async def loaded(self, globs: Collection[str]) -> list[tuple[str, str, str]]:
        """Name, load state and active state of the loaded units that match; loads none. Aliases are not matched."""
        (rows,) = await self.bus.call(self._manager, "ListUnitsByPatterns", "asas", [], [*map(wider, globs)])
        return [(row[0], row[2], row[3]) for row in rows if matches(row[0], globs)]

    async def unit_files(self, globs: Collection[str]) -> list[str]:
        """Names of the unit files that match, loaded or not, templates and aliases among them."""
        (rows,) = await self.bus.call(self._manager, "ListUnitFilesByPatterns", "asas", [], [*map(wider, globs)])
        names = [row[0].rpartition("/")[2] for row in rows]
        return [name for name in names if matches(name, globs)]

    async def unit_path(self, name: str, on_none: Callable[[], None] = lambda: None) -> str | None:
        """Object path of a unit, of an alias that of the unit itself; None where it is not loaded. Loads nothing.

        `on_none` is called for the latter in order among the signals.
        """

        def on_error(error: str) -> None:
            if error in _NOT_LOADED:
                on_none()

        try:
            (path,) = await self.bus.call(self._manager, "GetUnit", "s", name, on_error=on_error)
        except CallFailedError as error:
            if error.name in _NOT_LOADED:
                return None
            raise
        return str(path)

    async def own_unit(self) -> str | None:
        """Name the unit that this process runs in, by its cgroup, wherever it sees that from; None where in none."""
        try:
            (path,) = await self.bus.call(self._manager, "GetUnitByPID", "u", 0)
        except CallFailedError as error:
            if error.name == _NO_UNIT_FOR_PID:
                return None
            raise
        return unit_name(path)

    async def unit_file_state(self, name: str) -> str | None:
        """Read from the files alone: enabled, masked, …; None where there is no file. Loads nothing."""
        try:
            (state,) = await self.bus.call(self._manager, "GetUnitFileState", "s", name)
        except CallFailedError as error:
            if error.name in _NO_FILE:
                return None
            raise
        return str(state)

    async def properties(self, path: str, on_reply: Callable[[dict[str, Any]], None]) -> None:
        """Get all properties of all interfaces at once, so that they cannot contradict each other.

        LOADS the unit where it is not loaded, and signals that with UnitNew: ask for `unit_path` right before.
        """
        await self.bus.call(self._properties_of(path), "GetAll", "s", "", on_reply=lambda body: on_reply(body[0]))

    async def exec_start(self, path: str) -> tuple[tuple[str, ...], ...]:
        """Get the argument vectors of a service. LOADS it, like `properties`."""
        (value,) = await self.bus.call(self._properties_of(path), "Get", "ss", SERVICE, "ExecStart")
        return exec_start(value)
