"""One connection to the system bus, from connecting until it breaks; what was known through it goes with it.

The order is: match rules, owner, and then for each run of systemd Subscribe and snapshots. Every signal is held against
the owner of systemd's name: any user may send one straight to us, and the bus delivers it whatever our match rules say.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from llmhost.sources.systemd.bus import BUS, CallFailedError, SafeBus
from llmhost.sources.systemd.calls import (
    CALLEE_GONE,
    MANAGER_RULES,
    OWNER_RULE,
    SYSTEMD,
    Systemd,
    add_match,
    name_owner,
)
from llmhost.sources.systemd.progress import Progress
from llmhost.sources.systemd.seldom import Seldom
from llmhost.sources.systemd.units import Units
from llmhost.sources.systemd.wire import Received

log = logging.getLogger(__name__)

OWNER_GRACE_SECONDS = 2.0  # daemon-reexec leaves the bus without systemd for 0.2 to 1.1 s


class Session:
    """Used from the source's event loop. `run` ends only by raising why."""

    def __init__(
        self,
        make_units: Callable[[Systemd], Units],
        progress: Progress,
        *,
        expects_systemd: bool,
        call_timeout_seconds: float,
        ping_seconds: float,
        seldom: Seldom,
    ) -> None:
        """`expects_systemd`: it was there a moment ago, so after a restart of the bus it is waited for."""
        self._make_units = make_units
        self._progress = progress
        self._call_timeout_seconds = call_timeout_seconds
        self._ping_seconds = ping_seconds
        self._seldom = seldom
        self._owner = ""
        self._turn = 0  # of owners, and of nobody
        self._expects_systemd = expects_systemd
        self.no_systemd = False  # systemd is not on the bus, and not just being re-executed either
        self.units: Units | None = None  # of the present owner
        self.bus: SafeBus | None = None
        self.forged_signals = 0

    async def run(self, address: str) -> None:
        bus = self.bus = await SafeBus.connect(
            address,
            on_signal=self._on_signal,
            on_skipped=self._on_skipped,
            call_timeout_seconds=self._call_timeout_seconds,
            seldom=self._seldom,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_until_closed(bus))
                for rule in (OWNER_RULE, *MANAGER_RULES):
                    await add_match(bus, rule)
                await name_owner(bus, self._set_owner)
                self.no_systemd = not self._owner and not self._expects_systemd
                tasks.create_task(self._ping(bus))
                while True:
                    await self._one_owner(bus)
        finally:
            self._end_units()
            await bus.close()

    async def _one_owner(self, bus: SafeBus) -> None:
        """Follow one run of systemd until another takes its name."""
        if not self._owner:
            self._progress.made()
            try:
                async with asyncio.timeout(None if self.no_systemd else OWNER_GRACE_SECONDS):
                    await self._progress.until(lambda: self._owner != "")
            except TimeoutError:
                self.no_systemd = True
                return
        self.no_systemd = False
        turn = self._turn  # the name of who follows may be the same
        systemd = Systemd(bus, self._owner)
        self.units = self._make_units(systemd)
        self._progress.made()
        following = asyncio.create_task(self.units.run(), name="llmhost-systemd-units")
        following.add_done_callback(lambda _: self._progress.made())
        try:
            await self._progress.until(lambda: self._turn != turn or following.done())
            if self._turn == turn and _callee_gone(following.exception()):
                # It left the bus under a call of ours; word of that is under way.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(OWNER_GRACE_SECONDS):
                        await self._progress.until(lambda: self._turn != turn)
            if self._turn == turn:
                await following
        finally:
            following.cancel()
            await asyncio.wait([following])
            if not following.cancelled():
                following.exception()  # it ended together with its owner; nobody else needs to know

    async def _ping(self, bus: SafeBus) -> None:
        """Find out about a bus or a systemd that no longer answers, while nothing happens that would tell."""
        while True:
            await asyncio.sleep(self._ping_seconds)
            owner = self._owner
            if owner and time.monotonic() - bus.received_at >= self._ping_seconds:
                try:
                    await Systemd(bus, owner).ping()
                except CallFailedError as error:
                    if error.name not in CALLEE_GONE:
                        raise

    def _set_owner(self, owner: str) -> None:
        if owner != self._owner:
            self._owner = owner
            self._turn += 1
            self._end_units()  # of another systemd
            self._progress.made()

    def _end_units(self) -> None:
        if self.units is not None:
            self.units.end()
        self.units = None

    def _on_skipped(self) -> None:
        """Look at everything again: what could not be understood may have told of a change."""
        if self.units is not None:
            self.units.resync(lost=True)

    def _on_signal(self, message: Received) -> None:
        if message.sender == BUS:
            if message.interface == BUS and message.member == "NameOwnerChanged":
                name, _, owner = message.body()
                if name == SYSTEMD:
                    self._set_owner(owner)
        elif not self._owner:
            pass  # before the snapshots, which will be newer
        elif message.sender != self._owner:
            self.forged_signals += 1
            if self._seldom.due("forged signal"):
                log.warning(
                    "ignored a signal %s that came from %s, which is not systemd", message.member, message.sender
                )
        elif self.units is not None:
            self.units.on_signal(message)


async def _until_closed(bus: SafeBus) -> None:
    raise await bus.wait_closed()


def _callee_gone(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_callee_gone(inner) for inner in error.exceptions)
    return isinstance(error, CallFailedError) and error.name in CALLEE_GONE
