"""Sizes and names in words, the same wherever people read them. Pure."""

from typing import Final

GIB: Final = 1 << 30
LEAST_SHOWN_BYTES: Final = GIB / 20  # less rounds to 0.0 GiB
_LONGEST_COMMAND: Final = 40  # characters; a process chooses its own title


def gib(count: float) -> str:
    """Bytes in GiB with one decimal: 91.7."""
    return f"{count / GIB:.1f}"


def words(name: str) -> str:
    """Write a name in words: `not_started` is `not started`."""
    return name.replace("_", " ")


def shortened(command: str) -> str:
    """Cut a command line to 40 characters, and mark where."""
    return command if len(command) <= _LONGEST_COMMAND else f"{command[:_LONGEST_COMMAND]}..."
