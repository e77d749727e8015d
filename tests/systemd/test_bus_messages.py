"""The handling of received messages: the eighth of dbus-next's defects, order, and forgery."""

import asyncio

import pytest
from tests.fakes.raw_bus import PEER, Connection, connected, frame_of, raw_bus, reply_to, signal, with_field

from llmhost.sources.systemd.bus.connection import (
    BusClosedError,
    BusConnection,
    Callee,
    CallFailedError,
)


def test_8_messages_that_cannot_be_understood_are_skipped_and_the_first_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = frame_of(signal("Good", "s", "here"))
    unknown_kind = good[:1] + b"\x09" + good[2:]
    unknown_field = with_field(frame_of(signal("Extended", "s", "too")), 99, b"\x01u\0" + b"\x01\0\0\0")
    bad_header = with_field(good, 3, b"\x01u\0" + b"\x01\0\0\0")  # MEMBER is a string
    bad_body = frame_of(signal("Bad", "s", "x" * 8)).replace(b"\x08\0\0\0xxxxxxxx", b"\xff\0\0\0xxxxxxxx")

    def odd(connection: Connection) -> None:
        connection.greet()
        call = connection.receive()
        connection.socket.sendall(unknown_kind + unknown_field + bad_header + bad_body + good)
        connection.reply(call)
        connection.wait_for_end()

    async def run(address: str) -> None:
        heard: list[tuple[str, list[object]]] = []
        skipped: list[int] = []
        bus = await BusConnection.connect(
            address,
            on_signal=lambda m: heard.append((m.member, m.body())),
            on_skipped=lambda: skipped.append(len(heard)),
        )
        await bus.call(PEER, "Go")
        assert heard == [("Extended", ["too"]), ("Good", ["here"])]
        # the bad header and the bad body, after the first good one; the unknown kind is to be ignored
        assert (bus.skipped, skipped) == (2, [1, 1])
        await bus.close()

    with raw_bus(odd) as address:
        asyncio.run(run(address))
    assert caplog.messages == ["skipped a D-Bus message: header field MEMBER is no string"]


def test_8_an_undecodable_reply_fails_its_call_and_no_other() -> None:
    def odd(connection: Connection) -> None:
        connection.greet()
        call = connection.receive()
        frame = frame_of(reply_to(call, "s", ["x" * 8]))
        connection.socket.sendall(frame.replace(b"\x08\0\0\0xxxxxxxx", b"\xff\0\0\0xxxxxxxx"))
        connection.reply(connection.receive(), "s", ["fine"])
        connection.wait_for_end()

    async def run(address: str) -> None:
        async with connected(address) as bus:
            with pytest.raises(CallFailedError, match="undecodable reply"):
                await bus.call(PEER, "First")
            assert await bus.call(PEER, "Second") == ["fine"]

    with raw_bus(odd) as address:
        asyncio.run(run(address))


def test_8_a_connection_whose_framing_is_lost_ends_with_a_reason() -> None:
    def garble(connection: Connection) -> None:
        connection.greet()
        connection.receive()
        connection.socket.sendall(b"HTTP/1.1 400 Bad Request\r\n")
        connection.wait_for_end()

    async def run(address: str) -> None:
        async with connected(address) as bus:
            with pytest.raises(BusClosedError, match="no D-Bus message begins with 48545450"):
                await bus.call(PEER, "Go")

    with raw_bus(garble) as address:
        asyncio.run(run(address))


def test_a_reply_is_handled_at_its_place_among_the_signals() -> None:
    def interleave(connection: Connection) -> None:
        connection.greet()
        call = connection.receive()
        reply = frame_of(reply_to(call, "s", ["reply"]))
        connection.socket.sendall(frame_of(signal("Before")) + reply + frame_of(signal("After")))

    async def run(address: str) -> None:
        order: list[str] = []
        bus = await BusConnection.connect(address, on_signal=lambda message: order.append(message.member))
        await bus.call(PEER, "Go", on_reply=lambda body: order.append(body[0]))
        await bus.wait_closed()
        assert order == ["Before", "reply", "After"]
        await bus.close()

    with raw_bus(interleave) as address:
        asyncio.run(asyncio.wait_for(run(address), 5))


def test_a_reply_from_another_sender_is_ignored() -> None:
    def forge(connection: Connection) -> None:
        connection.greet()
        call = connection.receive()
        connection.socket.sendall(frame_of(reply_to(call, "s", ["forged"]), sender=":1.66"))
        connection.socket.sendall(frame_of(reply_to(call, "s", ["true"]), sender=":1.5"))
        connection.wait_for_end()

    async def run(address: str) -> None:
        async with connected(address) as bus:
            assert await bus.call(Callee(":1.5", "/x", "x.Y"), "Go") == ["true"]
            assert bus.forged == 1

    with raw_bus(forge) as address:
        asyncio.run(run(address))
