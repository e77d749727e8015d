"""A directory on a file system that does not answer: an automount point without a server."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import pytest
from tests.fakes.needs import missing, needs_root

# The kernel asks by the pipe for what is looked up below, and its reader, which is in another process group, never
# answers (Documentation/filesystems/autofs.rst). It ends with its parent's end of the pipe.
_SERVES = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
reading, writing = os.pipe()
os.setpgid(0, 0)  # of its own PID namespace
options = f"fd={writing},pgrp={os.getpgrp()},minproto=5,maxproto=5,indirect".encode()
failed = libc.mount(b"hung", sys.argv[1].encode(), b"autofs", 0, options)
print(ctypes.get_errno() if failed else 0, flush=True)
sys.stdin.read()
libc.umount2(sys.argv[1].encode(), 2)  # MNT_DETACH
os.close(writing)
os.close(reading)  # whoever waits gets ENOENT
"""


class HungMount:
    """Until the end of its `with`, each lookup below `path` waits; then the mount is gone."""

    def __init__(self, path: Path, prefix: Sequence[str] = ()) -> None:
        """`prefix` is a command that enters other namespaces; `path` is the folder as it is there."""
        self.path = path / "below"
        self._command = [*prefix, sys.executable, "-c", _SERVES, str(path)]

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(self._command, stdin=-1, stdout=-1, text=True, process_group=0)
        assert self._server.stdout is not None
        error = int(self._server.stdout.readline())
        if error:
            self._server.communicate()
            missing(f"the right to mount an autofs ({os.strerror(error)})")
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.communicate()


@pytest.fixture
def hung_mount(tmp_path: Path) -> Iterator[Path]:
    """Give a path in which each lookup waits until the end of the test."""
    needs_root()
    (tmp_path / "hung").mkdir()
    with HungMount(tmp_path / "hung") as mount:
        yield mount.path
