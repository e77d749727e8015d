"""Values of D-Bus: by hand from the specification, and the same as dbus-next reads from its own messages."""

import random
from typing import Any

import pytest
from dbus_next.constants import MessageType
from dbus_next.message import Message
from dbus_next.signature import Variant
from tests.fakes.bus_peer import message_of
from tests.fakes.unit_properties import SIGNALLED_SERVICE, SIGNALLED_UNIT, full, variant

from llmhost.sources.systemd.bus.message import Received, decode, encode
from llmhost.sources.systemd.bus.values import UndecodableError, read_values

UNIT = "org.freedesktop.systemd1.Unit"
OF_ALL_TYPES = {
    "Id": Variant("s", "größer.service"),
    "Byte": Variant("y", 200),
    "Boolean": Variant("b", True),
    "Small": Variant("n", -3),
    "SmallUnsigned": Variant("q", 3),
    "Number": Variant("i", -7),
    "Unsigned": Variant("u", 2**32 - 1),
    "Long": Variant("x", -(2**40)),
    "Time": Variant("t", 2**64 - 1),
    "Double": Variant("d", 1.5),
    "Handle": Variant("h", 2),
    "Signature": Variant("g", "a{sv}"),
    "Variant": Variant("v", Variant("v", Variant("u", 1))),
    "InvocationID": Variant("ay", bytes(range(16))),
    "Nothing": Variant("ay", b""),
    "Job": Variant("(uo)", [77, "/org/freedesktop/systemd1/job/77"]),
    "ActivationDetails": Variant("a(ss)", [["trigger_unit", "x.timer"]]),
    "NoDetails": Variant("a(ss)", []),
    "Names": Variant("as", ["a", "b"]),
    "Times": Variant("at", [1, 2]),
    "Deep": Variant("a(sa{sv})", [["a", {"b": Variant("aau", [[1], []])}]]),
}


def frame_of(properties: dict[str, Variant]) -> bytes:
    message = Message(
        path="/org/freedesktop/systemd1/unit/a_2eservice",
        interface="org.freedesktop.DBus.Properties",
        member="PropertiesChanged",
        message_type=MessageType.SIGNAL,
        signature="sa{sv}as",
        body=[UNIT, properties, ["ExecStart", "ExecStartPre"]],
        serial=3,
    )
    return encode(message)


def as_dbus_next_reads_it(frame: bytes) -> Any:  # noqa: ANN401
    return without_variants(message_of(frame).body)


def without_variants(value: Any) -> Any:  # noqa: ANN401
    match value:
        case Variant():
            return without_variants(value.value)
        case list():
            return [without_variants(item) for item in value]
        case dict():
            return {key: without_variants(item) for key, item in value.items()}
        case _:
            return value


@pytest.mark.parametrize(
    ("signature", "order", "frame", "values", "end"),
    [
        ("u", "<", b"\x01\0\0\0", [1], 4),
        ("u", ">", b"\0\0\0\x01", [1], 4),
        ("yu", "<", b"\x07\xff\xff\xff\x02\0\0\0", [7, 2], 8),  # aligned to 4
        ("yb", "<", b"\x07\xff\xff\xff\x01\0\0\0", [7, True], 8),
        ("s", "<", b"\x02\0\0\0hi\0", ["hi"], 7),
        ("g", "<", b"\x02ai\0", ["ai"], 4),
        ("v", "<", b"\x01s\0\xff\x02\0\0\0hi\0", ["hi"], 11),
        ("ay", "<", b"\x02\0\0\0\x05\x06", [b"\x05\x06"], 6),
        ("at", "<", b"\x08\0\0\0" + b"\xff" * 4 + b"\x09" + b"\0" * 7, [[9]], 16),  # padding is not in the length
        ("a{ss}", "<", b"\x0e\0\0\0" + b"\xff" * 4 + b"\x01\0\0\0a\0\xff\xff" + b"\x01\0\0\0b\0", [{"a": "b"}], 22),
    ],
)
def test_values_are_read_as_the_specification_has_them(
    signature: str, order: str, frame: bytes, values: list[Any], end: int
) -> None:
    assert read_values(signature, frame, 0, order) == (values, end)


@pytest.mark.parametrize("names", [SIGNALLED_SERVICE, SIGNALLED_UNIT])
def test_signals_of_systemd_are_read_as_dbus_next_reads_them(names: set[str]) -> None:
    unit = full({"Id": "a.service", "InvocationID": "ab" * 16, "Job": [4, "/job/4"], "NRestarts": 3}, {})
    frame = frame_of({name: variant(name, unit[name]) for name in names})
    assert decode(frame).body() == as_dbus_next_reads_it(frame)


def test_all_types_are_read_as_dbus_next_reads_them() -> None:
    frame = frame_of(OF_ALL_TYPES)
    body = decode(frame).body()
    assert body == as_dbus_next_reads_it(frame)
    assert body[1]["Deep"] == [["a", {"b": [[1], []]}]]


def test_a_broken_message_is_undecodable_or_read_and_nothing_else() -> None:
    chance = random.Random(5)
    whole = decode(frame_of(OF_ALL_TYPES))
    undecodable = 0
    for _ in range(3000):
        frame = bytearray(whole.frame)
        for _ in range(chance.randrange(1, 3)):
            frame[chance.randrange(whole.body_offset, len(frame))] = chance.randrange(256)
        cut = len(frame) if chance.random() < 0.5 else chance.randrange(whole.body_offset + 1, len(frame))
        broken = Received(
            **{name: getattr(whole, name) for name in Received.__slots__ if name != "frame"}, frame=bytes(frame[:cut])
        )
        try:
            broken.body()
        except UndecodableError:
            undecodable += 1
            continue
        assert cut == len(frame), "a message that was cut cannot be read"
    assert undecodable > 1500


@pytest.mark.parametrize(
    ("signature", "frame"),
    [
        ("u", b"\x01\0\0"),
        ("s", b"\xff\0\0\0hi\0"),
        ("s", b"\x01\0\0\0hi\0"),  # not ended where it says
        ("s", b"\x01\0\0\0\xff\0"),  # not UTF-8
        ("v", b"\x02ss\0\0\0\0\0"),  # two values in a variant
        ("v", b"\x01!\0"),
        ("au", b"\x06\0\0\0" + b"\0" * 8),  # one and a half
        ("as", b"\xff\xff\xff\xff"),
        ("(", b""),
        ("v" * 2, b"\x01v\0" * 3000),  # deeper than anything can be read
    ],
)
def test_what_is_no_value_is_undecodable(signature: str, frame: bytes) -> None:
    with pytest.raises(UndecodableError):
        read_values(signature, frame, 0, "<")
