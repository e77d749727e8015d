"""Types of arguments: each takes the text of an argument, and raises an error that argparse prints."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from llmhost.config.quantities import parse_size, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from llmhost.model.ids import UnitId

T = TypeVar("T")

_RATIO = re.compile(r"[01]?\.[0-9]+|1")
_LONGEST_PAUSE_SECONDS = 3600.0


def _argument(read: Callable[[str], T]) -> Callable[[str], T]:
    """Print the text of a ValueError; argparse itself would not."""

    def argument(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return argument


size = _argument(parse_size)
time = _argument(parse_time)


@_argument
def directory_name(text: str) -> Path:
    """Take any name but none: that of an unset variable of a shell's would be the current directory."""
    if not text:
        raise ValueError("no directory is named")
    return Path(text)


@_argument
def file_name(text: str) -> Path:
    if not text:
        raise ValueError("no file is named")
    return Path(text)


@_argument
def directory(text: str) -> Path:
    path = directory_name(text)
    try:
        if path.is_dir():
            return path
    except OSError as error:
        raise ValueError(f"{text} cannot be looked at: {error.strerror}") from None
    raise ValueError(f"{text} is no directory")


@_argument
def gpus(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("names no GPU")
    return names


@_argument
def size_or_ratio(text: str) -> int | float:
    """Return bytes for a size, a float for a ratio."""
    if not _RATIO.fullmatch(text):
        return parse_size(text)
    ratio = float(text)
    if not 0 < ratio <= 1:
        raise ValueError("a ratio is above 0, and at most 1")
    return ratio


@_argument
def finite_time(text: str) -> float:
    seconds = parse_time(text)
    if not math.isfinite(seconds):
        raise ValueError("too long")
    return seconds


@_argument
def pause_time(text: str) -> float:
    seconds = parse_time(text)
    if not 1 <= seconds <= _LONGEST_PAUSE_SECONDS:
        raise ValueError("from 1s to 1h")
    return seconds


@_argument
def listen_address(text: str) -> str:
    from llmhost.model.listen import parse_listen  # noqa: PLC0415 - not for the guard

    return str(parse_listen(text))


@_argument
def unit_name(text: str) -> UnitId:
    from llmhost.config.unit_pattern import service_name  # noqa: PLC0415 - not for the guard
    from llmhost.model.ids import UnitId  # noqa: PLC0415

    return UnitId(service_name(text))


@_argument
def unit_instance(text: str) -> UnitId:
    unit = unit_name(text)
    prefix, at, instance = unit.name.partition("@")
    if at and instance == ".service":
        raise ValueError(f"{unit.name} is a template; name one of its instances, as {prefix}@a.service")
    return unit
