"""Processes of another PID namespace that have the same tmpfs: real namespaces, real mounts."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fakes.needs import needs, needs_root
from tests.fakes.shm import Children, mounted
from tests.fakes.values import process

from llmhost.model.reading import Failed, Ok
from llmhost.sources.shm.foreign_pid_namespaces import read_foreign_pids

PROC = Path("/proc")


@contextmanager
def in_a_namespace(*how: str) -> Iterator[int]:
    """Give the pid of a shell that is process 1 of a PID namespace of its own."""
    needs_root()
    command = [needs("unshare"), "--pid", "--fork", "--kill-child", *how, "sh", "-c", "echo; read x"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        try:
            yield int(Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text())
        finally:
            parent.kill()


def test_a_container_with_the_hosts_tmpfs_shares_it_and_one_without_does_not(
    tmpfs: Path, tmp_path: Path, children: Children
) -> None:
    beside = children()
    with in_a_namespace("--mount") as sharing, mounted(tmp_path / "other") as other:
        everybody = [process(sharing), process(beside.pid)]
        assert read_foreign_pids(PROC, tmpfs, everybody) == Ok(frozenset({sharing}))
        # the other tmpfs was mounted after that namespace was made, and so is not in it
        assert read_foreign_pids(PROC, other, everybody) == Ok(frozenset())


def test_from_an_unreadable_process_nothing_follows(tmpfs: Path, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    (proc / "self/ns").mkdir(parents=True)
    (proc / "self/ns/pid").symlink_to("pid:[1]")
    (proc / "7/ns").mkdir(parents=True)
    assert isinstance(read_foreign_pids(proc, tmpfs, [process(7)]), Failed)
    (proc / "7/ns/pid").symlink_to("pid:[2]")
    assert isinstance(read_foreign_pids(proc, tmpfs, [process(7)]), Failed)  # no mountinfo
    (proc / "7/mountinfo").write_text("1 0 0:1 / / rw - rootfs rootfs rw\n")
    assert read_foreign_pids(proc, tmpfs, [process(7)]) == Ok(frozenset())
    assert read_foreign_pids(proc, tmpfs, [process(8)]) == Ok(frozenset())  # it has ended
    assert read_foreign_pids(proc, tmpfs, [process(9, state="Z"), process(10, kernel_thread=True)]) == Ok(frozenset())
    assert isinstance(read_foreign_pids(tmp_path / "none", tmpfs, [process(7)]), Failed)
