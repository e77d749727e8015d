"""A test's directory that other users may enter: pytest makes its own, and those above them, for its user alone."""

import os
import tempfile
from pathlib import Path

_TO_ALL = 0o755


def open_to_all(path: Path) -> None:
    """Let every user into a directory of pytest's, and into those above it.

    Each start of pytest closes the topmost, which all its runs have in common, so that it may be closed again.
    """
    top = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir()).resolve()
    for directory in (path, *path.parents)[: len(path.relative_to(top).parts)]:
        directory.chmod(_TO_ALL)
