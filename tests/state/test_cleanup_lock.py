"""The lock of a clean-up: it keeps a second one out, and nobody but its owner can hold it."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.needs import needs, needs_root

from llmhost.state.cleanup_lock import NAME, BusyError, cleanup_lock
from llmhost.state.directory import StoreError

HOLDS = """
import os, signal, sys
from pathlib import Path
from llmhost.state.cleanup_lock import cleanup_lock
with cleanup_lock(Path(sys.argv[1])):
    print(os.getpid(), flush=True)
    signal.pause()
"""
AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def let_all_in(path: Path) -> None:
    """Let other users reach what is in a folder of this test's, as pytest's are for us alone."""
    for folder in (path, *path.parents):
        if folder.stat().st_uid == os.geteuid() and folder not in {Path("/"), Path("/tmp")}:
            folder.chmod(folder.stat().st_mode | 0o055)


def test_a_second_clean_up_is_kept_out_and_told_whose_it_is_also_while_the_first_is_stopped(tmp_path: Path) -> None:
    first = subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=-1, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == f"{first.pid}\n"
    first.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    with (
        pytest.raises(BusyError, match=rf"^another llmhost \(pid {first.pid}\) is cleaning up$"),
        cleanup_lock(tmp_path),
    ):
        pass
    assert time.monotonic() - began < 5
    first.kill()
    first.communicate()
    with cleanup_lock(tmp_path):
        assert (tmp_path / NAME).read_text() == f"{os.getpid()}\n"
    with cleanup_lock(tmp_path):
        pass


def test_nobody_else_can_open_the_lock_of_root_and_so_cannot_hold_it(tmp_path: Path) -> None:
    needs_root()
    run = tmp_path / "run"
    with cleanup_lock(run):
        pass
    let_all_in(run)
    assert stat.S_IMODE((run / NAME).stat().st_mode) == 0o600
    for how in ("--nonblock", "--shared"):
        command = [needs(AS_NOBODY[0]), *AS_NOBODY[1:], "flock", how, str(run / NAME), "true"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Permission denied" in done.stderr
    with cleanup_lock(run):
        pass


def of_another(run: Path) -> None:
    os.chown(run, 65534, 65534)


def of_a_group(run: Path) -> None:
    os.chown(run, 0, 65534)
    run.chmod(0o775)


def lock_of_another(run: Path) -> None:
    (run / NAME).touch(0o600)
    os.chown(run / NAME, 65534, 65534)


def lock_that_all_can_read(run: Path) -> None:
    (run / NAME).touch()
    (run / NAME).chmod(0o644)


def symlink_to_a_folder_of_all(run: Path) -> None:
    run.rmdir()
    run.symlink_to("/tmp")


def file_in_its_place(run: Path) -> None:
    run.rmdir()
    run.touch()


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        (of_another, "the folder is neither root's nor of this user"),
        (lambda run: run.chmod(0o1777), "others can write to the folder"),
        (of_a_group, "others can write to the folder"),
        (lock_of_another, "others can open it, or it is none of ours"),
        (lock_that_all_can_read, "others can open it, or it is none of ours"),
        (lambda run: os.mkfifo(run / NAME, 0o600), "others can open it, or it is none of ours"),
        (lambda run: (run / NAME).symlink_to("/etc/passwd"), "Too many levels of symbolic links"),
        (lambda run: (run / NAME).mkdir(), "Is a directory"),
        (symlink_to_a_folder_of_all, "Not a directory"),
        (file_in_its_place, "File exists"),
    ],
)
def test_where_others_could_hold_it_or_have_replaced_it_there_is_no_lock_and_no_wait(
    attack: Callable[[Path], object], why: str, tmp_path: Path
) -> None:
    needs_root()
    run = tmp_path / "run"
    run.mkdir(mode=0o755)
    before = Path("/etc/passwd").read_bytes()
    attack(run)
    with pytest.raises(StoreError) as raised, cleanup_lock(run):
        pass
    assert str(raised.value) == f"no lock keeps other clean-ups out: {run / NAME}: {why}"
    assert Path("/etc/passwd").read_bytes() == before


@pytest.mark.parametrize("has_own", [True, False])
def test_a_user_locks_a_file_of_their_own_and_where_there_is_none_is_told(has_own: bool, tmp_path: Path) -> None:
    needs_root()
    run, own = tmp_path / "run", tmp_path / "own"
    run.mkdir(mode=0o755)
    own.mkdir(mode=0o700)
    if has_own:
        os.chown(own, 65534, 65534)
    let_all_in(tmp_path)
    pid = os.fork()
    if pid == 0:
        status = 2
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.environ["XDG_RUNTIME_DIR"] = str(own)
            with cleanup_lock(run):
                status = 0
        except StoreError as error:
            named = [str(place / NAME) in str(error) for place in (run, own / "llmhost")]
            status = 1 if all(named) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (0 if has_own else 1)
    assert (own / "llmhost" / NAME).exists() is has_own
