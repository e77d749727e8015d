"""The lists of a config file whose items are mappings: names of segments, titles of processes, engines to be asked."""

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, TypeVar

from llmhost.config import kinds
from llmhost.config.kinds import Kind, Plain, nearest, wrong_type
from llmhost.config.schema import EngineConfig, ProcessTitles, SegmentNames
from llmhost.config.tree import BadNodeError, Mapping, Node, Scalar, Sequence, Written, described, quoted
from llmhost.config.unit_pattern import service_name
from llmhost.model.endpoint import parse_metrics_url
from llmhost.model.process import Role
from llmhost.model.segment import SegmentKind

T = TypeVar("T")

_LONGEST_TEXT: Final = 1024
_GLOB = re.compile(r"(?:[^\[]|\[!?[^\]]+\])+")
_ENGINE = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    kind: Kind[Any]
    required: bool = True


def segment_names() -> Kind[tuple[SegmentNames, ...]]:
    return _rows(
        SegmentNames,
        (_Column("pattern", _text("a glob over segment names", _segment_glob)), _Column("kind", _choice(SegmentKind))),
        'a list of names of segments, such as [{pattern: "acme_*", kind: torch}]',
        identity=lambda row: row.pattern,
        shown=lambda row: quoted(row.pattern),
    )


def process_titles() -> Kind[tuple[ProcessTitles, ...]]:
    return _rows(
        ProcessTitles,
        (
            _Column("pattern", _text("a glob over process titles or command lines", _glob)),
            _Column("engine", _text("the name of an engine", _engine)),
            _Column("role", _choice(Role)),
        ),
        'a list of titles of processes, such as [{pattern: "acme::Engine*", engine: acme, role: core}]',
        identity=lambda row: row.pattern,
        shown=lambda row: quoted(row.pattern),
    )


def engines() -> Kind[tuple[EngineConfig, ...]]:
    """One server of a unit is one scheme, host and port: that is what tells its series apart."""
    return _rows(
        EngineConfig,
        (
            _Column("unit", _text("the name of a service", service_name)),
            _Column("url", _text("a URL", _url, quotes=False)),
            _Column("token_file", _path(), required=False),
        ),
        'a list of engines, such as [{unit: vllm-a, url: "http://127.0.0.1:8000/metrics"}]',
        identity=lambda row: (row.unit, parse_metrics_url(row.url).endpoint),
        shown=lambda row: f"{parse_metrics_url(row.url).endpoint} of {row.unit}",
    )


def _rows(
    make: Callable[..., T],
    columns: tuple[_Column, ...],
    wanted: str,
    *,
    identity: Callable[[T], Hashable],
    shown: Callable[[T], str],
) -> Kind[tuple[T, ...]]:
    def parse(node: Node) -> tuple[T, ...]:
        if not isinstance(node, Sequence):
            raise wrong_type(node, wanted)
        lines: dict[Hashable, int] = {}
        found: list[T] = []
        for item in node.items:
            row = make(**_row(item, columns))
            if identity(row) in lines:
                raise BadNodeError(item, f"{shown(row)} is given twice, first on line {lines[identity(row)]}")
            lines[identity(row)] = item.line
            found.append(row)
        return tuple(found)

    def dump(rows: tuple[T, ...]) -> Plain:
        return [
            {c.name: c.kind.dump(getattr(row, c.name)) for c in columns if getattr(row, c.name) is not None}
            for row in rows
        ]

    return Kind(parse, dump)


def _row(item: Node, columns: tuple[_Column, ...]) -> dict[str, Any]:
    by_name = {column.name: column for column in columns}
    if not isinstance(item, Mapping):
        raise BadNodeError(item, f"must be a mapping with {', '.join(by_name)}, not {described(item)}")
    values: dict[str, Any] = {}
    for name, node in item.entries:
        if name.text not in by_name:
            raise BadNodeError(name, f"unknown key; {nearest(name.text, by_name)}")
        values[name.text] = by_name[name.text].kind.parse(node)
    missing = [column.name for column in columns if column.required and column.name not in values]
    if missing:
        raise BadNodeError(item, f"has no {' and no '.join(missing)}")
    return values


def _choice(enum: type[Any]) -> Kind[Any]:
    return kinds.choice(enum)


def _text(wanted: str, check: Callable[[str], str], *, quotes: bool = True) -> Kind[str]:
    """Text that `check` gives back as it is to be kept, or refuses with ValueError.

    Without `quotes` a message does not repeat the text: there may be a password in it.
    """

    def parse(node: Node) -> str:
        if not isinstance(node, Scalar) or node.written is not Written.TEXT:
            raise wrong_type(node, wanted)
        try:
            if len(node.text) > _LONGEST_TEXT or not node.text.isprintable():
                raise ValueError(f"must be at most {_LONGEST_TEXT} characters, all of them printable")  # noqa: TRY301
            return check(node.text)
        except ValueError as error:
            raise BadNodeError(node, f"{quoted(node.text)}: {error}" if quotes else str(error)) from None

    return Kind(parse, str)


def _path() -> Kind[PurePosixPath]:
    text = _text("the path of a file", _absolute)
    return Kind(lambda node: PurePosixPath(text.parse(node)), str)


def _absolute(text: str) -> str:
    if not text.startswith("/") or text.endswith("/"):
        raise ValueError('the path of a file begins with "/" and does not end with it')
    return text


def _glob(text: str) -> str:
    if "[^" in text:
        raise ValueError('a set is negated with "!", as in "[!abc]"')
    if not _GLOB.fullmatch(text):
        raise ValueError('a bad glob: it is not empty, and "[" opens a set such as "[ab]"; "[[]" is the character')
    return text


def _segment_glob(text: str) -> str:
    if "/" in text:
        raise ValueError('matched are names, without directories: there is no "/" in them')
    return _glob(text)


def _engine(text: str) -> str:
    if not _ENGINE.fullmatch(text):
        raise ValueError("an engine's name is of a-z, 0-9, _, . and -, and at most 64 characters")
    return text


def _url(text: str) -> str:
    parse_metrics_url(text)
    return text
