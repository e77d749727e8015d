"""Match rules for the signals of units: as narrow as the bus allows.

PropertiesChanged is asked for one unit path at a time: 500 services that nobody watches can restart in a loop, at 14
signals of 0.2 ms each per restart, and cost nothing here. dbus-daemon allows a connection 512 rules
(max_match_rules_per_connection); above MAX_UNIT_RULES one rule for all unit paths takes over.
"""

import contextlib

from llmhost.sources.systemd.bus import CallFailedError, SafeBus
from llmhost.sources.systemd.calls import ALL_UNITS_RULE, add_match, remove_match, unit_rule

MAX_UNIT_RULES = 400


class UnitRules:
    """The rules of one run of systemd. The bus handles our messages in order: a unit is followed before it is read."""

    def __init__(self, bus: SafeBus) -> None:
        self._bus = bus
        self._paths: set[str] = set()
        self._all_units = False

    async def follow(self, path: str) -> None:
        if path in self._paths or self._all_units:
            return
        if len(self._paths) < MAX_UNIT_RULES:
            self._paths.add(path)
            await add_match(self._bus, unit_rule(path))
        else:
            self._all_units = True
            await add_match(self._bus, ALL_UNITS_RULE)

    async def unfollow(self, path: str) -> None:
        if path in self._paths:
            self._paths.discard(path)
            with contextlib.suppress(CallFailedError):  # the bus may have refused it in the first place
                await remove_match(self._bus, unit_rule(path))
