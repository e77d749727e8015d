"""A config file as it was written: every value with its text, its line and its key path, before it means anything."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

LONGEST_SHOWN = 60  # characters of a value quoted in a message


class Written(StrEnum):
    """What YAML 1.1 takes an unquoted scalar for. `on` is a flag, `1:30` is the number 90, `2026-01-01` is a date."""

    TEXT = "text"
    WHOLE = "whole number"
    NUMBER = "number"
    FLAG = "flag"
    NOTHING = "nothing"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    path: str
    line: int
    text: str  # as it stands in the file, quotes removed
    written: Written


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    path: str
    line: int
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    path: str
    line: int
    entries: tuple[tuple[Scalar, "Node"], ...]  # in the order of the file; no key twice


Node: TypeAlias = Scalar | Sequence | Mapping


class BadNodeError(Exception):
    """What is wrong with one value; says where it stands."""

    def __init__(self, node: Node, message: str) -> None:
        super().__init__(f"{node.path}: {message}" if node.path else message)
        self.line = node.line


def quoted(text: str) -> str:
    """`text` in quotes, on one line, harmless to a terminal, and cut if long."""
    shown = printable(text)
    return f'"{shown[:LONGEST_SHOWN]}…"' if len(shown) > LONGEST_SHOWN else f'"{shown}"'


def printable(text: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def described(node: Node) -> str:
    """Say what stands there, for a message: `a list`, `"vllm"`, `the number 90`."""
    match node:
        case Sequence():
            return "a list"
        case Mapping():
            return "a mapping"
        case Scalar(written=Written.NOTHING):
            return "nothing"
        case Scalar(written=Written.TEXT):
            return quoted(node.text)
        case Scalar(written=Written.FLAG):
            return f"{printable(node.text)}, which YAML takes for true or false"
        case Scalar(written=Written.WHOLE | Written.NUMBER):
            return f"the number {printable(node.text)[:LONGEST_SHOWN]}"
        case Scalar():
            return f"{quoted(node.text)}, which YAML takes for something else than text; put it in quotes"
