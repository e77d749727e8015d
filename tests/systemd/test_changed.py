"""The quick reader of PropertiesChanged gives what the general one does, and nothing else fails."""

import random
from typing import Any

import pytest
from dbus_next.constants import MessageType
from dbus_next.message import Message
from dbus_next.signature import Variant
from tests.fakes.unit_properties import SIGNALLED_SERVICE, SIGNALLED_UNIT, full, variant

from llmhost.sources.systemd.changed import read_changed
from llmhost.sources.systemd.wire import Received, UndecodableError, decode

UNIT = "org.freedesktop.systemd1.Unit"
ODD = {
    "Id": Variant("s", "größer.service"),
    "Byte": Variant("y", 200),
    "Boolean": Variant("b", True),
    "Number": Variant("i", -7),
    "Long": Variant("x", -(2**40)),
    "Time": Variant("t", 2**64 - 1),
    "InvocationID": Variant("ay", bytes(range(16))),
    "Nothing": Variant("ay", b""),
    "Job": Variant("(uo)", [77, "/org/freedesktop/systemd1/job/77"]),
    "ActivationDetails": Variant("a(ss)", [["trigger_unit", "x.timer"]]),
    "NoDetails": Variant("a(ss)", []),
    "Names": Variant("as", ["a", "b"]),
    "Numbers": Variant("au", [1, 2, 3]),
    "Times": Variant("at", [1, 2]),
    "Errno": Variant("i", 2),
}


def message(properties: dict[str, Variant], invalidated: list[str] | None = None) -> Received:
    sent = Message(
        path="/org/freedesktop/systemd1/unit/a_2eservice",
        interface="org.freedesktop.DBus.Properties",
        member="PropertiesChanged",
        message_type=MessageType.SIGNAL,
        signature="sa{sv}as",
        body=[UNIT, properties, invalidated or []],
        serial=3,
        sender=":1.0",
    )
    return decode(bytes(sent._marshall()))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("names", [SIGNALLED_SERVICE, SIGNALLED_UNIT])
def test_it_reads_what_systemd_signals(names: set[str]) -> None:
    unit = full({"Id": "a.service", "InvocationID": "ab" * 16, "Job": [4, "/job/4"], "NRestarts": 3}, {})
    received = message({name: variant(name, unit[name]) for name in names}, ["ExecStart", "ExecStartPre"])
    interface, found = read_changed(received, names)
    assert interface == UNIT
    assert found == received.body()[1]


def test_it_passes_over_what_is_not_wanted_and_gives_up_on_no_type() -> None:
    received = message(ODD)
    wanted = {"Id", "Byte", "Boolean", "Number", "Long", "Time", "InvocationID", "Nothing", "Job", "Errno"}
    assert read_changed(received, wanted) == (UNIT, {name: received.body()[1][name] for name in wanted})
    for name in ODD:
        assert read_changed(received, {name}) == (UNIT, {name: received.body()[1][name]})
    for odd in (Variant("d", 1.5), Variant("v", Variant("u", 1)), Variant("n", 3), Variant("(su)", ["a", 1])):
        received = message({"Odd": odd, "Errno": ODD["Errno"]})
        assert read_changed(received, {"Errno"}) == (UNIT, {"Errno": 2})


def test_what_is_broken_is_undecodable_or_read_as_the_general_reader_does() -> None:
    chance = random.Random(5)
    whole = message(ODD)

    def general(received: Received) -> Any:  # noqa: ANN401
        try:
            interface, properties, _ = received.body()
        except (UndecodableError, ValueError):
            return None
        return interface, properties

    for _ in range(3000):
        frame = bytearray(whole.frame)
        for _ in range(chance.randrange(1, 3)):
            frame[chance.randrange(whole.body_offset, len(frame))] = chance.randrange(256)
        cut = len(frame) if chance.random() < 0.5 else chance.randrange(whole.body_offset, len(frame))
        broken = Received(
            **{name: getattr(whole, name) for name in Received.__slots__ if name != "frame"}, frame=bytes(frame[:cut])
        )
        try:
            read_changed(broken, {"Errno", "InvocationID", "Job", "Id"})
        except (UndecodableError, ValueError):
            assert general(broken) is None
