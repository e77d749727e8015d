"""Read the config file, strictly: the first mistake is an error of one line that says where it is and what was meant.

PyYAML alone would not do: it lets the last of two equal keys win, and reads `on` as true and `1:30` as 90. So the
values are taken as they were written (yaml.compose), never as YAML would type them.
"""

import stat
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import yaml

from llmhost.config.keys import KEYS, SECTIONS
from llmhost.config.kinds import Plain, nearest
from llmhost.config.paths import DEFAULT_CONFIG
from llmhost.config.schema import Config
from llmhost.config.tree import BadNodeError, Mapping, Node, Scalar, Sequence, Written, described, printable, quoted

LARGEST_FILE_BYTES: Final = 1 << 20
MOST_NODES: Final = 10_000  # after aliases are followed, which may multiply what is written
DEEPEST: Final = 16
LONGEST_BARE_KEY: Final = 40

_TAG = "tag:yaml.org,2002:"
_WRITTEN = {
    f"{_TAG}str": Written.TEXT,
    f"{_TAG}int": Written.WHOLE,
    f"{_TAG}float": Written.NUMBER,
    f"{_TAG}bool": Written.FLAG,
    f"{_TAG}null": Written.NOTHING,
    f"{_TAG}timestamp": Written.OTHER,
    f"{_TAG}value": Written.OTHER,
}


class ConfigError(Exception):
    """The config cannot be used; str() is one line, fit for a terminal: `FILE:LINE: KEY: what is wrong`."""

    def __init__(self, name: str, line: int | None, message: str) -> None:
        where = name if line is None else f"{name}:{line}"
        super().__init__(printable(f"{where}: {message}"))


# Pipes in here are a shell's `<(…)` and `|`.
_OPEN_ALREADY = {("/", "dev"), ("/", "proc")}


