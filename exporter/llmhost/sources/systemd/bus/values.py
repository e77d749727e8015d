"""D-Bus values, read from the bytes of a message: D-Bus specification, "Marshaling".

Variants come as the values in them: a string, number, bool, bytes, a list for an array or a struct, or a dict.

dbus-next parses signatures for it. Its own reader of values is private, and four times as slow: a PropertiesChanged of
systemd takes 17 to 26 µs here and 70 to 110 µs there, a header 5 and 28 µs. 20 services that fail at once and are
restarted every 100 ms send 900 such signals a second.
"""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from dbus_next.signature import SignatureTree, SignatureType

_Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]  # (frame, offset) → (value, offset behind it)
_FIXED: Final = {  # type → its code in `struct` and its size, which is its alignment as well
    "y": ("B", 1),
    "n": ("h", 2),
    "q": ("H", 2),
    "i": ("i", 4),
    "u": ("I", 4),
    "x": ("q", 8),
    "t": ("Q", 8),
    "d": ("d", 8),
    "h": ("I", 4),
    "b": ("I", 4),
}
_ALIGNED_TO_8: Final = frozenset("xtd({")
_MOST_SIGNATURES: Final = 1000


class UndecodableError(ValueError):
    """This message cannot be read; the next one can."""


def read_values(signature: str, frame: bytes, offset: int, order: str) -> tuple[list[Any], int]:
    """Read the values of a signature; returns them and the offset behind them. `order` is "<" or ">", as in `struct`.

    Raises UndecodableError.
    """
    values = []
    try:
        for read in _readers(signature, order):
            value, offset = read(frame, offset)
            values.append(value)
    except (ValueError, IndexError, TypeError, RecursionError, struct.error) as error:
        raise UndecodableError(f"values of signature {signature!r}: {error!r}") from error
    return values, offset


@lru_cache(_MOST_SIGNATURES)
def _readers(signature: str, order: str) -> tuple[_Read, ...]:
    return tuple(_reader(kind, order) for kind in SignatureTree(signature).types)


def _reader(kind: SignatureType, order: str) -> _Read:
    code: str = kind.token
    if code in _FIXED:
        return _fixed(code, order)
    match code:
        case "s" | "o":
            return _string(order)
        case "g":
            return _read_signature
        case "v":
            return _variant(order)
        case "(" | "{":
            return _struct([_reader(member, order) for member in kind.children])
        case "a":
            (item,) = kind.children
            return _array(item.token, _reader(item, order), order)
        case _:
            raise UndecodableError(f"no type of D-Bus: {code!r}")


def _fixed(code: str, order: str) -> _Read:
    format_code, size = _FIXED[code]
    unpack = struct.Struct(order + format_code).unpack_from
    before = size - 1

    def read(frame: bytes, at: int) -> tuple[Any, int]:
        at = (at + before) & -size
        (value,) = unpack(frame, at)
        return value, at + size

    def read_bool(frame: bytes, at: int) -> tuple[bool, int]:
        number, at = read(frame, at)
        return number != 0, at

    return read_bool if code == "b" else read


def _string(order: str) -> _Read:
    unpack = struct.Struct(f"{order}I").unpack_from

    def read(frame: bytes, at: int) -> tuple[str, int]:
        at = (at + 3) & -4
        (length,) = unpack(frame, at)
        end = at + 4 + length
        if frame[end]:  # IndexError where it is beyond the message
            raise UndecodableError("a string that does not end")
        return frame[at + 4 : end].decode(), end + 1

    return read


def _read_signature(frame: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + frame[at]
    if frame[end]:
        raise UndecodableError("a signature that does not end")
    return frame[at + 1 : end].decode(), end + 1


def _variant(order: str) -> _Read:
    def read(frame: bytes, at: int) -> tuple[Any, int]:
        signature, at = _read_signature(frame, at)
        (read_value,) = _readers(signature, order)
        return read_value(frame, at)

    return read


def _struct(members: list[_Read]) -> _Read:
    def read(frame: bytes, at: int) -> tuple[list[Any], int]:
        at = (at + 7) & -8
        values = []
        for read_member in members:
            value, at = read_member(frame, at)
            values.append(value)
        return values, at

    return read


def _array(item_code: str, read_item: _Read, order: str) -> _Read:
    unpack = struct.Struct(f"{order}I").unpack_from
    is_aligned_to_8 = item_code in _ALIGNED_TO_8

    def read(frame: bytes, at: int) -> tuple[Any, int]:
        at = (at + 3) & -4
        (length,) = unpack(frame, at)
        at += 4
        if is_aligned_to_8:
            at = (at + 7) & -8
        end = at + length
        if end > len(frame):
            raise UndecodableError("an array reaches beyond its message")
        if item_code == "y":
            return frame[at:end], end
        items = []
        while at < end:
            item, at = read_item(frame, at)
            items.append(item)
        if at != end:
            raise UndecodableError("an array of another length than it says")
        return (dict(items) if item_code == "{" else items), end

    return read
