"""One D-Bus message on the wire: how long it is, who sent it, and its body only when somebody wants it.

dbus-next parses values. The frame around them is read here, because dbus-next gives the whole connection up when it
meets a message type or a header field that it does not know, or a body that it cannot parse (defect 8 of `bus`); the
D-Bus specification says of the first two that they must be ignored.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from dbus_next._private.unmarshaller import Unmarshaller
from dbus_next.signature import SignatureTree, Variant

FIXED_BYTES = 16  # up to and with the length of the header fields
_MAX_MESSAGE_BYTES = 1 << 27  # D-Bus specification, "Message Format"
_BYTE_ORDERS = {ord("l"): "<", ord("B"): ">"}


class Kind(IntEnum):
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
    """Where the next message begins cannot be told: only a new connection helps."""


class UndecodableError(ValueError):
    """This message cannot be read; the next one can."""


def rest_bytes(fixed: bytes) -> int:
    """How many bytes of a message follow its first sixteen. Raises LostFramingError."""
    order = _BYTE_ORDERS.get(fixed[0])
    if order is None or fixed[3] != 1:
        raise LostFramingError(f"no D-Bus message begins with {fixed[:4].hex()}")
    (body_bytes,) = struct.unpack_from(f"{order}I", fixed, 4)
    (fields_bytes,) = struct.unpack_from(f"{order}I", fixed, 12)
    rest: int = fields_bytes + (-fields_bytes & 7) + body_bytes
    if rest > _MAX_MESSAGE_BYTES:
        raise LostFramingError(f"a message of {rest} bytes is above what D-Bus allows")
    return rest


class _Values(Unmarshaller):
    """dbus-next's parser over one whole frame: it never reads a socket."""

    def __init__(self, frame: bytes, offset: int) -> None:
        super().__init__(None)  # type: ignore[no-untyped-call]
        self.buf = bytearray(frame)
        self.endian = frame[0]
        self.offset = offset

    def read(self, n: int, prefetch: bool = False) -> int:  # noqa: ARG002 - dbus-next's signature
        before: int = self.offset
        if n > len(self.buf) - before:
            raise UndecodableError("a value reaches beyond its message")
        self.offset = before + n
        return before

    def next(self, signature: str) -> list[Any]:
        kinds = SignatureTree._get(signature).types  # noqa: SLF001 - the cached way in
        return [self.read_argument(kind) for kind in kinds]  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message. Only the header has been parsed: signals that nobody follows cost little."""

    kind: int  # a Kind, or a number that a later D-Bus may define
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
        try:
            return [plain(value) for value in _Values(self.frame, self.body_offset).next(self.signature)]
        except UndecodableError:
            raise
        except Exception as error:
            raise UndecodableError(f"body of signature {self.signature!r}: {error!r}") from error


def plain(value: Any) -> Any:  # noqa: ANN401 - D-Bus values are of any type
    """Take variants off, however deep: their signatures are of no use to a reader."""
    if isinstance(value, Variant):
        return plain(value.value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def decode(frame: bytes) -> Received:
    """Parse the header of one whole message. Header fields that are unknown are ignored. Raises UndecodableError."""
    order = _BYTE_ORDERS[frame[0]]
    (serial,) = struct.unpack_from(f"{order}I", frame, 8)
    values = _Values(frame, 12)
    try:
        fields = {code: plain(value) for code, value in values.next("a(yv)")[0]}
    except UndecodableError:
        raise
    except Exception as error:
        raise UndecodableError(f"header: {error!r}") from error

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
        body_offset=values.offset + (-values.offset & 7),
    )
