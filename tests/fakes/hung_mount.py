"""File systems that do not answer: an automount point without a server, and FUSE as any user may mount it."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def hung_fuse(where: Path) -> Iterator[None]:
    """Mount on a directory or a file what a user's fusermount(1) does, with a server that never answers a request."""
    needs_root()
    if not Path("/dev/fuse").exists():
        missing("/dev/fuse")
    mode = "40000" if where.is_dir() else "100000"
    libc = ctypes.CDLL(None, use_errno=True)
    server = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={server},rootmode={mode},user_id=65534,group_id=65534,allow_other"
    try:
        if libc.mount(b"hung", os.fsencode(where), b"fuse", 0, options.encode()):
            missing(f"the right to mount FUSE ({os.strerror(ctypes.get_errno())})")
        try:
            yield
        finally:
            libc.umount2(os.fsencode(where), 2)  # MNT_DETACH
    finally:
        os.close(server)  # whoever waits gets ENOTCONN