def load(path: Path | None, *, default: Path = DEFAULT_CONFIG) -> Config:
    """Read the config in `path`; with None the one in `default`, and if there is no such file, the defaults.

    Raises ConfigError.
    """
    file = default if path is None else path
    try:
        if stat.S_ISFIFO(file.stat().st_mode) and file.parts[:2] not in _OPEN_ALREADY:
            raise ConfigError(str(file), None, "is a pipe, not a file")  # to open it could take for ever
        with file.open("rb") as opened:
            data = opened.read(LARGEST_FILE_BYTES + 1)
    except FileNotFoundError:
        if path is None:
            return Config()
        raise ConfigError(str(file), None, "no such file") from None
    except IsADirectoryError:
        raise ConfigError(str(file), None, "is a directory, not a file") from None
    except OSError as error:
        raise ConfigError(str(file), None, f"cannot read it: {error.strerror or error}") from None
    except ValueError:  # a NUL in the path
        raise ConfigError(str(file), None, "no such file") from None
    if len(data) > LARGEST_FILE_BYTES:
        raise ConfigError(str(file), None, f"larger than {LARGEST_FILE_BYTES >> 20} MiB; is this the right file?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(str(file), line, "not UTF-8; save the file as UTF-8") from None
    return parse(text, name=str(file))


def parse(text: str, *, name: str) -> Config:
    """Read the config in `text`; `name` is what messages call it. Empty text is the defaults.

    Raises ConfigError.
    """
    try:
        root = _compose(text)
        return Config() if root is None else _config(_tree(root))
    except BadNodeError as error:
        raise ConfigError(name, error.line, str(error)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(name, line, f"the character {chr(int(error.character))!a} cannot be in YAML") from None
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(name, error) from None
    except (ValueError, OverflowError):  # PyYAML's own, on "\Uffffffff" and on absurd %YAML versions
        raise ConfigError(name, None, "invalid YAML: an impossible escape or directive") from None


def dump(config: Config) -> str:
    """Write all of a config as a file that parse() reads back to the same: every key, quantities with their units."""
    tree: dict[str, Plain] = {}
    for key in KEYS:
        value = key.kind.dump(attrgetter(key.attribute)(config))
        section = tree.setdefault(key.section, {}) if key.name else None
        if isinstance(section, dict):
            section[key.name] = value
        else:
            tree[key.section] = value
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=1000)


def _config(root: Node) -> Config:
    if isinstance(root, Scalar) and root.written is Written.NOTHING:
        return Config()
    if not isinstance(root, Mapping):
        raise BadNodeError(root, f"the top must be a mapping with {', '.join(SECTIONS)}, not {described(root)}")
    return reduce(_with, _values(root), Config())


def _values(root: Mapping) -> Iterator[tuple[str, Any]]:
    """(attribute, value) of every key that is given."""
    by_path = {key.path: key for key in KEYS}
    for section, content in root.entries:
        if section.text not in SECTIONS:
            raise _unknown(section, SECTIONS)
        if isinstance(content, Scalar) and content.written is Written.NOTHING:
            continue  # a section whose keys are all commented out
        if section.text in by_path:
            yield by_path[section.text].attribute, by_path[section.text].kind.parse(content)
            continue
        names = [key.name for key in KEYS if key.section == section.text]
        if not isinstance(content, Mapping):
            raise BadNodeError(content, f"must be a mapping with {', '.join(names)}, not {described(content)}")
        for name, node in content.entries:
            key = by_path.get(f"{section.text}.{name.text}")
            if key is None:
                raise _unknown(name, names)
            yield key.attribute, key.kind.parse(node)


def _with(config: Config, item: tuple[str, Any]) -> Config:
    attribute, value = item
    outer, _, inner = attribute.rpartition(".")
    if not outer:
        return replace(config, **{inner: value})
    return replace(config, **{outer: replace(getattr(config, outer), **{inner: value})})


def _unknown(key: Scalar, valid: tuple[str, ...] | list[str]) -> BadNodeError:
    if key.text == "<<":
        return BadNodeError(key, "merge keys are not supported; write the keys out")
    elsewhere = [k.path for k in KEYS if k.name == key.text != ""] or [s for s in SECTIONS if s == key.text]
    return BadNodeError(
        key, f"unknown key; {nearest(elsewhere[0], elsewhere) if elsewhere else nearest(key.text, valid)}"
    )


def _syntax_error(name: str, error: yaml.MarkedYAMLError) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line = None if mark is None else mark.line + 1
    column = "" if mark is None else f" (column {mark.column + 1})"
    problem = error.problem or str(error)
    if error.context == "expected a single document in the stream":
        return ConfigError(name, line, "a second document; a config file is one document, without a further ---")
    if error.context == "while scanning an alias":
        return ConfigError(name, line, f'invalid YAML{column}: put a value that starts with "*" in quotes')
    if error.context == "while parsing a flow node" and "':'" in problem:
        return ConfigError(name, line, f'invalid YAML{column}: put text that starts with "[" in quotes')
    if "'\\t'" in problem:
        return ConfigError(name, line, f"invalid YAML{column}: a tab; indent with spaces")
    return ConfigError(name, line, f"invalid YAML{column}: {' '.join(problem.split())}")


class _Loader(yaml.SafeLoader):
    """Composes nodes, no deeper than DEEPEST and no more than MOST_NODES: PyYAML recurses once per level."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        self._nodes += 1
        line = int(self.peek_event().start_mark.line) + 1  # type: ignore[no-untyped-call] # not in types-PyYAML
        if self._depth > DEEPEST:
            raise _at(line, f"nested deeper than {DEEPEST} levels")
        if self._nodes > MOST_NODES:
            raise _at(line, f"more than {MOST_NODES} values; is this the right file?")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _compose(text: str) -> yaml.Node | None:
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _tree(root: yaml.Node) -> Node:
    left = MOST_NODES

    def converted(node: yaml.Node, path: str, depth: int) -> Node:
        nonlocal left
        left -= 1
        line = node.start_mark.line + 1
        if depth > DEEPEST or left < 0:
            raise _at(line, "aliases make this too deep or too large")
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            items = tuple(converted(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(node.value))
            return Sequence(path=path, line=line, items=items)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return Mapping(path=path, line=line, entries=tuple(entries(node, path, depth + 1)))
        written = _WRITTEN.get(node.tag)
        if not isinstance(node, yaml.ScalarNode) or written is None:
            raise _at(line, f"the tag {printable(node.tag.replace(_TAG, '!!'))} is not supported", path)
        return Scalar(path=path, line=line, text=node.value, written=written)

    def entries(mapping: yaml.MappingNode, path: str, depth: int) -> Iterator[tuple[Scalar, Node]]:
        lines: dict[str, int] = {}
        for key_node, value_node in mapping.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise _at(line, "a key must be text, not a list or a mapping", path)
            text = key_node.value
            key_path = _joined(path, text)
            if text in lines:
                raise _at(line, f"duplicate key, first on line {lines[text]}", key_path)
            lines[text] = line
            # A key is a name, whatever YAML would type it as (`on: …`).
            yield (
                Scalar(path=key_path, line=line, text=text, written=Written.TEXT),
                converted(value_node, key_path, depth),
            )

    return converted(root, "", 1)


def _joined(path: str, key: str) -> str:
    shown = printable(key) if key.replace("_", "").isalnum() and len(key) <= LONGEST_BARE_KEY else quoted(key)
    return f"{path}.{shown}" if path else shown


def _at(line: int, message: str, path: str = "") -> BadNodeError:
    return BadNodeError(Scalar(path=path, line=line, text="", written=Written.OTHER), message)
