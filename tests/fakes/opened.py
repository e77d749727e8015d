"""A test's directory that other users may enter: pytest makes its own, and those above them, for its user alone."""

from itertools import takewhile
from pathlib import Path

_TO_ALL = 0o755


def open_to_all(path: Path) -> None:
    """Let every user into a directory, and into those above it up to one that is open already, as /tmp is."""
    closed = takewhile(lambda one: one.stat().st_mode & _TO_ALL != _TO_ALL, (path, *path.parents))
    for one in reversed(list(closed)):  # an open one never lies in one that is still closed
        one.chmod(_TO_ALL)
