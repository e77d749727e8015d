"""A connection to a D-Bus bus for a long-lived process.

dbus-next 0.2.3 is unmaintained, and its asyncio MessageBus has nine defects that freeze, kill or leak in a long-lived
process. Its signatures and messages are sound. So those are used, and the connection is our own, on asyncio's streams:

1. a peer that closes during authentication ends the attempt (there: an endless loop that freezes the event loop);
2. a full socket buffer makes a write wait (there: it drops the connection);
3. a call on a closed connection fails at once (there: it hangs for ever);
4. every call has a timeout, after which nothing of it is left (there: none, and its handler leaks);
5. every socket is closed, those of failed attempts too (there: at some time, by the garbage collector);
6. the reader lets others run every few milliseconds (there: never while there is something to read);
7. each address of a list is tried, and the first that answers counts (there: an early failure is raised even so);
8. a message that cannot be understood is skipped (there: it drops the connection);
9. the effective uid authenticates, as the bus checks it (there: the real uid).
"""

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dbus_next.message import Message

from llmhost.runtime.log_throttle import ThrottledLog
from llmhost.sources.systemd.bus.message import FIXED_BYTES, MessageType, Received, decode, encode, rest_bytes
from llmhost.sources.systemd.bus.transport import (
    Address,
    BusUnreachableError,
    authenticate,
    open_socket,
    parse_addresses,
)
from llmhost.sources.systemd.bus.values import UndecodableError

log = logging.getLogger(__name__)

BUS = "org.freedesktop.DBus"
BUS_PATH = "/org/freedesktop/DBus"
MAX_CALLS_IN_FLIGHT = 32  # dbus-daemon refuses more than max_replies_per_connection; this many hide all latency
_YIELD_SECONDS = 0.005  # how long the reader may keep the event loop


class BusClosedError(ConnectionError):
    """The connection is gone."""


class CallFailedError(Exception):
    """The callee answered with an error, named as D-Bus names it."""

    def __init__(self, what: str, name: str, text: str) -> None:
        super().__init__(f"{what}: {name}: {text}")
        self.name = name


class CallTimeoutError(Exception):
    """The callee did not answer in time."""


@dataclass(frozen=True, slots=True)
class Callee:
    """An object and one of its interfaces. `name` is the bus's own or a unique one: a reply from another is forged."""

    name: str
    path: str
    interface: str


BUS_DRIVER = Callee(BUS, BUS_PATH, BUS)


