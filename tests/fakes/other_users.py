"""Another user, without privilege: a directory that it may enter, and llmhost where it can read it.

pytest's directories are for its own user. So may be the checkout and its Python: root's home, where root clones, is.
"""

import atexit
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.fakes.needs import missing, needs, needs_root

NOBODY = 65534
DEPENDENCIES = ("prometheus_client", "pynvml.py", "dbus_next", "psutil", "yaml")
_EXPORTER = Path(__file__).parents[2] / "exporter"
_FOR_ALL = "/tmp"  # TMPDIR may be for one user
_NEW_ENOUGH = "import sys, venv; sys.exit(sys.version_info < (3, 11))"


def as_nobody(*options: str) -> tuple[str, ...]:
    """Give what stands before a command that runs as that user; options are setpriv's."""
    needs_root()
    return (needs("setpriv"), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *options, "--")


@pytest.fixture
def open_path() -> Iterator[Path]:
    """Give a directory that every user may enter. No other run of pytest closes it."""
    with tempfile.TemporaryDirectory(prefix="llmhost-test-", dir=_FOR_ALL) as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


@cache
def llmhost_for_all() -> tuple[str, ...]:
    """Give the command `llmhost` as every user can start it: a copy of this checkout's, in a virtualenv of its own."""
    folder = tempfile.mkdtemp(prefix="llmhost-for-all-", dir=_FOR_ALL)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run([_python(), "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = Path(folder).glob("lib/python3*/site-packages")
    here = Path(sysconfig.get_paths()["purelib"])
    subprocess.run(["cp", "-r", _EXPORTER / "llmhost", *(here / name for name in DEPENDENCIES), packages], check=True)
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True)  # whatever our umask is
    return (f"{folder}/bin/python", "-m", "llmhost")


def _python() -> str:
    """Find a Python that every user can run: ours, else the system's."""
    for python in (f"{sys.base_prefix}/bin/python3.{sys.version_info.minor}", "/usr/bin/python3"):
        try:
            run = subprocess.run([python, "-c", _NEW_ENOUGH], check=False, user=NOBODY, group=NOBODY, extra_groups=[])
        except OSError:
            continue
        if run.returncode == 0:
            return os.path.realpath(python)
    missing("a Python of 3.11 or newer that other users can run, such as /usr/bin/python3")
    raise AssertionError
