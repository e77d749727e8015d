"""Files that processes have mapped and open: asked of the kernel, and read as text, with the same answer."""

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.needs import missing
from tests.fakes.shm import MMAP, Child, Children

from llmhost.sources.shm import descriptors, process
from llmhost.sources.shm.maps import NoQueryError, mapped_by_query, mapped_by_text, parse_maps
from llmhost.sources.shm.process import Inspector

READ, WRITE, EXECUTE = 1, 2, 4
SHARED, PRIVATE = 1, 2
WAYS = [
    pytest.param(READ | WRITE, SHARED, os.O_RDWR, id="shared"),
    pytest.param(READ, SHARED, os.O_RDONLY, id="shared, read-only"),
    pytest.param(0, SHARED, os.O_RDONLY, id="shared, and not even readable"),
    pytest.param(READ | WRITE, PRIVATE, os.O_RDONLY, id="private"),
    pytest.param(READ, PRIVATE, os.O_RDONLY, id="private, read-only"),
    pytest.param(READ | EXECUTE, PRIVATE, os.O_RDONLY, id="private, as libraries are"),
]


def can_query() -> bool:
    with Path("/proc/self/maps").open("rb") as maps:
        try:
            mapped_by_query(maps.fileno(), 0, shared_only=True)
        except NoQueryError:
            return False
    return True


def by_query(pid: int, device: int, *, shared_only: bool = False) -> set[int]:
    if not can_query():
        missing("Linux 6.11, for PROCMAP_QUERY")
    with Path(f"/proc/{pid}/maps").open("rb") as maps:
        return mapped_by_query(maps.fileno(), device, shared_only=shared_only)


def by_text(pid: int, device: int) -> set[int]:
    with Path(f"/proc/{pid}/maps").open("rb", buffering=0) as maps:
        return mapped_by_text(maps.fileno(), device)


@pytest.fixture
def child(children: Children) -> Child:
    made = children()
    made.do(MMAP)
    return made


@pytest.mark.parametrize(("protection", "flags", "opened"), WAYS)
def test_a_file_is_found_however_it_is_mapped(
    protection: int, flags: int, opened: int, child: Child, tmpfs: Path
) -> None:
    path = tmpfs / "file"
    path.write_bytes(b"x" * 4096)
    there = path.stat()
    assert by_query(child.pid, there.st_dev) == by_text(child.pid, there.st_dev) == set()
    child.do(f"mapped({str(path)!r}, {protection}, {flags}, {opened})")
    for deleted in (False, True):
        if deleted:
            path.unlink()
        assert by_text(child.pid, there.st_dev) == {there.st_ino}
        assert by_query(child.pid, there.st_dev) == {there.st_ino}
        assert by_query(child.pid, there.st_dev, shared_only=True) == ({there.st_ino} if flags == SHARED else set())
        for query in (True, False):
            held = Inspector(Path("/proc"), query=query).inspect(child.pid, there.st_dev, thorough=True)
            assert held is not None
            assert (held.process, held.inodes) == (child.id, frozenset({there.st_ino}))


def test_both_give_the_same_for_thousands_of_mappings(child: Child, tmpfs: Path) -> None:
    for number in range(300):
        (tmpfs / str(number)).write_bytes(b"x")
    ways = [(READ | WRITE, SHARED), (READ, PRIVATE), (READ, SHARED)]
    for repeat in range(4):
        for number in range(300):
            protection, flags = ways[(number + repeat) % 3]
            child.do(f"mapped({str(tmpfs / str(number))!r}, {protection}, {flags})")
    device = tmpfs.stat().st_dev
    expected = {(tmpfs / str(number)).stat().st_ino for number in range(300)}
    size = len(Path(f"/proc/{child.pid}/maps").read_bytes())
    assert size > 1 << 16  # more than one read gives
    assert by_text(child.pid, device) == by_query(child.pid, device) == expected


def test_both_give_the_same_for_every_process_and_every_filesystem() -> None:
    compared = 0
    for pid in Inspector(Path("/proc")).pids():
        try:
            text = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
            devices = {line.split()[3] for line in text.splitlines()} - {"00:00"}
            for device in devices:
                major, minor = (int(number, 16) for number in device.split(":"))
                before = by_text(pid, os.makedev(major, minor))
                answer = by_query(pid, os.makedev(major, minor))
                if before == by_text(pid, os.makedev(major, minor)):  # it may be starting or ending
                    assert answer == before
                    compared += bool(answer)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    assert compared