@dataclass(slots=True, eq=False)
class _Pending:
    """A call that waits for its reply."""

    what: str
    callee: str
    future: asyncio.Future[list[Any]]
    on_reply: Callable[[list[Any]], None] | None
    on_error: Callable[[str], None] | None

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class BusConnection:
    """One connection, used from one event loop. Made by `connect`.

    `on_signal` is called for every signal, in the order of arrival, before anything later is read; `on_skipped` for a
    message that could not be decoded, which may have been any signal. Neither must block.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        on_signal: Callable[[Received], None],
        on_skipped: Callable[[], None],
        call_timeout_seconds: float,
        throttled_log: ThrottledLog,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_signal = on_signal
        self._on_skipped = on_skipped
        self._call_timeout_seconds = call_timeout_seconds
        self._log = throttled_log
        self._in_flight = asyncio.Semaphore(MAX_CALLS_IN_FLIGHT)
        self._pending: dict[int, _Pending] = {}
        self._serial = 0
        self._closed_by: Exception | None = None
        self._read_task = asyncio.create_task(self._read_all(), name="llmhost-bus-reader")
        self.unique_name = ""
        self.sent = 0  # messages
        self.received = 0
        self.skipped = 0  # messages that could not be decoded
        self.forged = 0  # replies from another sender than the callee
        self.received_at = time.monotonic()  # when the last message came

    @classmethod
    async def connect(
        cls,
        addresses: str,
        *,
        on_signal: Callable[[Received], None] = lambda _: None,
        on_skipped: Callable[[], None] = lambda: None,
        call_timeout_seconds: float = 5.0,
        throttled_log: ThrottledLog | None = None,
    ) -> "BusConnection":
        """Connect, authenticate, say Hello. Raises BusUnreachableError, and CallTimeoutError where a bus is silent."""
        make = functools.partial(
            cls,
            on_signal=on_signal,
            on_skipped=on_skipped,
            call_timeout_seconds=call_timeout_seconds,
            throttled_log=throttled_log or ThrottledLog(log),
        )
        failures = []
        silent = False
        for address in parse_addresses(addresses):
            try:
                async with asyncio.timeout(call_timeout_seconds):
                    return await _connect(address, make)
            except (TimeoutError, CallTimeoutError):
                silent = True
                failures.append(f"{address.text}: no answer in {call_timeout_seconds:g} s")
            except (OSError, EOFError, ValueError, CallFailedError) as error:
                failures.append(f"{address.text}: {error}")
        why = "; ".join(failures)
        raise CallTimeoutError(why) if silent else BusUnreachableError(why)

    async def call(
        self,
        callee: Callee,
        member: str,
        signature: str = "",
        *body: Any,  # noqa: ANN401 - D-Bus values are of any type
        on_reply: Callable[[list[Any]], None] | None = None,
        on_error: Callable[[str], None] | None = None,
    ) -> list[Any]:
        """Call a method and return the body of its reply, variants as their values.

        `on_reply` is called with that body in order of arrival, before any later signal, and `on_error` with the name
        of an error reply; when this coroutine resumes, later messages may have been handled already. Raises
        CallFailedError, CallTimeoutError, BusClosedError, and ValueError for what D-Bus cannot carry.
        """
        what = f"{member}({', '.join(map(str, body))})"
        async with self._in_flight:
            if self._closed_by is not None:
                raise BusClosedError(f"{what}: {self._closed_by}")
            self._serial += 1
            serial = self._serial
            message = Message(
                destination=callee.name,
                path=callee.path,
                interface=callee.interface,
                member=member,
                signature=signature,
                body=list(body),
                serial=serial,
            )
            frame = encode(message)
            pending = _Pending(what, callee.name, asyncio.get_running_loop().create_future(), on_reply, on_error)
            self._pending[serial] = pending
            try:
                # What is in flight is bounded, and so is what the transport keeps for a bus that reads slowly.
                self._writer.write(frame)
                self.sent += 1
                async with asyncio.timeout(self._call_timeout_seconds):
                    return await pending.future
            except TimeoutError:
                raise CallTimeoutError(f"no answer to {what} in {self._call_timeout_seconds:g} s") from None
            finally:
                del self._pending[serial]

    @property
    def closed(self) -> bool:
        """True once the connection has ended, though messages from it may still wait to be handled."""
        return self._closed_by is not None or self._reader.at_eof()

    async def wait_closed(self) -> Exception:
        """Wait until the connection is gone; returns the reason."""
        await asyncio.wait([self._read_task])
        return self._closed_by or BusClosedError("closed")

    async def close(self) -> None:
        """Close the socket; pending calls fail at once. Never waits for the peer."""
        self._end(BusClosedError("closed"))
        self._read_task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._read_task
        with contextlib.suppress(Exception):
            await self._writer.wait_closed()

    def _end(self, why: Exception) -> None:
        if self._closed_by is None:
            self._closed_by = why
        self._writer.transport.abort()
        for pending in self._pending.values():
            pending.fail(BusClosedError(f"{pending.what}: {self._closed_by}"))

    async def _read_all(self) -> None:
        try:
            began = time.monotonic()
            while True:
                fixed = await self._reader.readexactly(FIXED_BYTES)
                frame = fixed + await self._reader.readexactly(rest_bytes(fixed))
                self._handle(frame)
                now = time.monotonic()
                if now - began > _YIELD_SECONDS:
                    await asyncio.sleep(0)  # reading from a buffer that is full never yields by itself
                    began = time.monotonic()
        except asyncio.IncompleteReadError:
            self._end(BusClosedError("the bus closed the connection"))
        except OSError as error:
            self._end(BusClosedError(str(error)))

    def _handle(self, frame: bytes) -> None:
        self.received += 1
        self.received_at = time.monotonic()
        try:
            message = decode(frame)
            if message.kind == MessageType.SIGNAL:
                self._on_signal(message)
            elif message.kind in (MessageType.METHOD_RETURN, MessageType.ERROR):
                self._settle(message)
            # There is nothing to call here: a call is left unanswered, like a message of an unknown kind.
        except UndecodableError as error:
            self.skipped += 1
            self._log.log(logging.WARNING, "skipped message", f"skipped a D-Bus message: {error}")
            self._on_skipped()
        except Exception as error:  # noqa: BLE001 - logged, with its traceback
            # A bug in a handler must cost one message, not the reader.
            self.skipped += 1
            self._log.log(logging.ERROR, "failed handler", "could not handle a D-Bus message", exception=error)

    def _settle(self, message: Received) -> None:
        pending = self._pending.get(message.reply_serial)
        if pending is None or pending.future.done():
            return  # its call has timed out
        if message.sender not in (pending.callee, BUS):
            self.forged += 1
            forged = f"ignored a reply to {pending.what} that came from {message.sender}"
            self._log.log(logging.WARNING, "forged reply", forged)
            return
        try:
            body = message.body()
            if message.kind == MessageType.ERROR:
                if pending.on_error is not None:
                    pending.on_error(message.error_name)
                pending.fail(CallFailedError(pending.what, message.error_name, " ".join(map(str, body[:1]))))
                return
            if pending.on_reply is not None:
                pending.on_reply(body)
        except UndecodableError as error:
            self.skipped += 1
            pending.fail(CallFailedError(pending.what, "undecodable reply", str(error)))
            return  # the caller reports it
        except Exception as error:
            # The caller must learn of it, or it would wait for a reply that has come.
            pending.fail(CallFailedError(pending.what, "undecodable reply", str(error)))
            raise
        pending.future.set_result(body)


async def _connect(
    address: Address, make: Callable[[asyncio.StreamReader, asyncio.StreamWriter], BusConnection]
) -> BusConnection:
    reader, writer = await open_socket(address)
    try:
        await authenticate(reader, writer)
    except BaseException:
        writer.transport.abort()
        raise
    bus = make(reader, writer)
    try:
        (bus.unique_name,) = await bus.call(BUS_DRIVER, "Hello")
    except BaseException:
        await bus.close()
        raise
    return bus
