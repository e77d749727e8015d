"""`llmhost clean --apply` by root over shared memory in which another user has laid traps."""

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.test_clean import World, here, open_path, unfolded
from tests.fakes.other_users import NOBODY

__all__ = ["here", "open_path"]

HOSTILE = "vllm_offload_\x1b]0;owned\x07\x1b[2J\r\nremoved all.mmap"


def as_nobody_in(folder: Path, act: Callable[[], None]) -> None:
    """Let another user act in a folder to which all may write; the folders above are for us alone."""
    folder.chmod(0o1777)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.chdir(folder)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            act()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[Path]:
    """Give a file of root's, elsewhere."""
    path = tmp_path / "precious"
    path.write_text("root's")
    yield path
    assert path.read_text() == "root's"


def test_traps_of_another_user_are_left_alone_and_harm_nothing_of_roots(here: World, precious: Path) -> None:
    living = here.processes.child()
    roots = here.shm / "zzz-of-root"
    roots.write_text("root's")
    roots.chmod(0o666)

    def lay() -> None:
        Path("psm_00000001").symlink_to(precious)
        os.mkfifo("psm_00000002")
        os.link(roots.name, "psm_00000003")  # as protected_hardlinks allows it
        socket.socket(socket.AF_UNIX).bind("psm_00000004")
        Path("joblib_memmapping_folder_7_ab_cd").symlink_to(precious.parent)
        Path(f"sem.loky-{living.pid}-abcdefgh").write_text("claims root's pid")

    as_nobody_in(here.shm, lay)
    before = sorted(path.name for path in here.shm.iterdir())
    done = here.clean("--apply")
    assert done.returncode == 0, done.stdout
    assert sorted(path.name for path in here.shm.iterdir()) == before
    assert roots.read_text() == "root's"
    assert "psm_00000003 (4.0 KiB): it has a second name" in unfolded(done.stdout)


def test_a_file_that_another_user_named_for_roots_terminal_is_shown_without_a_control_character(here: World) -> None:
    as_nobody_in(here.shm, Path(HOSTILE).touch)
    for arguments in ((), ("--apply",)):
        shown: subprocess.CompletedProcess[str] = here.clean(*arguments)
        text = (shown.stdout + shown.stderr).replace("\n", "")
        assert "vllm_offload_" in text
        assert text.isprintable()
        assert not any(line.strip().startswith("removed all") for line in shown.stdout.splitlines())
    assert list(here.shm.iterdir()) == []
