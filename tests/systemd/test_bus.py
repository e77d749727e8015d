"""The nine defects of dbus-next's connection, each against a peer that brings it out."""

import asyncio
import gc
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from tests.fakes.bus import PrivateBus
from tests.fakes.needs import needs_root
from tests.fakes.raw_bus import PEER, Connection, connected, frame_of, raw_bus, signal

from llmhost.sources.systemd.bus.connection import (
    BUS,
    BUS_DRIVER,
    MAX_CALLS_IN_FLIGHT,
    BusClosedError,
    BusConnection,
    CallFailedError,
    CallTimeoutError,
)
from llmhost.sources.systemd.bus.message import Received
from llmhost.sources.systemd.bus.transport import BusUnreachableError, system_bus_address


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_call_to_a_real_bus_is_answered() -> None:
    async def run(address: str) -> None:
        async with connected(address) as bus:
            assert bus.unique_name.startswith(":1.")
            assert await bus.call(BUS_DRIVER, "GetNameOwner", "s", BUS) == [BUS]
            with pytest.raises(CallFailedError) as caught:
                await bus.call(BUS_DRIVER, "GetNameOwner", "s", "no.such.name")
            assert caught.value.name == "org.freedesktop.DBus.Error.NameHasNoOwner"

    with PrivateBus() as private:
        asyncio.run(run(private.address))


def test_1_a_peer_that_closes_during_authentication_does_not_freeze_the_event_loop() -> None:
    def close_at_once(connection: Connection) -> None:
        connection.exactly(5)

    async def run(address: str) -> None:
        with pytest.raises(BusUnreachableError, match=r"closed the connection|reset by peer"):
            await asyncio.wait_for(BusConnection.connect(address), 5)

    with raw_bus(close_at_once) as address:
        asyncio.run(run(address))


def test_1_a_peer_that_is_silent_during_authentication_is_given_up_after_the_timeout() -> None:
    async def run(address: str) -> None:
        with pytest.raises(CallTimeoutError, match=r"no answer in 0\.1 s"):
            await BusConnection.connect(address, call_timeout_seconds=0.1)

    with raw_bus(Connection.wait_for_end) as address:
        asyncio.run(run(address))


def test_a_bus_that_accepts_no_more_connections_is_busy_and_not_gone(tmp_path: Path) -> None:
    """A Unix socket says EAGAIN then, which asyncio takes for a connection that is being made."""
    path = str(tmp_path / "bus")
    with socket.socket(socket.AF_UNIX) as full, socket.socket(socket.AF_UNIX) as first:
        full.bind(path)
        full.listen(0)
        first.connect(path)
        with pytest.raises(CallTimeoutError, match=r"no answer in 0\.3 s"):
            asyncio.run(BusConnection.connect(f"unix:path={path}", call_timeout_seconds=0.3))


def test_2_a_full_socket_makes_calls_wait_and_loses_none() -> None:
    read_on = threading.Event()
    payload = "x" * 40_000  # 32 of them are far more than a socket buffer holds

    def stall_then_echo_the_length(connection: Connection) -> None:
        connection.greet()
        read_on.wait(10)
        while True:
            call = connection.receive()
            connection.reply(call, "u", [len(call.body[0])])

    async def run(address: str) -> None:
        async with connected(address) as bus:
            calls = [asyncio.create_task(bus.call(PEER, "Length", "s", payload)) for _ in range(MAX_CALLS_IN_FLIGHT)]
            await asyncio.wait(calls, timeout=0.1)
            assert bus._writer.transport.get_write_buffer_size() > 90_000
            read_on.set()
            assert await asyncio.gather(*calls) == [[40_000]] * MAX_CALLS_IN_FLIGHT

    with raw_bus(stall_then_echo_the_length) as address:
        asyncio.run(run(address))


