"""Match rules for the signals of units, as narrow as the bus allows.

There is a rule per watched unit, so 500 others that restart in a loop, at 14 signals per restart, cost nothing here.
dbus-daemon allows a connection 512 rules (max_match_rules_per_connection): above MAX_UNIT_RULES units one rule for all
unit paths takes over, until there are far fewer.
"""

import contextlib

from llmhost.sources.systemd.bus.connection import BusConnection, CallFailedError
from llmhost.sources.systemd.calls import ALL_UNITS_RULE, add_match, remove_match, unit_rule

MAX_UNIT_RULES = 400
_NARROW_AGAIN = MAX_UNIT_RULES // 2  # far below, so that it does not change to and fro


class MatchRules:
    """Rules for one run of systemd. The bus handles our messages in order, so a unit is followed before it is read."""

    def __init__(self, bus: BusConnection) -> None:
        self._bus = bus
        self._followed: set[str] = set()
        self._narrow: set[str] = set()  # of those, the ones that have a rule of their own
        self._all_units = False
        self._narrowing = False

    async def follow(self, path: str) -> None:
        self._followed.add(path)
        if path in self._narrow or self._all_units:
            return
        if len(self._narrow) < MAX_UNIT_RULES:
            await self._add(path)
        else:
            self._all_units = True
            try:
                await add_match(self._bus, ALL_UNITS_RULE)
            except CallFailedError:
                self._all_units = False
                raise

    async def unfollow(self, path: str) -> None:
        """Never raises CallFailedError: a rule too many does no harm."""
        self._followed.discard(path)
        with contextlib.suppress(CallFailedError):
            if path in self._narrow:
                self._narrow.discard(path)
                await remove_match(self._bus, unit_rule(path))
            if self._all_units and not self._narrowing and len(self._followed) <= _NARROW_AGAIN:
                self._narrowing = True
                try:
                    await self._narrow_down()
                finally:
                    self._narrowing = False

    async def _narrow_down(self) -> None:
        """Remove the wide rule once each unit has one of its own."""
        while len(self._followed) < MAX_UNIT_RULES:
            path = next(iter(self._followed - self._narrow), None)
            if path is None:
                self._all_units = False
                await remove_match(self._bus, ALL_UNITS_RULE)
                return
            await self._add(path)

    async def _add(self, path: str) -> None:
        self._narrow.add(path)
        try:
            await add_match(self._bus, unit_rule(path))
        except CallFailedError:
            self._narrow.discard(path)
            raise
