"""Requirements of tests: a missing one is a skip for people, and a failure in CI, where nothing may be missing."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / ".tools"  # where the Makefile unpacks Debian's Prometheus and Alertmanager

_SLOW_TOOLS = frozenset({"prometheus", "alertmanager", "chromium"})
quick = False  # set by the option --quick of pytest: tests as root and with slow tools are skipped


def missing(what: str) -> None:
    """Skip the running test; in CI, fail it: a skip there would hide that nothing was tested."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must have {what}")
    pytest.skip(f"needs {what}")


def needs(tool: str) -> str:
    """Path of a program, from the project's own .tools first, then PATH."""
    if quick and tool in _SLOW_TOOLS:
        pytest.skip(f"a quick run leaves out {tool}")
    found = shutil.which(tool, path=f"{TOOLS / 'usr/bin'}:{os.environ.get('PATH', os.defpath)}")
    if found is None:
        missing(f"the program {tool}")
        raise AssertionError
    return found


def needs_root() -> None:
    if quick:
        pytest.skip("a quick run leaves out tests as root")
    if os.geteuid() != 0:
        missing("root")


def run_by_hand(main: Callable[[], int]) -> int:
    """Run what is no test: what it needs and is missing is one line and exit 2."""
    try:
        return main()
    except (pytest.skip.Exception, pytest.fail.Exception) as why:
        sys.stderr.write(f"{why}\n")
        return 2
