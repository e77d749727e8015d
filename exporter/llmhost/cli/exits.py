"""Exit codes, the same for every command (docs/commands.md)."""

from enum import IntEnum


class Exit(IntEnum):
    GOOD = 0
    FINDINGS = 1  # findings, or held
    WRONG_USE = 2  # wrong use or config
    CANNOT_TELL = 3
    OWN_FAULT = 4  # a bug of ours
