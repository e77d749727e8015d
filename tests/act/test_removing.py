"""A segment is removed if it is exactly that file and no process has it, or is about to open it; else it stays."""

import mmap
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.needs import needs_root
from tests.fakes.removals import made, removal_of, removed, shm
from tests.fakes.shm import Child

from llmhost.act.lease_program import RemovalRequest, remove
from llmhost.act.removing import Remover
from llmhost.decide.cleanup.steps import Outcome, Result
from llmhost.model.segment_names import kind_of

__all__ = ["shm"]


def test_a_file_that_nobody_has_is_removed(shm: Path) -> None:
    path = made(shm)
    outcome = removed(shm, removal_of(path, shm))
    assert outcome.result is Result.DONE
    assert list(shm.iterdir()) == []


def test_a_file_in_a_folder_is_removed_and_the_folder_stays(shm: Path) -> None:
    path = made(shm, "joblib_memmapping_folder_7_ab_cd/1-2.pkl")
    assert removed(shm, removal_of(path, shm)).result is Result.DONE
    assert [path.name for path in shm.rglob("*")] == ["joblib_memmapping_folder_7_ab_cd"]


@pytest.mark.parametrize("how", ["read", "write", "mapped", "mapped to read", "in another mount namespace"])
def test_a_file_that_somebody_has_stays(shm: Path, how: str) -> None:
    path = made(shm)
    child = Child(shm if how.startswith("in another") else None)
    try:
        where = "/dev/shm/psm_0123abcd" if how.startswith("in another") else str(path)
        flags = {"read": "os.O_RDONLY", "mapped to read": "os.O_RDONLY"}.get(how, "os.O_RDWR")
        child.do(f"import os, mmap; fd = os.open({where!r}, {flags})")
        if how.startswith("mapped"):
            protection = "mmap.PROT_READ" if how == "mapped to read" else "mmap.PROT_READ | mmap.PROT_WRITE"
            child.do(f"held = mmap.mmap(fd, 4096, prot={protection}); os.close(fd)")
        assert removed(shm, removal_of(path, shm)).result is Result.SPARED
        assert path.exists()
    finally:
        child.end()
    assert removed(shm, removal_of(path, shm)).result is Result.DONE


def test_another_file_of_the_same_name_stays(shm: Path) -> None:
    path = made(shm)
    removal = removal_of(path, shm)
    keeps_the_inode = path.open("rb")
    path.unlink()
    made(shm)
    outcome = removed(shm, removal)
    keeps_the_inode.close()
    assert (outcome.result, outcome.detail) == (Result.SPARED, "another file has its name by now")
    assert path.exists()


def test_a_file_that_changed_since_stays(shm: Path) -> None:
    path = made(shm)
    removal = removal_of(path, shm)
    with path.open("r+b") as file:
        file.truncate(8192)
    assert removed(shm, removal).detail == "it has changed since it was looked at"
    assert path.exists()


def test_a_file_with_a_second_name_stays(shm: Path) -> None:
    """sem_open(3) makes its file under one name and links it to the other."""
    path = made(shm, "sem.mp-0123abcd")
    os.link(path, shm / "sem.ABCDEF")
    assert removed(shm, removal_of(path, shm)).detail == "it has a second name"
    assert len(list(shm.iterdir())) == 2


def test_no_symlink_is_followed(shm: Path, tmp_path: Path) -> None:
    path = made(shm, "joblib_memmapping_folder_7_ab_cd/1-2.pkl")
    removal = removal_of(path, shm)
    path.parent.rename(shm / "elsewhere")
    path.parent.symlink_to(shm / "elsewhere")
    assert removed(shm, removal).result is Result.SPARED
    assert (shm / "elsewhere/1-2.pkl").exists()
    link = shm / "psm_0123abcd"
    link.symlink_to(tmp_path)
    assert removed(shm, removal_of(link, shm)).result is Result.SPARED
    assert link.is_symlink()


def test_a_file_that_is_gone_is_reported_as_gone(shm: Path) -> None:
    path = made(shm)
    removal = removal_of(path, shm)
    path.unlink()
    assert removed(shm, removal).result is Result.GONE


def test_a_name_that_is_no_text_stays(shm: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(shm) + b"/vllm_offload_\xff.mmap"))
    path.write_bytes(b"x")
    assert removed(shm, removal_of(path, shm, called=r"vllm_offload_\xff.mmap")).result is Result.FAILED
    assert path.exists()


