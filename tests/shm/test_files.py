"""Every file of a real tmpfs, whatever it is called."""

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from tests.fakes.hung_mount import hung_fuse
from tests.fakes.needs import needs, needs_root
from tests.fakes.shm import ShownProcesses, by_path, mounted, observe, source

from llmhost.config.schema import SegmentNames
from llmhost.model.reading import Cause
from llmhost.model.segment import SegmentId, SegmentKind, SharedMemory
from llmhost.sources.base import SourceError
from llmhost.sources.shm.files import list_files
from llmhost.sources.shm.source import ShmSource, filesystem_of


def never() -> bool:
    return False


def test_a_file_is_listed_by_inode_with_both_of_its_sizes(tmpfs: Path, processes: ShownProcesses) -> None:
    path = tmpfs / "psm_e1a2b3c4"
    with path.open("wb") as file:
        file.write(b"x" * 5000)  # two pages
        file.truncate(1 << 24)
    before = time.time()
    os.chown(path, os.geteuid(), -1)
    shared = by_path(observe(source(tmpfs, processes)))["psm_e1a2b3c4"]
    there = path.stat()
    assert shared.id == SegmentId(there.st_dev, there.st_ino)
    assert (shared.kind, shared.creator_pid, shared.uid) == (SegmentKind.PYTHON_SHM, None, os.geteuid())
    assert (shared.size_bytes, shared.allocated_bytes) == (16_777_216, 8192)
    assert shared.changed_at == pytest.approx(before, abs=1)


def test_the_tmpfs_gives_the_use_beyond_the_files(tmp_path: Path, processes: ShownProcesses) -> None:
    with mounted(tmp_path / "small", "size=8M,nr_inodes=100") as directory:
        (directory / "a").write_bytes(b"x" * 4096)
        descriptor = os.open(directory / "b", os.O_RDWR | os.O_CREAT)
        os.write(descriptor, b"x" * 65536)
        (directory / "b").unlink()
        shared = observe(source(directory, processes))
        os.close(descriptor)
        assert (shared.size_bytes, shared.inodes, shared.inodes_used) == (8 << 20, 100, 3)  # the root, a, and b
        assert shared.used_bytes is not None
        assert shared.used_bytes - sum(segment.allocated_bytes for segment in shared.segments) == 65536
        assert observe(source(directory, processes)).used_bytes == 4096


def test_a_tmpfs_without_bounds_has_no_sizes(tmp_path: Path, processes: ShownProcesses) -> None:
    with mounted(tmp_path / "endless", "size=0,nr_inodes=0") as directory:
        (directory / "a").write_bytes(b"x" * 4096)
        shared = observe(source(directory, processes))
        assert (shared.size_bytes, shared.used_bytes, shared.inodes, shared.inodes_used) == (None, None, None, None)
        assert len(shared.segments) == 1


def test_a_flood_does_not_hide_what_was_there_before(tmpfs: Path) -> None:
    names = {f"psm_{number:08x}" for number in range(5)}
    for name in sorted(names):
        (tmpfs / name).touch()
    for number in range(50):
        (tmpfs / f"flood-{number}").touch()
    listing = list_files(str(tmpfs), 20, lambda: False, is_known=lambda path: path.startswith("psm_"))
    assert names <= {file.path for file in listing.files.values()}
    assert len(listing.files) + listing.unlisted == 55
    assert len(listing.files) <= 25


