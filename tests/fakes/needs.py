"""What a test needs from the machine: a skip for people who lack it, a failure in CI, where nothing may be missing."""

import os
import shutil
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / ".tools"  # where the Makefile unpacks Debian's Prometheus and Alertmanager


def missing(what: str) -> None:
    """Skip the running test; in CI, fail it: a skip there would hide that nothing was tested."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must have {what}")
    pytest.skip(f"needs {what}")


def needs(tool: str) -> str:
    """Path of a program, from the project's own .tools first, then PATH."""
    found = shutil.which(tool, path=f"{TOOLS / 'usr/bin'}:{os.environ.get('PATH', os.defpath)}")
    if found is None:
        missing(f"the program {tool}")
        raise AssertionError
    return found


def needs_root() -> None:
    if os.geteuid() != 0:
        missing("root")
