"""One D-Bus message: its length, its header, and its body on demand.

The frame is read here and not by dbus-next, which gives up the whole connection at a message type or header field that
it does not know, or a body that it cannot parse. The D-Bus specification says of the first two to ignore them.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from dbus_next.message import Message

from llmhost.sources.systemd.bus.values import UndecodableError, read_values

FIXED_BYTES = 16  # up to and with the length of the header fields
_FIELDS_AT = 12
_MAX_MESSAGE_BYTES = 1 << 27  # D-Bus specification, "Message Format"
_BYTE_ORDERS = {ord("l"): "<", ord("B"): ">"}


class MessageType(IntEnum):
    METHOD_CALL = 1
    METHOD_RETURN = 2
    ERROR = 3
    SIGNAL = 4


class _Field(IntEnum):
    PATH = 1
    INTERFACE = 2
    MEMBER = 3
    ERROR_NAME = 4
    REPLY_SERIAL = 5
    DESTINATION = 6
    SENDER = 7
    SIGNATURE = 8


class LostFramingError(ConnectionError):
    """The start of the next message is unknown: only a new connection helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message with its header parsed. The body is not: a signal that nobody follows costs little."""

    kind: int  # a MessageType, or a number that a later D-Bus may define
    serial: int
    sender: str
    path: str
    interface: str
    member: str
    error_name: str
    reply_serial: int
    signature: str
    frame: bytes
    body_offset: int

    def body(self) -> list[Any]:
        """Parse the body; variants come as their values. Raises UndecodableError."""
        if self.body_offset >= len(self.frame):
            return []
        return read_values(self.signature, self.frame, self.body_offset, _BYTE_ORDERS[self.frame[0]])[0]


def encode(message: Message) -> bytes:
    """Bytes of a message. The one private part of dbus-next in use: its public parts only write to its own sockets."""
    return bytes(message._marshall())  # type: ignore[no-untyped-call]  # noqa: SLF001


def rest_bytes(fixed: bytes) -> int:
    """Count the bytes of a message behind its first sixteen. Raises LostFramingError."""
    order = _BYTE_ORDERS.get(fixed[0])
    if order is None or fixed[3] != 1:
        raise LostFramingError(f"no D-Bus message begins with {fixed[:4].hex()}")
    (body_bytes,) = struct.unpack_from(f"{order}I", fixed, 4)
    (fields_bytes,) = struct.unpack_from(f"{order}I", fixed, _FIELDS_AT)
    rest: int = fields_bytes + (-fields_bytes & 7) + body_bytes
    if rest > _MAX_MESSAGE_BYTES:
        raise LostFramingError(f"a message of {rest} bytes is above what D-Bus allows")
    return rest


def decode(frame: bytes) -> Received:
    """Parse the header of one whole message. Unknown header fields are ignored. Raises UndecodableError."""
    order = _BYTE_ORDERS[frame[0]]
    (serial,) = struct.unpack_from(f"{order}I", frame, 8)
    (read,), end = read_values("a(yv)", frame, _FIELDS_AT, order)
    fields: dict[int, Any] = dict(read)

    def text(field: _Field) -> str:
        value = fields.get(field, "")
        if not isinstance(value, str):
            raise UndecodableError(f"header field {field.name} is no string")
        return value

    reply_serial = fields.get(_Field.REPLY_SERIAL, 0)
    if not isinstance(reply_serial, int):
        raise UndecodableError("header field REPLY_SERIAL is no number")
    return Received(
        kind=frame[1],
        serial=serial,
        sender=text(_Field.SENDER),
        path=text(_Field.PATH),
        interface=text(_Field.INTERFACE),
        member=text(_Field.MEMBER),
        error_name=text(_Field.ERROR_NAME),
        reply_serial=reply_serial,
        signature=text(_Field.SIGNATURE),
        frame=frame,
        body_offset=end + (-end & 7),
    )
