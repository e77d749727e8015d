"""Files in the run directory, which several processes write at the same time."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from llmhost.runtime.trusted_path import trusted_owners


def make_directory(folder: Path) -> None:
    """Make it and its parents, readable by all and writable by us alone, whatever the umask is."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    for path in missing:
        path.chmod(0o755)


@contextlib.contextmanager
def trusted_directory(folder: Path) -> Iterator[int]:
    """Open the folder; OSError where other users might change what is in it."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(directory)
        if found.st_uid not in trusted_owners():
            raise PermissionError(1, "the folder is neither root's nor of this user")
        if found.st_mode & (0o002 if found.st_gid in {0, os.getegid()} else 0o022):
            raise PermissionError(1, "others can write to the folder")
        yield directory
    finally:
        os.close(directory)


def replace_in(directory: int, name: str, content: bytes) -> None:
    """Give a file of an open directory this content, readable by all, or leave it as it is and raise OSError."""
    new = f".new-{os.getpid()}"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new, dir_fd=directory)
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=directory)
        try:
            os.fchmod(file, 0o644)  # whatever the umask is: the exporter may be another user
            os.write(file, content)
        finally:
            os.close(file)
        os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=directory)
        raise
