"""The source of units: a thread with a connection to the system bus, whose signals keep the units up to date."""

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from llmhost.model.reading import Cause
from llmhost.model.unit import Unit, UnitsReport
from llmhost.model.unit_event import UnitEvent
from llmhost.runtime.backoff import Backoff
from llmhost.runtime.log_throttle import ThrottledLog
from llmhost.sources.base import SourceError
from llmhost.sources.systemd.bus.connection import BusClosedError, CallFailedError, CallTimeoutError
from llmhost.sources.systemd.bus.transport import BusUnreachableError, system_bus_address
from llmhost.sources.systemd.calls import Systemd
from llmhost.sources.systemd.properties.unit import UnreadableUnitError
from llmhost.sources.systemd.session import BusSession
from llmhost.sources.systemd.units.units import Units
from llmhost.sources.systemd.units.waiting import Changed
from llmhost.sources.systemd.units.watchlist import Watchlist

T = TypeVar("T")

log = logging.getLogger(__name__)

RESYNC_REASONS = ("bus", "reload", "systemd")  # the connection, a daemon-reload, another owner of systemd's name
_FIRST_BACKOFF_SECONDS = 0.1
_MAX_BACKOFF_SECONDS = 5.0
_DISCOVERY_SECONDS = 1.0  # a read waits no longer for a discovery that is going on
_CLOSE_SECONDS = 1.0
_CAUSES = (
    (BusUnreachableError, Cause.NO_BUS),
    (BusClosedError, Cause.NO_BUS),  # before the others: they follow from it
    (CallTimeoutError, Cause.TIMEOUT),
    (CallFailedError, Cause.BUS_ERROR),
    (UnreadableUnitError, Cause.BUS_ERROR),
)


