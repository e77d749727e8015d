"""The environment that a guard is started with. It is the engine's: data for the guard, and no settings of its own.

In a service's start the guard may run as root, with an environment that was made for an engine of another user. What is
kept of it for the guard and its children is little, and names no place that others can change.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from llmhost.runtime.trusted_path import trusted_owners, who_may_change, who_may_change_files

Environment = tuple[tuple[str, str], ...]

# systemd's own, systemd.exec(5). By none of them a program, a module or a configuration is found.
_KEPT = ("INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET", "SYSTEMD_EXEC_PID")
_BUS = "DBUS_SYSTEM_BUS_ADDRESS"
_BUS_PATH = "unix:path="
_LIBRARIES = "LD_LIBRARY_PATH"


def take_environment() -> Environment:
    """Return the environment of this process, and leave in it what the guard and its children need, and no more."""
    given = dict(os.environ)
    kept = {name: given[name] for name in _KEPT if name in given} | dict(_trusted(given))
    os.environ.clear()
    os.environ.update(kept)
    return tuple(given.items())


def _trusted(given: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield where another bus is, and another driver library with what else is named in its folder."""
    bus = given.get(_BUS, "")
    if bus.startswith(_BUS_PATH) and not who_may_change(bus.removeprefix(_BUS_PATH), trusted_owners()):
        yield _BUS, bus
    named = [folder for folder in given.get(_LIBRARIES, "").split(":") if folder]
    folders = [folder for folder in named if not who_may_change_files(folder, trusted_owners())]
    if folders:
        yield _LIBRARIES, ":".join(folders)
        for name, value in given.items():
            is_there = str(Path(value).parent) in folders and not name.startswith("LD_")
            if is_there and not who_may_change(value, trusted_owners()):
                yield name, value
