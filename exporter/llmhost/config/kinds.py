"""The kinds of values that a config file can have: each reads what was written and writes what it read."""

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeAlias, TypeVar

from llmhost.config.quantities import (
    QuantityError,
    format_size,
    format_time,
    parse_size,
    parse_time,
)
from llmhost.config.schema import UnitGpus
from llmhost.config.tree import BadNodeError, Mapping, Node, Scalar, Sequence, Written, described, quoted
from llmhost.config.unit_pattern import service_pattern
from llmhost.model.listen import parse_listen

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

Plain: TypeAlias = str | int | float | bool | list["Plain"] | dict[str, "Plain"] | None

# NVML index, with ":N" for a MIG instance; GPU or MIG UUID; PCI bus id, the domain in 0, 4 or 8 digits.
_GPU = re.compile(
    r"(?:0|[1-9][0-9]{0,3})(?::(?:0|[1-9][0-9]?))?"
    r"|(?:GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]*"
    r"|(?:(?:[0-9A-Fa-f]{4}){1,2}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
)
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_FLAGS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_LONGEST_NUMBER: Final = 18  # digits


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """`parse` raises BadNodeError; `parse` of what `dump` gave is the value again."""

    parse: Callable[[Node], T]
    dump: Callable[[T], Plain]


def flag() -> Kind[bool]:
    def parse(node: Node) -> bool:
        value = _FLAGS.get(node.text.lower()) if isinstance(node, Scalar) and node.written is Written.FLAG else None
        if value is not None:
            return value
        raise wrong_type(node, "true or false")

    return Kind(parse, bool)


def count(*, lowest: int, highest: int) -> Kind[int]:
    def parse(node: Node) -> int:
        if not isinstance(node, Scalar) or node.written is not Written.WHOLE:
            raise wrong_type(node, "a whole number")
        if not _WHOLE.fullmatch(node.text):
            raise BadNodeError(node, f"write the number in plain decimal digits, not as {quoted(node.text)}")
        if len(node.text) > _LONGEST_NUMBER or not lowest <= int(node.text) <= highest:
            raise BadNodeError(node, f"must be from {lowest} to {highest}, not {node.text[:_LONGEST_NUMBER]}")
        return int(node.text)

    return Kind(parse, int)


def ratio() -> Kind[float]:
    """Above 0 and up to 1."""

    def parse(node: Node) -> float:
        if isinstance(node, Scalar) and (percent := re.fullmatch(r"([0-9]{1,2}|100) ?%", node.text)):
            raise BadNodeError(node, f"a ratio, not a percentage; did you mean {int(percent[1]) / 100}?")
        if not isinstance(node, Scalar) or node.written not in {Written.WHOLE, Written.NUMBER}:
            raise wrong_type(node, "a ratio above 0 and up to 1, such as 0.92")
        if not _DECIMAL.fullmatch(node.text) or not 0 < float(node.text) <= 1:
            raise BadNodeError(node, f"must be above 0 and up to 1, not {node.text[:_LONGEST_NUMBER]}")
        return float(node.text)

    return Kind(parse, float)


def size(*, lowest: str, highest: str) -> Kind[int]:
    return _quantity(parse_size, format_size, "1000MiB", lowest, highest)


def time(*, lowest: str, highest: str) -> Kind[float]:
    return _quantity(parse_time, format_time, "30s", lowest, highest)


def choice(enum: type[E]) -> Kind[E]:
    values = [member.value for member in enum]

    def parse(node: Node) -> E:
        if isinstance(node, Scalar) and node.written is Written.TEXT and node.text in values:
            return enum(node.text)
        if isinstance(node, Scalar) and node.written is not Written.NOTHING:
            raise BadNodeError(node, f"{quoted(node.text)} is no valid choice; {nearest(node.text, values)}")
        raise wrong_type(node, f"one of {', '.join(values)}")

    return Kind(parse, lambda value: value.value)


def listen() -> Kind[str]:
    def parse(node: Node) -> str:
        if not isinstance(node, Scalar) or node.written is Written.NOTHING:
            raise wrong_type(node, 'a listen address, such as ":10061"')
        try:
            parse_listen(node.text)
        except ValueError as error:
            raise BadNodeError(node, str(error)) from None
        return node.text

    return Kind(parse, str)