def test_3_a_call_on_a_connection_that_is_gone_fails_at_once() -> None:
    async def run(private: PrivateBus) -> None:
        async with connected(private.address) as bus:
            private.kill()
            why = await asyncio.wait_for(bus.wait_closed(), 5)
            assert isinstance(why, BusClosedError)
            with pytest.raises(BusClosedError, match="GetId"):
                await asyncio.wait_for(bus.call(BUS_DRIVER, "GetId"), 5)

    with PrivateBus() as private:
        asyncio.run(run(private))


def test_3_calls_that_wait_fail_when_the_connection_goes() -> None:
    async def run(private: PrivateBus) -> None:
        async with connected(private.address) as bus:
            private.pause()
            call = asyncio.create_task(bus.call(BUS_DRIVER, "GetId"))
            await asyncio.sleep(0)
            private.kill()
            with pytest.raises(BusClosedError, match="GetId"):
                await asyncio.wait_for(call, 5)

    with PrivateBus() as private:
        asyncio.run(run(private))


def test_4_a_call_that_is_not_answered_times_out_and_leaves_nothing_behind() -> None:
    async def run(private: PrivateBus) -> None:
        async with connected(private.address, call_timeout_seconds=0.1) as bus:
            private.pause()
            with pytest.raises(CallTimeoutError, match=r"no answer to GetNameOwner\(a\.b\) in 0\.1 s"):
                await bus.call(BUS_DRIVER, "GetNameOwner", "s", "a.b")
            assert bus._pending == {}
            private.resume()
            # the late answer comes before this one, and is nobody's
            assert len((await bus.call(BUS_DRIVER, "GetId"))[0]) == 32

    with PrivateBus() as private:
        asyncio.run(run(private))


def test_5_no_socket_outlives_its_connection_or_a_failed_attempt() -> None:
    async def run(address: str) -> None:
        before = open_descriptors()
        for _ in range(20):
            async with connected(address):
                pass
            with pytest.raises(BusUnreachableError):
                await BusConnection.connect("unix:path=/nonexistent")
        assert open_descriptors() == before

    gc.disable()
    try:
        with PrivateBus() as private:
            asyncio.run(run(private.address))
    finally:
        gc.enable()


def test_5_no_socket_outlives_a_refused_hello() -> None:
    server_done = threading.Semaphore(0)

    def vanish_after_authentication(connection: Connection) -> None:
        connection.authenticate()
        connection.receive()
        connection.socket.close()
        server_done.release()

    async def run(address: str) -> None:
        before = open_descriptors()
        for _ in range(5):
            with pytest.raises(BusUnreachableError):
                await BusConnection.connect(address)
            assert server_done.acquire(timeout=60)  # its own end of the connection is in this process, too
        assert open_descriptors() == before

    gc.disable()
    try:
        with raw_bus(vanish_after_authentication) as address:
            asyncio.run(run(address))
    finally:
        gc.enable()


def test_6_others_run_while_a_flood_of_signals_is_read() -> None:
    count = 200

    def flood(connection: Connection) -> None:
        connection.greet()
        connection.receive()
        connection.socket.sendall(frame_of(signal("S")) * count)
        connection.wait_for_end()

    async def run(address: str) -> None:
        beats = 0
        beats_at: list[int] = []

        def take_a_millisecond(_: Received) -> None:
            beats_at.append(beats)
            end = time.perf_counter() + 0.001
            while time.perf_counter() < end:
                pass

        bus = await BusConnection.connect(address, on_signal=take_a_millisecond, call_timeout_seconds=5)
        call = asyncio.create_task(bus.call(PEER, "Flood"))
        while len(beats_at) < count:
            await asyncio.sleep(0)
            beats += 1
        # 200 ms of handling in turns of at most 5 ms and one signal
        assert beats_at[-1] - beats_at[0] >= 20
        await bus.close()
        with pytest.raises(BusClosedError):
            await call

    with raw_bus(flood) as address:
        asyncio.run(asyncio.wait_for(run(address), 10))


