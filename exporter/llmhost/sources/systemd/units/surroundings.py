"""Facts of a service that systemd tells in other places: its own environment, and the service's relatives."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

from llmhost.model.unit import Unit
from llmhost.sources.systemd.bus.connection import BusClosedError, CallFailedError, CallTimeoutError
from llmhost.sources.systemd.calls import Systemd
from llmhost.sources.systemd.properties.relations import Relation, relations_of
from llmhost.sources.systemd.properties.typed_properties import Properties
from llmhost.sources.systemd.units.relatives import Relatives
from llmhost.sources.systemd.units.waiting import Requests

_READ_SECONDS = 0.25  # between two reads: a start comes with several signals


class Surroundings:
    """Read with each unit, and again after what may come with a change that no signal tells of.

    A unit is related to another once systemd has loaded that one: without such a load or a reload, nothing changes.
    """

    def __init__(
        self,
        systemd: Systemd,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        is_watched: Callable[[str], bool],
    ) -> None:
        self._is_watched = is_watched
        self.relatives = Relatives(systemd, is_watched)
        self._systemd = systemd
        self._spawn = spawn
        self._environment: tuple[tuple[str, str], ...] | None = None  # systemd's own, for all services
        self._requests = Requests()
        self._signalled: dict[str, None] = {}  # units, since their relations were read
        self._up_to_date: set[str] = set()  # units whose relations were read since systemd has last loaded one

    def completed(self, unit: Unit) -> Unit:
        unit = replace(unit, relatives=self.relatives.of(unit.id.name))
        if unit.settings is None or unit.settings.manager_environment == self._environment:
            return unit
        return replace(unit, settings=replace(unit.settings, manager_environment=self._environment))

    async def read_environment(self) -> None:
        """Read the environment. A systemd that does not answer is told of by what else it is asked."""
        with suppress(CallFailedError, CallTimeoutError, BusClosedError):
            self._environment = await self._systemd.environment()

    def unit_loaded(self) -> None:
        self._up_to_date.clear()

    def unit_removed(self, unit: str) -> None:
        """Let go of the relatives of a unit that is not loaded: none that is loaded names it, or it would be."""
        self._up_to_date.discard(unit)
        self._spawn(self.relatives.forget(unit))

    def refresh(self, unit: str = "") -> None:
        """Read the environment again after a reload or a signal of a watched unit, and that unit's relations."""
        if unit:
            self._signalled[unit] = None
        if self._requests.make():
            self._spawn(self._refresh_until_served())

    async def _refresh_until_served(self) -> None:
        while self._requests.pending:
            made = self._requests.made
            await asyncio.sleep(_READ_SECONDS)
            await self.read_environment()
            signalled, self._signalled = self._signalled, {}
            for unit in signalled.keys() - self._up_to_date:
                self._up_to_date.add(unit)
                try:
                    await self._learn_again(unit)
                except (CallFailedError, CallTimeoutError, BusClosedError):
                    self._up_to_date.discard(unit)
            self._requests.served = made

    async def _learn_again(self, unit: str) -> None:
        path = await self._systemd.unit_path(unit) if self._is_watched(unit) else None
        relations: list[Relation] = []

        def take(properties: Properties) -> None:
            relations.extend(relations_of(properties))

        if path is not None:
            await self._systemd.properties(path, take)
            await self.relatives.learn(unit, relations)
