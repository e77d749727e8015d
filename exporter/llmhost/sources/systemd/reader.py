"""Reading one unit. It is asked for by name first: reading what is not loaded would make systemd load it."""

from pathlib import Path

from llmhost.sources.systemd.aliases import alias_target
from llmhost.sources.systemd.calls import Systemd
from llmhost.sources.systemd.entry import Entry
from llmhost.sources.systemd.names import is_unit_name, unit_name
from llmhost.sources.systemd.parse import unloaded_unit
from llmhost.sources.systemd.rules import UnitRules


class UnitReader:
    """Reads units of one run of systemd into their entries. Errors are those of SafeBus.call."""

    def __init__(self, systemd: Systemd, rules: UnitRules, root: Path) -> None:
        self._systemd = systemd
        self._rules = rules
        self._root = root

    async def read(self, entry: Entry) -> str:
        """Bring an entry up to date. Returns the unit's own name; where that is another, nothing more was read."""
        if not is_unit_name(entry.name):
            entry.found_absent()
            entry.unload(None)
            return entry.name
        await self._rules.follow(entry.path)
        path = await self._systemd.unit_path(entry.name, entry.found_absent)
        if path is None:
            return await self._read_unloaded(entry)
        name = unit_name(path)
        if name == entry.name:
            await self._systemd.properties(path, entry.snapshot)
        return name

    async def _read_unloaded(self, entry: Entry) -> str:
        state = await self._systemd.unit_file_state(entry.name)
        name = alias_target(entry.name, self._root) if state is not None else entry.name
        if name == entry.name:
            entry.unload(None if state is None else unloaded_unit(entry.name, state))
        return name
