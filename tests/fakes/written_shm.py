"""The shared memory of a written host: a tmpfs of its own, and the written processes' holdings (root only)."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fakes.needs import needs, needs_root

_DEFAULT_MIB = 1024
_INODES = 100_000


@contextlib.contextmanager
def mounted(shm: dict[str, Any] | None, directory: Path) -> Iterator[Path]:
    """Mount a tmpfs with the written files; `deleted_mib` of it is of files that are deleted and held."""
    if shm is None:
        yield Path("/dev/shm")
        return
    needs_root()
    root = directory / "shm"
    root.mkdir()
    options = f"size={shm.get('size_mib', _DEFAULT_MIB)}m,nr_inodes={_INODES}"
    subprocess.run([needs("mount"), "-t", "tmpfs", "-o", options, "tmpfs", str(root)], check=True)
    hidden = -1
    try:
        for file in shm.get("files", []):
            for name in names(file):
                _write(root / name, file)
        if "deleted_mib" in shm:
            path = root / "deleted"
            hidden = os.open(path, os.O_RDWR | os.O_CREAT)
            os.posix_fallocate(hidden, 0, shm["deleted_mib"] << 20)
            path.unlink()
        yield root
    finally:
        if hidden >= 0:
            os.close(hidden)
        subprocess.run([needs("umount"), str(root)], check=True)


def names(file: dict[str, Any]) -> list[str]:
    """`name` itself, or `count` names with a number for {n}."""
    return [file["name"].replace("{n}", str(number)) for number in range(file.get("count", 1))]


def _write(path: Path, file: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as written:
        if file.get("allocated"):
            os.posix_fallocate(written.fileno(), 0, file["allocated"])
        os.truncate(path, file.get("size", file.get("allocated", 0)))


def hold(shm: dict[str, Any], root: Path, procfs: Path, processes: list[dict[str, Any]]) -> None:
    """Write maps and fds of all processes, and the mount, as /proc would show them.

    A mapped file's name in there is wrong on purpose: that of a live semaphore is (facts of glibc's sem_open).
    """
    device = root.stat().st_dev
    numbers = f"{os.major(device)}:{os.minor(device)}"
    mountinfo = f"30 1 {numbers} / {root} rw - tmpfs tmpfs rw\n"
    (procfs / "self" / "mountinfo").write_text(mountinfo)
    maps: dict[int, list[str]] = {}
    for file in shm.get("files", []):
        for name in names(file):
            inode = (root / name).stat().st_ino
            for pid in file.get("mapped_by", []):
                where = 0x7F0000000000 + 0x1000 * len(maps.setdefault(pid, []))
                mapping = f"{where:x}-{where + 0x1000:x} rw-s 00000000 {os.major(device):02x}:{os.minor(device):02x}"
                maps[pid].append(f"{mapping} {inode} /dev/shm/sem.WeQCB4 (deleted)\n")
            for pid in file.get("open_in", []):
                fds = procfs / str(pid) / "fd"
                fds.mkdir(exist_ok=True)
                (fds / str(40 + len(os.listdir(fds)))).symlink_to(root / name)  # noqa: PTH208 - their number
    for process in processes:
        directory = procfs / str(process["pid"])
        (directory / "fd").mkdir(exist_ok=True)
        (directory / "mountinfo").write_text(mountinfo)
        if process.get("unreadable"):
            (directory / "maps").mkdir(exist_ok=True)  # reading it fails, for root as well
        else:
            (directory / "maps").write_text("".join(maps.get(process["pid"], [])))
