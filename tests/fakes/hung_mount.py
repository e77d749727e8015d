"""File systems that do not answer: an automount point without a server, and FUSE as any user may mount it."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from tests.fakes.needs import missing, needs_root

# The kernel asks by the pipe for what is looked up below, and its reader, which is in another process group, answers
# only at the end of its stdin (Documentation/filesystems/autofs.rst): ENOENT, or with what it has mounted by then.
_SERVES = """
import ctypes, fcntl, os, struct, sys
READY, CATATONIC = 0x9360, 0x9362  # linux/auto_fs.h: AUTOFS_IOC_*; all that waits for the second gets ENOENT
BIND, DETACH = 4096, 2
libc = ctypes.CDLL(None, use_errno=True)
reading, writing = os.pipe()
os.setpgid(0, 0)  # of its own PID namespace
options = f"fd={writing},pgrp={os.getpgrp()},minproto=5,maxproto=5,indirect".encode()
where, late = sys.argv[1:]
failed = libc.mount(b"hung", where.encode(), b"autofs", 0, options)
print(ctypes.get_errno() if failed else 0, flush=True)
sys.stdin.read()
root = os.open(where, os.O_RDONLY)
if late:
    os.mkdir(f"{where}/below")
    assert libc.mount(late.encode(), f"{where}/below".encode(), None, BIND, None) == 0
    (token,) = struct.unpack_from("=8xI", os.read(reading, 4096))  # one for all that wait for the same name
    fcntl.ioctl(root, READY, token)
else:
    fcntl.ioctl(root, CATATONIC)
    libc.umount2(where.encode(), DETACH)
"""


class HungMount:
    """Until the end of its `with`, each lookup below `path` waits. Then there is nothing there, or what comes late."""

    def __init__(self, folder: Path, *, late: Path | None = None, prefix: Sequence[str] = ()) -> None:
        """`prefix` is a command that enters other namespaces; `folder` and `late` are folders there."""
        self.path = folder / "below"
        self._command = [*prefix, sys.executable, "-c", _SERVES, str(folder), str(late or "")]

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
        assert self._server.returncode == 0


@pytest.fixture
def hung_mount(tmp_path: Path) -> Iterator[Path]:
    """Give a path in which each lookup waits until the end of the test."""
    needs_root()
    (tmp_path / "hung").mkdir()
    with HungMount(tmp_path / "hung") as mount:
        yield mount.path


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