def test_a_kernel_that_cannot_be_asked_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "maps"
    path.write_bytes(b"")
    with path.open("rb") as maps, pytest.raises(NoQueryError):
        mapped_by_query(maps.fileno(), 0, shared_only=True)


MAPS = b"""\
5581a000-5581b000 r--p 00000000 fe:00 77                                 /usr/bin/python3.11
7f000000-7f001000 rw-s 00000000 00:1b 5                                  /dev/shm/sem.eXLuDz (deleted)
7f001000-7f002000 r--s 00001000 00:1b 18446744073709551615               /dev/shm/a\\0127f00-8f00 r--s 0 00:1b 6
7f002000-7f003000 rw-p 00000000 00:1b 7
7f003000-7f004000 rw-p 00000000 00:00 0                                  [anon: 00:1b 8 ]
7f004000-7f005000 rw-s 00000000 00:2b 9                                  /dev/shm/x 00:1b 10 y
7f005000-7f006000 rw-s 00000000 00:1ba 11                                /dev/shm/b
7f006000-7f007000 rw-s 00000000 103:1b 12                                /dev/shm/c
"""


def test_the_text_is_read_by_its_fields_and_not_by_the_form_of_paths() -> None:
    assert parse_maps(MAPS, os.makedev(0, 0x1B)) == {5, 18446744073709551615, 7}
    assert parse_maps(MAPS, os.makedev(0, 0x2B)) == {9}
    assert parse_maps(MAPS, os.makedev(0, 0x1BA)) == {11}
    assert parse_maps(MAPS, os.makedev(0x103, 0x1B)) == {12}
    assert parse_maps(MAPS, os.makedev(0, 3)) == set()
    assert parse_maps(b"", os.makedev(0, 0x1B)) == set()


def test_what_is_open_is_found_without_waiting_for_any_server(
    child: Child, tmpfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmpfs / "file").touch()
    (tmpfs / "deleted").touch()
    code = "import os, socket; made = [os.pipe(), socket.socket(), os.memfd_create('m')]"
    child.do(f"{code}; kept = [os.open(p, os.O_RDONLY) for p in ({str(tmpfs)!r}, {str(tmpfs / 'file')!r}, '/')]")
    child.do(f"kept.append(os.open({str(tmpfs / 'deleted')!r}, os.O_PATH)); os.unlink({str(tmpfs / 'deleted')!r})")
    inodes = {tmpfs.stat().st_ino, (tmpfs / "file").stat().st_ino}
    device = tmpfs.stat().st_dev
    directory = os.open(f"/proc/{child.pid}", os.O_RDONLY)
    try:
        answer = descriptors.open_inodes(directory, device)
        assert answer > inodes
        assert len(answer) == 3
        monkeypatch.setattr(descriptors, "_statx", None)
        assert descriptors.open_inodes(directory, device) == answer
    finally:
        os.close(directory)


def test_a_file_that_is_mapped_and_closed_in_the_middle_of_a_scan_is_found(
    child: Child, tmpfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmpfs / "file"
    path.write_bytes(b"x")
    child.do(f"descriptor = os.open({str(path)!r}, os.O_RDWR)")
    steps = ["assert libc.mmap(None, 4096, 3, 1, descriptor, 0) not in (None, 2**64 - 1); os.close(descriptor)"]

    def between(function: Callable[..., set[int]]) -> Callable[..., set[int]]:
        def called(*given: int, **named: bool) -> set[int]:
            found = function(*given, **named)
            while steps:
                child.do(steps.pop())
            return found

        return called

    for name in ("open_inodes", "mapped_by_query", "mapped_by_text"):
        monkeypatch.setattr(process, name, between(getattr(process, name)))
    held = Inspector(Path("/proc")).inspect(child.pid, path.stat().st_dev, thorough=True)
    assert held is not None
    assert held.inodes == {path.stat().st_ino}
    assert not steps


@pytest.mark.parametrize("refused", [errno.EACCES, errno.EPERM])
def test_a_descriptor_that_may_not_be_asked_about_is_not_taken_for_another_file(
    refused: int, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "_statx", failing(refused))
    with pytest.raises(PermissionError):
        Inspector(Path("/proc")).inspect(child.pid, 27, thorough=True)


def test_a_descriptor_whose_server_is_gone_is_no_file_in_memory(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "_statx", failing(errno.ESTALE))
    held = Inspector(Path("/proc")).inspect(child.pid, os.makedev(0, 0xFFFFF), thorough=True)
    assert held is not None
    assert held.inodes == frozenset()


def failing(number: int) -> Callable[..., int]:
    def statx(*_: object) -> int:
        ctypes.set_errno(number)
        return -1

    return statx