def test_a_name_beyond_ascii_is_found_whatever_the_locale(shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    path = made(shm, "vllm_offload_\N{GREEK SMALL LETTER ALPHA}\n.mmap")
    assert removed(shm, removal_of(path, shm)).result is Result.DONE
    assert list(shm.iterdir()) == []


def test_a_new_file_that_was_given_the_number_of_a_removed_one_stays(shm: Path) -> None:
    """Device, inode and name are the same; the time of its change is not."""
    path = made(shm)
    removal = removal_of(path, shm)
    earlier = replace(removal.segment, changed_at=removal.segment.changed_at - 0.001)
    assert removed(shm, replace(removal, segment=earlier)).detail == "it has changed since it was looked at"
    assert path.exists()


def test_another_users_file_is_not_ours_to_remove_and_our_own_takes_no_privilege(shm: Path) -> None:
    needs_root()
    shm.chmod(0o1777)
    theirs, own = made(shm), made(shm, "psm_44444444")
    os.chown(own, 65534, 65534)

    def request(path: Path) -> RemovalRequest:
        file_stat = path.stat()
        return RemovalRequest(path.name, ".h", file_stat.st_dev, file_stat.st_ino, file_stat.st_ctime_ns / 1e9, 0.0)

    results = [_unprivileged(shm, request(path)) for path in (theirs, own)]
    assert results == ["denied", "done"]
    assert [path.name for path in shm.iterdir()] == [theirs.name]


def _unprivileged(shm: Path, request: RemovalRequest) -> str:
    """Do what the child does, in a child of ours that has given up root."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os.write(writing, remove(os.open(shm, os.O_RDONLY | os.O_DIRECTORY), request).result.encode())
        os._exit(0)
    os.waitpid(pid, 0)
    result = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    return result


def test_an_opener_just_before_a_file_is_unlinked_keeps_it(shm: Path) -> None:
    """An opener that has looked up the name and arrives after the rename breaks the lease."""
    path = made(shm)
    found: list[bytes] = []
    with Remover(shm, settle_seconds=0.5, most_seconds=5) as remover:
        answer: list[Outcome] = []
        thread = threading.Thread(target=lambda: answer.append(remover.remove(removal_of(path, shm))))
        thread.start()
        hidden = _wait_for_hidden(shm)
        descriptor = os.open(hidden, os.O_RDWR)  # stands for one that looked the name up in time
        with mmap.mmap(descriptor, 4096) as held:
            thread.join()
            found.append(held[:1])
            assert answer[0].result is Result.SPARED
            assert os.fstat(descriptor).st_nlink == 1
            assert path.stat().st_ino == os.fstat(descriptor).st_ino
        os.close(descriptor)
    assert found == [b"x"]
    assert [path.name for path in shm.iterdir()] == [path.name]


def _wait_for_hidden(shm: Path) -> Path:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for path in shm.iterdir():
            if path.name.startswith(".llmhost-removing."):
                return path
    raise AssertionError("it was never hidden")


def _children() -> list[int]:
    own = Path(f"/proc/self/task/{threading.main_thread().native_id}/children").read_text().split()
    own += [pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    return sorted({int(pid) for pid in own if "lease_program" in Path(f"/proc/{pid}/cmdline").read_text()})


def test_a_child_that_died_is_replaced(shm: Path) -> None:
    first, second = made(shm), made(shm, "psm_11111111")
    with Remover(shm) as remover:
        assert remover.remove(removal_of(first, shm)).result is Result.DONE
        (child,) = _children()
        os.kill(child, signal.SIGKILL)
        outcomes = [remover.remove(removal_of(second, shm)).result for _ in range(2)]
    assert outcomes == [Result.FAILED, Result.DONE]


def test_an_interrupt_from_the_terminal_does_not_reach_the_child(shm: Path) -> None:
    made(shm)
    with Remover(shm) as remover:
        remover.remove(removal_of(shm / "psm_0123abcd", shm))
        (child,) = _children()
        assert os.getpgid(child) == child


def test_a_file_that_an_ended_clean_up_left_hidden_is_of_its_kind_and_removed_by_the_next(shm: Path) -> None:
    path = made(shm, "joblib_memmapping_folder_7_ab_cd/.llmhost-removing.0a1b2c3d.1-2.pkl")
    removal = removal_of(path, shm)
    assert (removal.segment.kind.value, removal.segment.creator_pid) == ("loky", 7)
    assert kind_of(".llmhost-removing.0a1b2c3d.sem.mp-abcd1234")[0].value == "semaphore"
    assert kind_of(".llmhost-removing.0a1b2c3d.mine")[0].value == "other"
    assert removed(shm, removal).result is Result.DONE
