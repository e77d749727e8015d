"""One connection to the system bus, until it breaks, and the runs of systemd that are seen through it.

First come match rules and the owner of systemd's name, then for each run of systemd Subscribe and reads. The sender of
each signal is compared with that owner: any user may send us a signal, and the bus delivers it whatever our rules say.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from llmhost.runtime.log_throttle import ThrottledLog
from llmhost.sources.systemd.bus.connection import BUS, BusConnection, CallFailedError
from llmhost.sources.systemd.bus.message import Received
from llmhost.sources.systemd.calls import (
    CALLEE_DISCONNECTED,
    MANAGER_RULES,
    OWNER_RULE,
    SYSTEMD,
    Systemd,
    add_match,
    name_owner,
)
from llmhost.sources.systemd.units.units import Units
from llmhost.sources.systemd.units.waiting import Changed

OWNER_GRACE_SECONDS = 2.0  # daemon-reexec leaves the bus without systemd for 0.2 to 1.1 s


class BusSession:
    """Used from the source's event loop. `run` ends only by raising the reason."""

    def __init__(
        self,
        make_units: Callable[[Systemd], Units],
        changed: Changed,
        *,
        expects_systemd: bool,
        call_timeout_seconds: float,
        ping_seconds: float,
        throttled_log: ThrottledLog,
    ) -> None:
        """`expects_systemd`: it was there a moment ago, so it is waited for after a restart of the bus."""
        self._make_units = make_units
        self._changed = changed
        self._call_timeout_seconds = call_timeout_seconds
        self._ping_seconds = ping_seconds
        self._log = throttled_log
        self._owner = ""
        self._turn = 0  # counts the changes of the owner
        self._expects_systemd = expects_systemd
        self.no_systemd = False  # systemd is not on the bus, and not just being re-executed either
        self.units: Units | None = None  # of the present owner
        self.bus: BusConnection | None = None
        self.forged_signals = 0

    async def run(self, address: str) -> None:
        bus = self.bus = await BusConnection.connect(
            address,
            on_signal=self._on_signal,
            on_skipped=self._on_skipped,
            call_timeout_seconds=self._call_timeout_seconds,
            throttled_log=self._log,
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
                    await self._follow_owner(bus)
        finally:
            self._end_units()
            await bus.close()

    async def _follow_owner(self, bus: BusConnection) -> None:
        """Follow one run of systemd until another takes its name."""
        if not self._owner:
            self._changed.notify()
            try:
                async with asyncio.timeout(None if self.no_systemd else OWNER_GRACE_SECONDS):
                    await self._changed.wait_for(lambda: self._owner != "")
            except TimeoutError:
                self.no_systemd = True
                return
        self.no_systemd = False
        turn = self._turn  # the next owner may have the same name
        systemd = Systemd(bus, self._owner)
        self.units = self._make_units(systemd)
        self._changed.notify()
        following = asyncio.create_task(self.units.run(), name="llmhost-systemd-units")
        following.add_done_callback(lambda _: self._changed.notify())
        try:
            await self._changed.wait_for(lambda: self._turn != turn or following.done())
            if self._turn == turn and _is_disconnected_callee(following.exception()):
                # It left the bus during a call of ours; the signal of that is on its way.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(OWNER_GRACE_SECONDS):
                        await self._changed.wait_for(lambda: self._turn != turn)
            if self._turn == turn:
                await following
        finally:
            following.cancel()
            await asyncio.wait([following])
            if not following.cancelled():
                following.exception()  # retrieved, so that asyncio does not log it: it ended with its owner

    async def _ping(self, bus: BusConnection) -> None:
        """Find a bus or a systemd that no longer answers, while there is no other message that would show it."""
        while True:
            await asyncio.sleep(self._ping_seconds)
            owner = self._owner
            if owner and time.monotonic() - bus.received_at >= self._ping_seconds:
                try:
                    await Systemd(bus, owner).ping()
                except CallFailedError as error:
                    if error.name not in CALLEE_DISCONNECTED:
                        raise

    def _set_owner(self, owner: str) -> None:
        if owner != self._owner:
            self._owner = owner
            self._turn += 1
            self._end_units()  # of another systemd
            self._changed.notify()

    def _end_units(self) -> None:
        if self.units is not None:
            self.units.end()
        self.units = None

    def _on_skipped(self) -> None:
        """Read everything again: the message that could not be decoded may have been a signal."""
        if self.units is not None:
            self.units.resync(signals_lost=True)

    def _on_signal(self, message: Received) -> None:
        if message.sender == BUS:
            if message.interface == BUS and message.member == "NameOwnerChanged":
                name, _, owner = message.body()
                if name == SYSTEMD:
                    self._set_owner(owner)
        elif not self._owner:
            pass  # before the reads, which will be newer
        elif message.sender != self._owner:
            self.forged_signals += 1
            forged = f"ignored a signal {message.member} that came from {message.sender}, which is not systemd"
            self._log.log(logging.WARNING, "forged signal", forged)
        elif self.units is not None:
            self.units.on_signal(message)


async def _until_closed(bus: BusConnection) -> None:
    raise await bus.wait_closed()


def _is_disconnected_callee(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_is_disconnected_callee(inner) for inner in error.exceptions)
    return isinstance(error, CallFailedError) and error.name in CALLEE_DISCONNECTED