def unit_patterns() -> Kind[tuple[str, ...]]:
    def parse(node: Node) -> tuple[str, ...]:
        return _list_of(node, _pattern, 'a list of unit patterns, such as ["vllm-*.service"]')

    return Kind(parse, list)


def unit_gpus() -> Kind[tuple[UnitGpus, ...]]:
    """Map unit patterns to GPUs; the first pattern that matches a unit counts, so the order is kept."""

    def parse(node: Node) -> tuple[UnitGpus, ...]:
        if not isinstance(node, Mapping):
            raise wrong_type(node, 'a mapping of unit patterns to GPUs, such as {"vllm-a.service": [0, 1]}')
        lines: dict[str, int] = {}
        found: list[UnitGpus] = []
        for key, value in node.entries:
            pattern = _pattern(key)
            if pattern in lines:
                raise BadNodeError(key, f'"{pattern}" is given twice, first on line {lines[pattern]}')
            lines[pattern] = key.line
            gpus = _list_of(value, _gpu, 'a list of GPUs, such as [0, 1] or ["GPU-…"]')
            if not gpus:
                raise BadNodeError(value, "an empty list of GPUs; remove the line to leave the GPUs to be found out")
            found.append(UnitGpus(pattern=pattern, gpus=gpus))
        return tuple(found)

    def dump(value: tuple[UnitGpus, ...]) -> Plain:
        return {entry.pattern: list(entry.gpus) for entry in value}

    return Kind(parse, dump)


def optional(kind: Kind[T]) -> Kind[T | None]:
    """Also `null`, for what is then found out."""
    return Kind(
        lambda node: None if isinstance(node, Scalar) and node.written is Written.NOTHING else kind.parse(node),
        lambda value: None if value is None else kind.dump(value),
    )


def nearest(text: str, choices: Iterable[str]) -> str:
    """Ask whether the likeliest choice was meant, or list them all."""
    by_lower = {c.lower(): c for c in choices}
    close = difflib.get_close_matches(text.lower(), by_lower, n=1, cutoff=0.6)
    return f'did you mean "{by_lower[close[0]]}"?' if close else f"valid here: {', '.join(sorted(by_lower.values()))}"


def _quantity(
    read: Callable[[str], Any], write: Callable[[Any], str], example: str, lowest_text: str, highest_text: str
) -> Kind[Any]:
    lowest, highest = read(lowest_text), read(highest_text)

    def parse(node: Node) -> Any:  # noqa: ANN401 - int for a size, float for a time
        if not isinstance(node, Scalar) or node.written in {Written.NOTHING, Written.FLAG}:
            raise wrong_type(node, f"a quantity with its unit, such as {example}")
        try:
            value = read(node.text)
        except QuantityError as error:
            raise BadNodeError(node, f"{quoted(node.text)}: {error}") from None
        if not lowest <= value <= highest:
            raise BadNodeError(node, f"must be from {lowest_text} to {highest_text}, not {node.text}")
        return value

    return Kind(parse, write)


def _list_of(node: Node, parse: Callable[[Scalar], str], wanted: str) -> tuple[str, ...]:
    if not isinstance(node, Sequence):
        raise wrong_type(node, wanted)
    found: list[str] = []
    for item in node.items:
        if not isinstance(item, Scalar):
            raise wrong_type(item, wanted)
        value = parse(item)
        if value in found:
            raise BadNodeError(item, f'"{value}" is listed twice')
        found.append(value)
    return tuple(found)


def _pattern(node: Scalar) -> str:
    if node.written is not Written.TEXT:
        raise wrong_type(node, "a unit pattern")
    try:
        return service_pattern(node.text)
    except ValueError as error:
        raise BadNodeError(node, f"{quoted(node.text)}: {error}") from None


def _gpu(node: Scalar) -> str:
    # By its text: YAML takes 1:3 and 07:00.0 for sexagesimal numbers.
    if node.written not in {Written.FLAG, Written.NOTHING} and _GPU.fullmatch(node.text):
        return node.text
    raise wrong_type(node, 'a GPU: an index such as 0 or "0:3", a UUID such as "GPU-…", or a PCI bus id')


def wrong_type(node: Node, wanted: str) -> BadNodeError:
    if isinstance(node, Scalar) and node.written is Written.NOTHING:
        return BadNodeError(node, f"has no value; give {wanted}, or remove the key to have its default")
    return BadNodeError(node, f"must be {wanted}, not {described(node)}")
