"""Types of values in the config file: each parses a node, and shows a value as it is written in the file."""

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from llmhost.config.nodes import BadNodeError, Node, quoted

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
Number = TypeVar("Number", int, float)

LONGEST_TEXT: Final = 1024  # characters of a value
_FLAGS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_WHOLE = re.compile(r"0|[1-9][0-9]{0,17}")
_DECIMAL = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class ValueType(Generic[T]):
    """`parse` raises BadNodeError; `parse` of what `show` gave is the value again."""

    parse: Callable[[Node], T]
    show: Callable[[T], Any]


def scalar(
    wanted: str, read: Callable[[str], T | None], show: Callable[[T], Any] = str, *, quotes: bool = True
) -> ValueType[T]:
    """Take text; `read` gives None for what is not `wanted`, or raises ValueError with a reason to be told."""

    def parse(node: Node) -> T:
        if isinstance(node.value, str) and len(node.value) > LONGEST_TEXT:
            raise BadNodeError(node, f"longer than {LONGEST_TEXT} characters")
        try:
            value = read(node.value) if isinstance(node.value, str) else None
        except ValueError as error:
            raise BadNodeError(node, f"{quoted(str(node.value))}: {error}" if quotes else str(error)) from None
        if value is None:
            raise wrong_type(node, wanted)
        return value

    return ValueType(parse, show)


def matching(wanted: str, pattern: str) -> ValueType[str]:
    return scalar(wanted, lambda text: text if text.isprintable() and re.fullmatch(pattern, text) else None)


def checked(wanted: str, check: Callable[[str], object]) -> ValueType[str]:
    """Take text that `check` does not refuse by ValueError; its reason stands alone, for text may hold a password."""

    def read(text: str) -> str:
        check(text)
        return text

    return scalar(wanted, read, quotes=False)


def flag() -> ValueType[bool]:
    return scalar("true or false", lambda text: _FLAGS.get(text.lower()), bool)


def count(lowest: int, highest: int) -> ValueType[int]:
    def read(text: str) -> int | None:
        return int(text) if _WHOLE.fullmatch(text) and lowest <= int(text) <= highest else None

    return scalar(f"a whole number from {lowest} to {highest}", read, int)


def ratio() -> ValueType[float]:
    def read(text: str) -> float | None:
        return float(text) if _DECIMAL.fullmatch(text) and 0 < float(text) <= 1 else None

    return scalar("a ratio above 0 and up to 1, such as 0.92", read, float)


def quantity(
    parse: Callable[[str], Number], show: Callable[[Number], str], lowest: str, highest: str
) -> ValueType[Number]:
    def read(text: str) -> Number | None:
        value = parse(text)
        return value if parse(lowest) <= value <= parse(highest) else None

    return scalar(f"from {lowest} to {highest}", read, show)


def choice(enum: type[E]) -> ValueType[E]:
    values = [member.value for member in enum]

    def read(text: str) -> E:
        if text not in values:
            raise ValueError(f"{quoted(text)} is no valid choice; {_nearest(text, values)}")
        return enum(text)

    return scalar(f"one of {', '.join(values)}", read, quotes=False)


def optional(value_type: ValueType[T]) -> ValueType[T | None]:
    """Take `null` too."""
    return ValueType(
        lambda node: None if node.value is None else value_type.parse(node),
        lambda value: None if value is None else value_type.show(value),
    )


def list_of(item: ValueType[T], *, identity: Callable[[T], str] = str) -> ValueType[tuple[T, ...]]:
    """Take a list in which no two items have the same identity."""

    def parse(node: Node) -> tuple[T, ...]:
        if not isinstance(node.value, list):
            raise wrong_type(node, "a list")
        found: list[T] = []
        lines: dict[str, int] = {}
        for child in node.value:
            found.append(item.parse(child))
            name = identity(found[-1])
            if name in lines:
                raise BadNodeError(child, f"{quoted(name)} is given twice, first on line {lines[name]}")
            lines[name] = child.line
        return tuple(found)

    return ValueType(parse, lambda values: [item.show(value) for value in values])


def record(make: type[T], **columns: ValueType[Any]) -> ValueType[T]:
    """Take a mapping with a key for each field of a dataclass; a field with a default may be left out."""
    required = [field.name for field in fields(make) if field.default is MISSING]  # type: ignore[arg-type]

    def parse(node: Node) -> T:
        found = members(node, columns)
        if missing := [name for name in required if name not in found]:
            raise BadNodeError(node, f"has no {' and no '.join(missing)}")
        return make(**{name: columns[name].parse(child) for name, child in found.items()})

    def show(row: T) -> dict[str, Any]:
        return {
            name: column.show(getattr(row, name)) for name, column in columns.items() if getattr(row, name) is not None
        }

    return ValueType(parse, show)


def members(node: Node, names: Collection[str], *, elsewhere: Mapping[str, str] | None = None) -> dict[str, Node]:
    """Give the entries of a mapping with these keys; `elsewhere` has the paths of keys of other mappings."""
    if not isinstance(node.value, dict):
        raise wrong_type(node, f"a mapping with {', '.join(names)}")
    for name, child in node.value.items():
        if name not in names:
            path = (elsewhere or {}).get(name)
            raise BadNodeError(child, f"unknown key; {_nearest(path or name, [path] if path else names)}")
    return node.value


def _nearest(text: str, choices: Collection[str]) -> str:
    """Ask whether the likeliest choice was meant, or list them all."""
    by_lower = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(text.lower(), by_lower, n=1, cutoff=0.6)
    return f'did you mean "{by_lower[close[0]]}"?' if close else f"valid here: {', '.join(sorted(choices))}"


def wrong_type(node: Node, wanted: str) -> BadNodeError:
    found = {type(None): "nothing", list: "a list", dict: "a mapping"}.get(type(node.value))
    return BadNodeError(node, f"must be {wanted}, not {found or quoted(str(node.value))}")