def test_directories_are_bounded_in_number_and_time(tmpfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        (tmpfs / str(number)).mkdir()
    monkeypatch.setattr("llmhost.sources.shm.files._MOST_DIRECTORIES", 100)
    assert list_files(str(tmpfs), 1000, lambda: False).unlisted == 200
    with pytest.raises(TimeoutError):
        list_files(str(tmpfs), 1000, lambda: True)


ODD = [
    b"vllm_dist_0f1e2d3c4b5a69788796a5b4c3d2e1f0-tp:0-[0-1]-cpushm_0",
    b"*",
    b"-rf",
    b" ",
    b"a\nb",
    b"\xff\xfe",
    b"\\xff",
    "€ 😀".encode(),
    b"x" * 255,
    b".hidden",
]


def test_files_may_be_called_anything(tmpfs: Path, processes: ShownProcesses) -> None:
    for name in ODD:
        os.mknod(os.fsencode(tmpfs) + b"/" + name)
    shared = observe(source(tmpfs, processes))
    names = sorted(name.decode("utf-8", "backslashreplace") for name in ODD)
    assert [segment.path for segment in shared.segments] == names
    assert len({segment.id for segment in shared.segments}) == len(ODD) == len(names)


def test_only_regular_files_count_and_no_symlink_is_followed(
    tmpfs: Path, tmp_path: Path, processes: ShownProcesses
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret").touch()
    (tmpfs / "to-directory").symlink_to(elsewhere)
    (tmpfs / "to-file").symlink_to(elsewhere / "secret")
    (tmpfs / "to-nothing").symlink_to("nothing")
    (tmpfs / "to-itself").symlink_to("to-itself")
    (tmpfs / "up").symlink_to("..")
    os.mkfifo(tmpfs / "fifo")
    (tmpfs / "below" / "deeper").mkdir(parents=True)
    (tmpfs / "below" / "file").touch()
    (tmpfs / "below" / "deeper" / "psm_e1a2b3c4").touch()
    shared = observe(source(tmpfs, processes))
    assert [(segment.path, segment.kind) for segment in shared.segments] == [
        ("below/deeper/psm_e1a2b3c4", SegmentKind.OTHER),
        ("below/file", SegmentKind.OTHER),
    ]
    assert shared.unlisted == 0


def test_two_names_of_one_inode_are_one_file(tmpfs: Path, processes: ShownProcesses) -> None:
    (tmpfs / "second").write_bytes(b"x" * 4096)
    (tmpfs / "first").hardlink_to(tmpfs / "second")
    (shared,) = observe(source(tmpfs, processes)).segments
    assert (shared.path, shared.allocated_bytes) == ("first", 4096)


def test_what_is_mounted_below_is_no_part_of_it(tmpfs: Path, processes: ShownProcesses) -> None:
    with mounted(tmpfs / "other"):
        (tmpfs / "other" / "psm_e1a2b3c4").touch()
        (tmpfs / "mine").touch()
        shared = observe(source(tmpfs, processes, most_files=1))
        assert [segment.path for segment in shared.segments] == ["mine"]
        assert shared.unlisted == 0


@pytest.mark.parametrize("name", [b"psm_0123abcd", b"psm_ \\\n\xff"])
@pytest.mark.parametrize("what", ["folder", "file", "file in a folder"])
def test_a_file_system_that_a_user_mounts_there_and_never_answers_is_not_waited_for(
    what: str, name: bytes, tmpfs: Path, processes: ShownProcesses
) -> None:
    (tmpfs / "nccl-AbCdEf").touch()
    where = tmpfs / "joblib" / os.fsdecode(name) if what == "file in a folder" else tmpfs / os.fsdecode(name)
    where.parent.mkdir(exist_ok=True)
    if what == "folder":
        where.mkdir()
    else:
        where.touch()
    found: list[SharedMemory] = []
    reader = threading.Thread(target=lambda: found.append(observe(source(tmpfs, processes))))
    with hung_fuse(where):
        reader.start()
        reader.join(20)
        is_in_time = not reader.is_alive()
    reader.join()
    assert is_in_time
    assert list(by_path(found[0])) == ["nccl-AbCdEf"]


def test_a_file_of_elsewhere_that_is_mounted_over_one_is_no_part_of_it(
    tmpfs: Path, tmp_path: Path, processes: ShownProcesses
) -> None:
    (tmpfs / "file").touch()
    (tmp_path / "elsewhere").touch()
    needs_root()
    subprocess.run([needs("mount"), "--bind", tmp_path / "elsewhere", tmpfs / "file"], check=True)
    try:
        assert observe(source(tmpfs, processes)).segments == ()
    finally:
        subprocess.run([needs("umount"), tmpfs / "file"], check=True)


def test_a_directory_that_becomes_a_symlink_meanwhile_is_not_followed(
    tmpfs: Path, processes: ShownProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmpfs / "below").mkdir()
    (tmpfs / "hidden").mkdir()
    (tmpfs / "hidden" / "file").touch()
    (tmpfs / "hidden").chmod(0o700)
    really_open = os.open

    def swapping(path: str, *given: int, **named: int) -> int:
        if path == "below":
            (tmpfs / "below").rmdir()
            (tmpfs / "below").symlink_to("hidden")
        return really_open(path, *given, **named)

    monkeypatch.setattr(os, "open", swapping)
    shared = observe(source(tmpfs, processes))
    assert [segment.path for segment in shared.segments] == ["hidden/file"]
    assert (tmpfs / "below").is_symlink()


def test_directories_may_be_as_deep_as_they_like(tmpfs: Path, processes: ShownProcesses) -> None:
    descriptor = os.open(tmpfs, os.O_RDONLY)
    for _ in range(1200):  # more than a process may have open, and longer than a path may be
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("file", os.O_CREAT, dir_fd=descriptor))
    os.close(descriptor)
    (tmpfs / "file").touch()
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    shared = observe(source(tmpfs, processes))
    assert [segment.path for segment in shared.segments] == ["file"]
    assert shared.unlisted == 1
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_files_beyond_the_bound_are_counted(tmpfs: Path, processes: ShownProcesses) -> None:
    for number in range(7):
        (tmpfs / str(number)).touch()
    shared = observe(source(tmpfs, processes, most_files=5))
    assert (len(shared.segments), shared.unlisted) == (5, 2)


def test_a_hundred_thousand_files_are_listed_in_bounded_time(tmpfs: Path, processes: ShownProcesses) -> None:
    needs_root()  # only then the tmpfs is our own, and ends with the test
    descriptor = os.open(tmpfs, os.O_RDONLY)
    for number in range(100_005):
        os.mknod(f"file-{number:08x}", dir_fd=descriptor)
    os.close(descriptor)
    shm_source = source(tmpfs, processes)
    began = time.process_time()
    shared = shm_source.read(time.monotonic() + 60)
    assert time.process_time() - began < 8, "what a scrape has, were nobody else here"
    assert (len(shared.segments), shared.unlisted) == (100_000, 5)
    assert {segment.kind for segment in shared.segments} == {SegmentKind.OTHER}
    assert {segment.holders for segment in shared.segments} == {frozenset()}
    with pytest.raises(SourceError, match=r"timeout: .*: \d+ files listed"):
        shm_source.read(time.monotonic() + 0.01)


def test_another_path_or_size_shows_at_the_next_read_and_new_names_after_a_reload(
    tmpfs: Path, processes: ShownProcesses
) -> None:
    path = tmpfs / "psm_e1a2b3c4"
    path.touch()
    shm_source = source(tmpfs, processes)
    assert observe(shm_source).segments[0].kind is SegmentKind.PYTHON_SHM
    path.rename(tmpfs / "sem.mp-cg73a8ss")
    os.truncate(tmpfs / "sem.mp-cg73a8ss", 32)
    shared = observe(shm_source).segments[0]
    assert (shared.path, shared.kind, shared.size_bytes) == ("sem.mp-cg73a8ss", SegmentKind.SEMAPHORE, 32)
    rows = (SegmentNames(pattern="sem.*", kind=SegmentKind.NCCL),)
    shm_source.configure(names=rows, grace_seconds=1.0)
    assert observe(shm_source).segments[0].kind is SegmentKind.NCCL


def fault(shm: Path, procfs: Path) -> SourceError:
    shm_source = ShmSource(shm=shm, procfs=procfs, grace_seconds=30, trust_pid_namespace=True)
    with pytest.raises(SourceError) as raised:
        observe(shm_source)
    assert shm_source.doing() == "idle"
    return raised.value


def test_no_shared_memory_is_a_fault_that_says_so(tmp_path: Path, processes: ShownProcesses) -> None:
    absent = fault(tmp_path / "absent", processes.path)
    assert (absent.cause, absent.detail) == (Cause.NO_SHM, f"{tmp_path}/absent: No such file or directory")
    (tmp_path / "file").touch()
    assert fault(tmp_path / "file", processes.path).cause is Cause.NO_SHM


def test_a_directory_of_another_filesystem_is_refused(processes: ShownProcesses) -> None:
    error = fault(Path("/proc/self"), processes.path)
    assert error.cause is Cause.NO_SHM
    assert error.detail == "/proc/self is no tmpfs: its filesystem is of type proc"


def test_without_a_procfs_there_is_no_reading(tmpfs: Path, tmp_path: Path) -> None:
    assert fault(tmpfs, tmp_path / "absent").cause is Cause.NO_PROCFS


def test_another_tmpfs_mounted_over_it_is_read_from_then_on(tmpfs: Path, processes: ShownProcesses) -> None:
    (tmpfs / "below").touch()
    shm_source = source(tmpfs, processes)
    (first,) = observe(shm_source).segments
    with mounted(tmpfs):
        (tmpfs / "above").touch()
        (second,) = observe(shm_source).segments
    assert (first.path, second.path) == ("below", "above")
    assert first.id.device != second.id.device
    assert [segment.path for segment in observe(shm_source).segments] == ["below"]


def test_listing_does_not_open_files(tmpfs: Path, processes: ShownProcesses) -> None:
    path = tmpfs / "a"
    path.touch()
    os.utime(path, (1.0, 1.0))
    before = path.stat()
    list_files(str(tmpfs), 10, never)
    observe(source(tmpfs, processes))
    assert path.stat() == before


MOUNTINFO = b"""\
25 24 0:23 / /dev/shm rw,relatime shared:4 master:1 - tmpfs tmpfs rw,size=24684084k
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
31 25 0:27 / /mnt/a\\040-\\040b rw - btrfs 0:23 rw
"""


@pytest.mark.parametrize(
    ("device", "found"), [("0:23", b"tmpfs"), ("254:0", b"ext4"), ("0:27", b"btrfs"), ("0:2", None), ("4:0", None)]
)
def test_the_type_of_a_filesystem_is_found_by_its_device(device: str, found: bytes | None) -> None:
    assert filesystem_of(MOUNTINFO, device) == found
