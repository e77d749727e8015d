"""A YAML file as nodes: text, lists and mappings, each with its path and line.

Nodes are made from PyYAML's events, because its loaders keep the last of two equal keys and type `on` and `1:30`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import yaml

MOST_NODES: Final = 10_000
DEEPEST: Final = 16
LONGEST_SHOWN: Final = 60  # characters of a value or key in a message

Value: TypeAlias = "str | list[Node] | dict[str, Node] | None"  # None: nothing, `null` or `~`, without quotes


@dataclass(frozen=True, slots=True)
class Node:
    path: str  # "units.patterns[0]"; "" is the whole file
    line: int  # of its key, or of the item of a list
    value: Value = None


class BadNodeError(Exception):
    """A mistake in the file; str() is `KEY: what is wrong`."""

    def __init__(self, node: Node, message: str) -> None:
        super().__init__(f"{node.path}: {message}" if node.path else message)
        self.line = node.line


def compose(text: str) -> Node:
    """Make the nodes of a file; an empty file is a node without value.

    Raises BadNodeError: no YAML, too large or too deep, a duplicate key, an alias, a tag, a second document.
    """
    events = _events(text)
    root = None
    for event in events:
        if root and isinstance(event, yaml.DocumentStartEvent):
            raise BadNodeError(
                Node("", _line(event)), "a second document; a config file is one document, without a further ---"
            )
        if isinstance(event, yaml.NodeEvent):
            root = _node(events, event, "", _line(event))
    return root or Node("", 1)


def quoted(text: str) -> str:
    """`text` in quotes, on one line, harmless to a terminal, and cut if long."""
    shown = printable(text)
    return f'"{shown[:LONGEST_SHOWN]}…"' if len(shown) > LONGEST_SHOWN else f'"{shown}"'


def printable(text: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _events(text: str) -> Iterator[yaml.Event]:
    """Parse a file no larger than MOST_NODES and no deeper than DEEPEST."""
    try:
        loader = yaml.BaseLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = ascii(chr(int(error.character)))
        raise BadNodeError(Node("", line), f"the character {character} cannot be in YAML, which is UTF-8") from None
    nodes = depth = 0
    try:
        while event := loader.get_event():  # type: ignore[no-untyped-call]
            nodes += isinstance(event, yaml.NodeEvent)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if nodes > MOST_NODES:
                raise BadNodeError(Node("", _line(event)), f"more than {MOST_NODES} values; is this the right file?")
            if depth > DEEPEST:
                raise BadNodeError(Node("", _line(event)), f"nested deeper than {DEEPEST} levels")
            yield event
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f" (column {mark.column + 1})" if mark else ""
        problem = f"{error.context}: {error.problem}" if error.context else error.problem
        raise BadNodeError(Node("", mark.line + 1 if mark else 1), f"invalid YAML{at}: {problem}") from None
    except (ValueError, OverflowError):  # PyYAML's own, on "\Uffffffff" and on absurd %YAML versions
        raise BadNodeError(Node("", loader.line + 1), "invalid YAML: an impossible escape or directive") from None


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _node(events: Iterator[yaml.Event], start: yaml.Event, path: str, line: int) -> Node:
    """Make the node that starts with an event."""
    match start:
        case yaml.ScalarEvent(tag=None, value=text):
            nothing = start.implicit[0] and text in {"", "~", "null", "Null", "NULL"}
            return Node(path, line, None if nothing else text)
        case yaml.SequenceStartEvent(tag=None):
            items: list[Node] = []
            while not isinstance(event := next(events), yaml.SequenceEndEvent):
                items.append(_node(events, event, f"{path}[{len(items)}]", _line(event)))
            return Node(path, line, items)
        case yaml.MappingStartEvent(tag=None):
            entries: dict[str, Node] = {}
            while not isinstance(event := next(events), yaml.MappingEndEvent):
                key = _node(events, event, path, _line(event))
                if not isinstance(key.value, str):
                    raise BadNodeError(key, "a key must be text")
                entry = Node(_joined(path, key.value), key.line)
                if key.value in entries:
                    raise BadNodeError(entry, f"duplicate key, first on line {entries[key.value].line}")
                entries[key.value] = _node(events, next(events), entry.path, entry.line)
            return Node(path, line, entries)
        case _:
            raise BadNodeError(
                Node(path, line), 'no aliases and no tags; put text that starts with "*" or "!" in quotes'
            )


def _joined(path: str, key: str) -> str:
    shown = key if key.replace("_", "").isalnum() and len(key) <= LONGEST_SHOWN else quoted(key)
    return f"{path}.{shown}" if path else shown