def test_7_the_first_address_that_answers_counts() -> None:
    async def run(address: str) -> None:
        async with connected(f"unix:path=/nonexistent;tcp:host=127.0.0.1,port=1;{address}") as bus:
            assert bus.unique_name

    with PrivateBus() as private:
        asyncio.run(run(private.address))


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("", "bad bus address ''"),
        ("nonsense", "bad bus address 'nonsense'"),
        ("unix:path", "bad bus address"),
        ("unix:tmpdir=/tmp", "path= or abstract="),
        ("tcp:host=127.0.0.1,port=1", "only unix sockets"),
        ("unix:path=/nonexistent", "^unix:path=/nonexistent: .*No such file"),
        ("unix:abstract=llmhost-nonexistent", "^unix:abstract=llmhost-nonexistent: .*Connection refused"),
        (";unix:path=/no%2done;tcp:port=1;", "^unix:path=/no%2done: .*No such file.*; tcp:port=1: only unix"),
    ],
)
def test_7_a_bad_address_is_named(address: str, complaint: str) -> None:
    with pytest.raises(BusUnreachableError, match=complaint):
        asyncio.run(BusConnection.connect(address))


def test_an_address_that_is_set_and_empty_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "")
    with pytest.raises(BusUnreachableError, match="DBUS_SYSTEM_BUS_ADDRESS is set and empty"):
        system_bus_address()


def test_9_the_effective_uid_authenticates() -> None:
    needs_root()

    async def run(address: str) -> None:
        async with connected(address) as bus:
            assert await bus.call(BUS_DRIVER, "GetConnectionUnixUser", "s", bus.unique_name) == [65534]

    with PrivateBus() as private:
        Path(private.address.removeprefix("unix:path=")).parent.chmod(0o755)
        os.seteuid(65534)
        try:
            asyncio.run(run(private.address))
        finally:
            os.seteuid(0)


def test_9_where_uids_are_mapped_the_socket_proves_our_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(address: str) -> None:
        async with connected(address) as bus:
            assert await bus.call(BUS_DRIVER, "GetConnectionUnixUser", "s", bus.unique_name) == [os.getuid()]

    with PrivateBus() as private:
        monkeypatch.setattr(os, "geteuid", lambda: 4711)  # which the bus rejects: it is not the socket's
        asyncio.run(run(private.address))


def test_a_bus_that_refuses_us_is_quoted() -> None:
    def refuse(connection: Connection) -> None:
        for _ in range(2):
            connection._line()
            connection.socket.sendall(b"REJECTED KERBEROS_V4\r\n")
        connection.wait_for_end()

    with raw_bus(refuse) as address, pytest.raises(BusUnreachableError, match="REJECTED KERBEROS_V4"):
        asyncio.run(BusConnection.connect(address))


def test_no_more_calls_are_in_flight_than_the_bus_allows() -> None:
    received = threading.Semaphore(0)
    answer = threading.Event()

    def collect(connection: Connection) -> None:
        connection.greet()
        waiting = []
        for _ in range(MAX_CALLS_IN_FLIGHT):
            waiting.append(connection.receive())
            received.release()
        answer.wait(10)
        connection.socket.setblocking(False)
        with pytest.raises(BlockingIOError):  # the 33rd is kept back until one is answered
            connection.socket.recv(1)
        connection.socket.setblocking(True)
        for call in waiting:
            connection.reply(call)
        for _ in range(100 - MAX_CALLS_IN_FLIGHT):
            connection.reply(connection.receive())

    async def run(address: str) -> None:
        async with connected(address) as bus:
            calls = [asyncio.create_task(bus.call(PEER, "Go")) for _ in range(100)]
            for _ in range(MAX_CALLS_IN_FLIGHT):
                await asyncio.to_thread(received.acquire)
            answer.set()
            assert await asyncio.gather(*calls) == [[]] * 100

    with raw_bus(collect) as address:
        asyncio.run(run(address))
