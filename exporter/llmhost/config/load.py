"""Read the config file, strictly: the first mistake is an error of one line, with its place and what was meant."""

from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import yaml

from llmhost.config.keys import KEYS
from llmhost.config.nodes import BadNodeError, Node, compose, printable
from llmhost.config.paths import DEFAULT_CONFIG
from llmhost.config.schema import Config
from llmhost.config.value_types import members

LARGEST_FILE_BYTES: Final = 1 << 20

_SECTIONS = tuple(dict.fromkeys(key.section for key in KEYS))
_ELSEWHERE = {section: section for section in _SECTIONS} | {key.name: key.path for key in KEYS if key.name}


class ConfigError(Exception):
    """The config cannot be used; str() is one line, fit for a terminal: `FILE:LINE: KEY: what is wrong`."""

    def __init__(self, name: str, line: int | None, message: str) -> None:
        where = name if line is None else f"{name}:{line}"
        super().__init__(printable(f"{where}: {message}"))


class UnreadableConfigError(ConfigError):
    """There is no such file, or it cannot be read."""


def load_or_defaults(path: Path | None) -> tuple[Config, str]:
    """Read the config for a command that only shows; where it has a mistake, the defaults, and what the mistake is.

    Raises UnreadableConfigError for a `path` that cannot be read: that is a mistake of the command line.
    """
    try:
        return load(path), ""
    except ConfigError as error:
        if path is not None and isinstance(error, UnreadableConfigError):
            raise
        return Config(), str(error)


def load(path: Path | None, *, default: Path = DEFAULT_CONFIG) -> Config:
    """Read the config in `path`; with None the one in `default`, and if there is no such file, the defaults.

    Raises ConfigError.
    """
    file = default if path is None else path
    try:
        # To open a named pipe could take for ever; those of a shell's `<(…)` and `|` are open already.
        if file.is_fifo() and not str(file).startswith(("/dev/", "/proc/")):
            raise UnreadableConfigError(str(file), None, "is a pipe, not a file")
        with file.open("rb") as opened:
            data = opened.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        if path is None and isinstance(error, FileNotFoundError):
            return Config()
        raise UnreadableConfigError(str(file), None, f"cannot read it: {error.strerror or error}") from None
    if len(data) > LARGEST_FILE_BYTES:
        raise ConfigError(str(file), None, f"larger than {LARGEST_FILE_BYTES >> 20} MiB; is this the right file?")
    # What is not UTF-8 becomes a character that YAML refuses.
    return parse(data.decode("utf-8-sig", errors="surrogateescape"), name=str(file))


def parse(text: str, *, name: str) -> Config:
    """Read the config in `text`; `name` is the file in messages. Empty text is the defaults.

    Raises ConfigError.
    """
    try:
        return _config(compose(text))
    except BadNodeError as error:
        raise ConfigError(name, error.line, str(error)) from None


def dump(config: Config) -> str:
    """Write all of a config as a file that parse() reads back to the same: every key, quantities with their units."""
    sections: dict[str, Any] = {}
    for key in KEYS:
        shown = key.type.show(attrgetter(key.attribute)(config))
        if key.name:
            sections.setdefault(key.section, {})[key.name] = shown
        else:
            sections[key.section] = shown
    return yaml.safe_dump(sections, sort_keys=False, allow_unicode=True, width=1000)


def _config(root: Node) -> Config:
    config = Config()
    if root.value is None:
        return config
    for section, content in members(root, _SECTIONS, elsewhere=_ELSEWHERE).items():
        if content.value is None:
            continue  # all its keys are commented out
        keys = {key.name: key for key in KEYS if key.section == section}
        nodes = {"": content} if "" in keys else members(content, keys, elsewhere=_ELSEWHERE)
        for name, node in nodes.items():
            config = _with(config, keys[name].attribute, keys[name].type.parse(node))
    return config


def _with(config: Config, attribute: str, value: object) -> Config:
    outer, _, inner = attribute.rpartition(".")
    changes: dict[str, Any] = {inner: value}
    return replace(config, **({outer: replace(getattr(config, outer), **changes)} if outer else changes))