class SystemdSource:
    """Reads service units of the system's manager, and reports each change as it happens.

    Thread and connection start with `start` or the first read. A read costs no message as long as nothing happened. It
    waits, within its deadline, for a connection or a resync that is under way, and fails at once after a failed attempt
    to connect, until the next one.
    """

    def __init__(
        self,
        *,
        patterns: tuple[str, ...],
        discover: bool,
        is_engine_command: Callable[[tuple[str, ...]], bool],
        address: str | None = None,
        root: Path = Path("/"),
        call_timeout_seconds: float = 5.0,
        ping_seconds: float = 30.0,
        on_event: Callable[[UnitEvent], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`address` None: DBUS_SYSTEM_BUS_ADDRESS, or the usual one. `clock`, in seconds, ages transient units.

        `on_event` is called from the source's thread, in the order of systemd's messages, and nothing more is read
        until it returns: it must only pass the event on.
        """
        self._address = address
        self._is_engine_command = is_engine_command
        self._root = root
        self._call_timeout_seconds = call_timeout_seconds
        self._ping_seconds = ping_seconds
        self._on_event = on_event
        self._clock = clock
        self._wall_clock = wall_clock
        self._watchlist = Watchlist(patterns, discover=discover)
        self._resyncs = Counter(dict.fromkeys(RESYNC_REASONS, 0))
        self._changed = Changed()
        self._session: BusSession | None = None
        self._fault: SourceError | None = None  # why the last attempt failed, while no other is under way
        self._synced = False  # in this connection
        self._ever_synced = False
        self._resync_reason = ""  # of the next first sync; "" for the very first
        self._log = ThrottledLog(log)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._closed = False

    # called from any thread

    def start(self) -> None:
        """Connect and report changes, without waiting for anything. Does nothing if it is started or closed."""
        with contextlib.suppress(SourceError):
            self._started()

    def read(self, deadline: float) -> UnitsReport:
        return self._answer(self._read(deadline), deadline)

    def own_unit(self, deadline: float) -> str | None:
        """Ask systemd which unit this process runs in; None where in none. Raises SourceError."""
        return self._answer(self._own_unit(deadline), deadline)

    def _answer(self, asking: Coroutine[Any, Any, T], deadline: float) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(asking, self._started())
        except (RuntimeError, SourceError):  # closed since
            asking.close()
            raise SourceError(Cause.NO_BUS, "closed") from None
        try:
            return future.result(timeout=max(0.0, deadline - time.monotonic()) + 0.1)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise SourceError(Cause.TIMEOUT, self.doing()) from None
        except concurrent.futures.CancelledError:
            raise SourceError(Cause.NO_BUS, "closed") from None

    def watch(self, names: Iterable[str]) -> None:
        """Watch these units as well, from the next read on: they hold GPU memory."""
        wanted = list(names)

        def ask() -> None:
            units = self._units()
            for name in self._watchlist.ask_for(wanted):
                if units is not None:
                    units.watch(name, has_past=True)  # it holds memory, so it was there before

        self._on_loop(ask)

    def configure(self, *, patterns: tuple[str, ...], discover: bool) -> None:
        """Watch other units, from the next read on."""

        def change() -> None:
            self._watchlist.configure(patterns, discover=discover)
            units = self._units()
            if units is not None:
                units.reconfigured()

        self._on_loop(change)

    def doing(self) -> str:
        session = self._session
        if session is None or session.bus is None:
            return "connecting to the system bus"
        if session.units is None:
            return "waiting for systemd on the bus"
        return "reading units from systemd"

    def close(self) -> None:
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        with contextlib.suppress(RuntimeError):  # it may have been closed before
            loop.call_soon_threadsafe(self._cancel_main)
        thread.join(_CLOSE_SECONDS)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise SourceError(Cause.NO_BUS, "closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run, args=(self._loop,), name="llmhost-systemd", daemon=True
                )
                self._thread.start()
            return self._loop

    def _on_loop(self, function: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                return
            if self._loop is None:
                function()  # there is no other thread yet
            else:
                self._loop.call_soon_threadsafe(function)

    # the thread

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(asyncio.CancelledError), asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._stay_connected())

    def _cancel_main(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _units(self) -> Units | None:
        return self._session.units if self._session is not None else None

    async def _stay_connected(self) -> None:
        self._main = asyncio.current_task()
        backoff = Backoff(_FIRST_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS)
        while not self._closed:
            self._fault = None
            session = self._session = BusSession(
                self._make_units,
                self._changed,
                expects_systemd=self._synced,
                call_timeout_seconds=self._call_timeout_seconds,
                ping_seconds=self._ping_seconds,
                throttled_log=self._log,
            )
            self._resync_reason = "bus" if self._ever_synced else ""
            self._synced = False
            try:
                await session.run(self._address if self._address is not None else system_bus_address())
            except Exception as error:  # noqa: BLE001 - the next read raises it
                fault = _fault_of(error)
                if fault.cause is Cause.UNKNOWN:
                    self._log.log(logging.ERROR, "bug", "a bug in the systemd source", exception=error)
            else:
                fault = SourceError(Cause.UNKNOWN, "the session ended")
            if self._synced:
                backoff.reset()
                continue  # it has worked until just now, so at once
            self._fault = fault
            self._changed.notify()
            await asyncio.sleep(backoff.next_seconds())

    def _make_units(self, systemd: Systemd) -> Units:
        return Units(
            systemd,
            self._watchlist,
            self._changed,
            is_engine_command=self._is_engine_command,
            on_synced=self._on_synced,
            on_reload=lambda: self._resyncs.update(["reload"]),
            on_change=self._report_change if self._on_event is not None else None,
            root=self._root,
            clock=self._clock,
        )

    def _report_change(self, unit: Unit, gap: bool) -> None:
        """Report a unit. A bug in `on_event` must cost neither this thread nor a message."""
        event = UnitEvent(unit=unit, at=self._wall_clock(), at_monotonic=self._clock(), gap=gap)
        try:
            if self._on_event is not None:
                self._on_event(event)
        except Exception as error:  # noqa: BLE001 - logged, with its traceback
            lost = f"a bug in the handler of unit events: an event of {unit.id.name} is lost"
            self._log.log(logging.ERROR, "event", lost, exception=error)

    def _on_synced(self) -> None:
        """Count the resync; called once for each run of systemd."""
        if self._resync_reason:
            self._resyncs[self._resync_reason] += 1
        self._resync_reason = "systemd"  # if there is a next time within this connection
        self._synced = self._ever_synced = True

    async def _read(self, deadline: float) -> UnitsReport:
        try:
            async with asyncio.timeout_at(deadline):  # the event loop's clock is time.monotonic()
                while True:
                    report = await self._read_once()
                    if report is not None:
                        return report
        except TimeoutError:
            cause = Cause.TIMEOUT if self._ever_synced else Cause.STARTING
            raise SourceError(cause, self.doing()) from None
        except (CallTimeoutError, UnreadableUnitError) as error:
            raise _fault_of(error) from None

    async def _own_unit(self, deadline: float) -> str | None:
        try:
            async with asyncio.timeout_at(deadline):
                while (units := await self._present_units()) is None:
                    pass
                return await units.systemd.own_unit()
        except TimeoutError:
            raise SourceError(Cause.TIMEOUT, self.doing()) from None
        except (BusClosedError, CallTimeoutError, CallFailedError) as error:
            raise _fault_of(error) from None

    async def _present_units(self) -> Units | None:
        """Wait for a run of systemd; None when it has ended right then. Raises SourceError where there is none."""
        await self._changed.wait_for(lambda: self._fault is not None or self._no_systemd() or self._units() is not None)
        if self._fault is not None:
            raise SourceError(self._fault.cause, self._fault.detail)
        if self._no_systemd():
            raise SourceError(Cause.NO_SYSTEMD, "nobody owns org.freedesktop.systemd1 on the bus")
        return self._units()

    async def _read_once(self) -> UnitsReport | None:
        """Read from one run of systemd; None when it ended meanwhile."""
        units = await self._present_units()
        if units is None:
            return None

        def ended() -> bool:
            return self._units() is not units

        units.retry()
        await _until(self._changed, ended, units.caught_up())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DISCOVERY_SECONDS):
                await _until(self._changed, ended, units.discovered_all)
        await _until(self._changed, ended, units.caught_up())
        await asyncio.sleep(0)  # let the event loop poll the socket: if the bus is gone by now, there is no state
        if units.disconnected():
            await self._changed.wait_for(ended)
        if ended():
            return None
        return units.report(tuple(sorted(self._resyncs.items())))

    def _no_systemd(self) -> bool:
        return self._session is not None and self._session.no_systemd


async def _until(changed: Changed, ended: Callable[[], bool], condition: Callable[[], bool]) -> None:
    await changed.wait_for(lambda: ended() or condition())


def _fault_of(error: BaseException) -> SourceError:
    """Cause of the end of a session, or of a failed read."""
    leaves = _leaves(error)
    for kind, cause in _CAUSES:
        for leaf in leaves:
            if isinstance(leaf, kind):
                return SourceError(cause, str(leaf))
    return SourceError(Cause.UNKNOWN, repr(leaves[0]))


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
