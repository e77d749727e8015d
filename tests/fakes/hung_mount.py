"""A directory on a file system that does not answer: an automount point without a server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.needs import missing, needs_root

# The kernel asks by the pipe for what is looked up below, and its reader, which is in another process group, never
# answers (Documentation/filesystems/autofs.rst). It ends with its parent's end of the pipe.
_SERVES = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
reading, writing = os.pipe()
options = f"fd={writing},pgrp={os.getpgrp()},minproto=5,maxproto=5,indirect".encode()
failed = libc.mount(b"hung", sys.argv[1].encode(), b"autofs", 0, options)
print(ctypes.get_errno() if failed else 0, flush=True)
sys.stdin.read()
libc.umount2(sys.argv[1].encode(), 2)  # MNT_DETACH
os.close(writing)
os.close(reading)  # whoever waits gets ENOENT
"""


@pytest.fixture
def hung_mount(tmp_path: Path) -> Iterator[Path]:
    """Give a path in which each lookup waits until the end of the test."""
    needs_root()
    where = tmp_path / "hung"
    where.mkdir()
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVES, str(where)], stdin=-1, stdout=-1, text=True, process_group=0
    )
    assert server.stdout is not None
    error = int(server.stdout.readline())
    if error:
        server.communicate()
        missing(f"the right to mount an autofs ({os.strerror(error)})")
    yield where / "below"
    server.communicate()
