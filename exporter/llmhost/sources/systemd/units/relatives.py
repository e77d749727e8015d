"""Relatives of watched units: other units that start them, stop them or want them to run.

Each is read once, and kept up to date by signals: systemd tells of an end before it acts on it.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from llmhost.model.unit import Relative
from llmhost.sources.systemd.bus.connection import CallFailedError
from llmhost.sources.systemd.calls import CALLEE_DISCONNECTED, Systemd
from llmhost.sources.systemd.names import unit_path
from llmhost.sources.systemd.properties.relations import (
    STATE,
    STOP_WITH,
    Relation,
    RelativeState,
    relations_of,
    relative_state,
)
from llmhost.sources.systemd.properties.typed_properties import Properties
from llmhost.sources.systemd.units.match_rules import MatchRules

MAX_FOLLOWED = 64  # of all watched units together; most share theirs, such as multi-user.target
_MAX_STEPS = 3  # from a service to what it is bound to, over others that are
_MAX_OF_ONE = 32


class Relatives:
    """Used from the source's event loop."""

    def __init__(self, systemd: Systemd, is_watched: Callable[[str], bool]) -> None:
        self._systemd = systemd
        self._is_watched = is_watched
        self._lock = asyncio.Lock()  # units come and go while others are being read
        self._rules = MatchRules(systemd.bus)
        self._followed: dict[str, _Followed] = {}  # by path
        self._of: dict[str, tuple[Relation, ...]] = {}  # by watched unit

    def of(self, watched: str) -> tuple[Relative, ...]:
        """Give the relatives of a watched unit, without a state where that is not known."""
        return tuple(
            _relative(relation, self._followed.get(unit_path(relation.name))) for relation in self._of.get(watched, ())
        )

    async def learn(self, watched: str, relations: Iterable[Relation]) -> None:
        """Follow what a watched unit is related to by now; raises the errors of calls that systemd did not answer."""
        async with self._lock:
            if self._is_watched(watched):  # else it has been forgotten, and will not be once more
                self._of[watched] = await self._followed_of(watched, relations)

    async def _followed_of(self, watched: str, relations: Iterable[Relation]) -> tuple[Relation, ...]:
        found: dict[Relation, None] = {}
        steps = [(relation, 1) for relation in relations]
        while steps and len(found) < _MAX_OF_ONE:
            relation, step = steps.pop(0)
            if relation in found or relation.name == watched:
                continue
            found[relation] = None
            followed = await self._follow(relation.name)
            if followed is not None and relation.kind in STOP_WITH and step < _MAX_STEPS:
                steps += [(farther, step + 1) for farther in followed.relations if farther.kind in STOP_WITH]
        return tuple(found)

    async def forget(self, watched: str) -> None:
        """Follow no longer what no other watched unit is related to."""
        async with self._lock:
            if self._of.pop(watched, None) is None:
                return
            needed = {unit_path(relation.name) for relations in self._of.values() for relation in relations}
            for path in self._followed.keys() - needed:
                del self._followed[path]
                await self._rules.unfollow(path)

    def changed(self, path: str, properties: Properties) -> None:
        """Take a PropertiesChanged of any unit."""
        followed = self._followed.get(path)
        if followed is not None:
            followed.change(properties)

    def follows(self, path: str) -> bool:
        return path in self._followed

    def read_again(self) -> None:
        """Read each of them once more, after a reload, when it is next learnt of."""
        for followed in self._followed.values():
            followed.is_outdated = True

    def signals_lost(self) -> None:
        for followed in self._followed.values():
            followed.state = None

    async def _follow(self, name: str) -> "_Followed | None":
        """Follow a unit, unless there are too many; None where systemd has not loaded it."""
        path = unit_path(name)
        followed = self._followed.get(path)
        if followed is None:
            if len(self._followed) >= MAX_FOLLOWED:
                return None
            followed = self._followed[path] = _Followed()
        if followed.state is None or followed.is_outdated:
            try:
                await self._rules.follow(path)
                if await self._systemd.unit_path(name) == path:  # else it is another's alias
                    await self._systemd.properties(path, followed.read)
            except CallFailedError as error:
                if error.name in CALLEE_DISCONNECTED:
                    raise
        if followed.state is None:
            self._followed.pop(path, None)
            with suppress(CallFailedError):
                await self._rules.unfollow(path)
            return None
        return followed


@dataclass(slots=True)
class _Followed:
    """One unit that is followed."""

    properties: dict[str, Any] = field(default_factory=dict)
    state: RelativeState | None = None  # None: not read
    is_outdated: bool = False
    relations: tuple[Relation, ...] = ()
    asked_to_end: bool | None = None
    start_job: int = 0  # the job by which it came up or reloads, which asks for no end

    def read(self, properties: Properties) -> None:
        is_known = self.state is not None
        self.relations = relations_of(properties)
        self.properties = {name: value for name, value in properties.items() if name in STATE}
        self.state = relative_state(self.properties)
        self.is_outdated = False
        if not is_known:
            self.asked_to_end = None
            self.start_job = self.state.job if self.state.active_state == "activating" else 0

    def change(self, news: Properties) -> None:
        """Take a signal: systemd shows a job that asks for an end before that end, or with it."""
        before = self.state
        if before is None:
            return
        self.properties.update({name: value for name, value in news.items() if name in STATE})
        self.state = after = relative_state(self.properties)
        if after.is_up:
            if not before.is_up or after.active_state != "active":  # it comes up, or reloads
                self.start_job = after.job
            self.asked_to_end = None
        elif before.is_up:
            self.asked_to_end = any(job not in (0, self.start_job) for job in (before.job, after.job))


def _relative(relation: Relation, followed: _Followed | None) -> Relative:
    state = followed.state if followed is not None else None
    if followed is None or state is None:
        return Relative(name=relation.name, relation=relation.kind, active_state="", sub_state="")
    return Relative(
        name=relation.name,
        relation=relation.kind,
        active_state=state.active_state,
        sub_state=state.sub_state,
        job=state.job,
        state_change_monotonic=state.state_change_monotonic,
        active_enter_monotonic=state.active_enter_monotonic,
        inactive_enter_monotonic=state.inactive_enter_monotonic,
        asked_to_end=followed.asked_to_end,
    )
