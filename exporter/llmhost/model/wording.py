"""Sizes and names in words, the same wherever people read them. Pure."""

from collections.abc import Iterable
from typing import Final

GIB: Final = 1 << 30
LEAST_SHOWN_BYTES: Final = GIB / 20  # less rounds to 0.0 GiB
_LONGEST_COMMAND: Final = 40  # characters; a process chooses its own title
_TWO_DIGITS: Final = 10  # from there on, a decimal adds nothing


def gib(count: float) -> str:
    """Bytes in GiB with one decimal: 91.7."""
    return f"{count / GIB:.1f}"


def words(name: str) -> str:
    """Write a name in words: `not_started` is `not started`."""
    return name.replace("_", " ")


def shortened(command: str) -> str:
    """Cut a command line to 40 characters, and mark where."""
    return command if len(command) <= _LONGEST_COMMAND else f"{command[:_LONGEST_COMMAND]}..."


def size(count: float) -> str:
    """Size with the unit that suits it: 512 B, 16 KiB, 1.2 GiB."""
    for unit, name in ((1 << 40, "TiB"), (GIB, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            value = count / unit
            return f"{value:.1f} {name}" if value < _TWO_DIGITS else f"{value:.0f} {name}"
    return f"{count:.0f} B"


def span(seconds: float) -> str:
    """Length of time, short enough for a column: 0.4 s, 34 s, 12 min, 5 h, 3 d."""
    if seconds < _TWO_DIGITS:
        return f"{max(0.0, seconds):.1f} s"
    for unit, name, below in ((1, "s", 120), (60, "min", 120), (3600, "h", 48)):
        if seconds / unit < below:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:.0f} d"


def count(number: int, singular: str, plural: str = "") -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def ranges(indexes: Iterable[str]) -> str:
    """Name GPUs by their indexes, shortly: 0-3, 5, 0:3."""
    found = sorted(set(indexes), key=lambda index: [int(part) if part.isdigit() else -1 for part in index.split(":")])
    runs: list[list[str]] = []
    for index in found:
        if runs and index.isdigit() and runs[-1][-1].isdigit() and int(runs[-1][-1]) == int(index) - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(run)  # noqa: PLR2004 - 0, 1 is no longer than 0-1
        for run in runs
    )
