"""Events at any moment of a removal: no file that is in use, or was just made, loses its name."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fakes.hung_mount import hung_fuse
from tests.fakes.needs import needs_root
from tests.fakes.removals import (
    MOMENTS,
    OPENER,
    go_on,
    made,
    removal_of,
    removed,
    shm,
    stop_before,
    stopped_child,
    stopping_program,
)
from tests.fakes.shm import mounted
from tests.fakes.unkillable import keep_from_dying

from llmhost.act import lease_program
from llmhost.act.removing import Remover
from llmhost.decide.cleanup.steps import Outcome, Removal, Result

__all__ = ["keep_from_dying", "shm", "stop_before"]

PATIENT = 30.0  # seconds for a step of which the test decides how long it takes
Stop = Callable[[str], None]


@contextmanager
def removing(folder: Path, removal: Removal, most_seconds: float = PATIENT) -> Iterator[Future[Outcome]]:
    with Remover(folder, most_seconds=most_seconds) as remover, ThreadPoolExecutor() as pool:
        yield pool.submit(remover.remove, removal)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def hidden_in(folder: Path) -> Path:
    (found,) = folder.glob(".llmhost-removing.*")
    return found


def fill(folder: Path) -> None:
    for number in range(20):
        (folder / f"full{number}").touch()


class Opener:
    """A process that opens and maps a file."""

    def __init__(self, path: Path, *, at_once: bool = True) -> None:
        self._process = subprocess.Popen([*OPENER, path], stdin=-1, stdout=-1, text=True)
        self._line()
        if at_once:
            self.go()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def came(self) -> str:
        """Wait until it has the file, or cannot have it; gives the seconds, or why."""
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def wait_until_it_waits(self) -> None:
        """Wait until it sleeps in open(2)."""
        until = time.monotonic() + 120
        while Path(f"/proc/{self._process.pid}/wchan").read_text() != "__break_lease":
            assert time.monotonic() < until
            time.sleep(0.001)

    def end(self) -> None:
        self._process.communicate()


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_child_that_stops_for_good_costs_an_opener_of_the_file_a_second_at_most(
    moment: str, shm: Path, stop_before: Stop
) -> None:
    """Worst is before the rename: its name is there, and its lease. The kernel would have it wait for 45 s."""
    stop_before(moment)
    path = made(shm)
    inode = path.stat().st_ino
    opener = Opener(path, at_once=False)
    with removing(shm, removal_of(path, shm), most_seconds=1.0) as outcome:
        stopped_child()
        opener.go()
        came = opener.came()
        if moment in {"look at the lease", "unlink"}:  # it is hidden: as if it came just after the removal
            assert came == "No such file or directory"
        else:
            assert float(came) < 2
            assert (float(came) > 0.5) == (moment == "rename")
        assert outcome.result().result is Result.FAILED
        assert outcome.result().detail == "the check took longer than 1 s"
        assert path.stat().st_ino == inode
        assert names(shm) == [path.name]
        opener.end()


def test_an_opener_before_it_is_hidden_has_it_under_its_name(shm: Path, stop_before: Stop) -> None:
    stop_before("rename")
    path = made(shm)
    inode = path.stat().st_ino
    with removing(shm, removal_of(path, shm)) as outcome:
        child = stopped_child()
        opener = Opener(path)
        opener.wait_until_it_waits()
        go_on(child)
        float(opener.came())
        assert path.stat().st_ino == inode  # as soon as it has it, not a moment later
        assert outcome.result().detail == "somebody is about to use it"
    assert names(shm) == [path.name]
    opener.end()


@pytest.mark.parametrize("moment", ["open", "take the lease", "rename"])
def test_a_live_file_that_was_given_the_name_meanwhile_keeps_it(moment: str, shm: Path, stop_before: Stop) -> None:
    """A starting engine unlinks the last one's file, and makes its own of that name."""
    stop_before(moment)
    path = made(shm, "VLLM_OBJECT_STORAGE_SHM_BUFFER")
    with removing(shm, removal_of(path, shm)) as outcome:
        child = stopped_child()
        path.unlink()
        opener = Opener(made(shm, path.name, b"live"))
        float(opener.came())
        inode = path.stat().st_ino
        go_on(child)
        done = outcome.result()
    assert done.result in {Result.SPARED, Result.GONE}
    assert (path.stat().st_ino, path.read_bytes()) == (inode, b"live")
    assert names(shm) == [path.name]
    opener.end()


def test_a_file_that_somebody_used_since_it_was_opened_for_the_check_stays(shm: Path, stop_before: Stop) -> None:
    stop_before("take the lease")
    path = made(shm)
    with removing(shm, removal_of(path, shm)) as outcome:
        child = stopped_child()
        with path.open("r+b") as file:
            file.truncate(8192)
        go_on(child)
        assert outcome.result().detail == "it has changed since it was looked at"
    assert names(shm) == [path.name]


def test_where_its_name_is_taken_meanwhile_both_files_stay(shm: Path, stop_before: Stop) -> None:
    stop_before("look at the lease")
    path = made(shm)
    with removing(shm, removal_of(path, shm)) as outcome:
        child = stopped_child()
        hidden = hidden_in(shm)
        opener = Opener(hidden)  # stands for one that looked the name up in time
        opener.wait_until_it_waits()
        made(shm, path.name, b"another")
        go_on(child)
        done = outcome.result()
        float(opener.came())
    assert done.result is Result.SPARED
    assert done.detail.endswith(f"another was made of its name meanwhile: it is called {hidden.name} now")
    assert (path.read_bytes(), hidden.read_bytes()[:1]) == (b"another", b"x")
    stop_before("nothing")
    assert removed(shm, removal_of(hidden, shm)).detail == "it is in use"
    opener.end()
    assert removed(shm, removal_of(hidden, shm)).result is Result.DONE
    assert names(shm) == [path.name]


@pytest.mark.parametrize("who", ["child", "Remover"])
def test_a_full_tmpfs_keeps_no_file_from_getting_its_name_back(who: str, tmp_path: Path, stop_before: Stop) -> None:
    """A second name takes an inode there, and none may be left."""
    needs_root()
    stop_before("look at the lease")
    with mounted(tmp_path / "shm", "size=1M,nr_inodes=20") as folder:
        path = made(folder)
        with removing(folder, removal_of(path, folder), PATIENT if who == "child" else 1.0) as outcome:
            child = stopped_child()
            opener = Opener(hidden_in(folder))
            opener.wait_until_it_waits()
            with pytest.raises(OSError, match="No space left"):
                fill(folder)
            if who == "child":
                go_on(child)
            assert outcome.result().result is (Result.SPARED if who == "child" else Result.FAILED)
            float(opener.came())
        assert path.read_bytes()[:1] == b"x"
        assert not list(folder.glob(".llmhost*"))
        opener.end()


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_a_clean_up_leaves_that_is_killed_with_its_child_is_for_the_next(
    moment: str, shm: Path, tmp_path: Path
) -> None:
    """`systemctl kill` kills both, so that nothing is put back."""
    path = made(shm, "joblib_memmapping_folder_7_ab_cd/1-2.pkl")
    segment = removal_of(path, shm).segment
    root = os.open(shm, os.O_RDONLY | os.O_DIRECTORY)
    program = [sys.executable, "-I", "-S", str(stopping_program(tmp_path, moment)), str(root)]
    with subprocess.Popen(program, stdin=-1, stdout=-1, pass_fds=(root,)) as child:
        assert child.stdin is not None
        request = lease_program.RemovalRequest(
            segment.path,
            ".llmhost-removing.0a1b2c3d.1-2.pkl",
            segment.id.device,
            segment.id.inode,
            segment.changed_at,
            0.01,
        )
        child.stdin.write(json.dumps(request._asdict()).encode() + b"\n")
        child.stdin.flush()
        assert stopped_child() == child.pid
        child.kill()
    os.close(root)
    (remaining,) = [path for path in shm.rglob("*") if path.is_file()]
    removal = removal_of(remaining, shm)
    assert (removal.segment.kind, removal.segment.creator_pid) == (segment.kind, 7)
    assert removed(shm, removal).result is Result.DONE
    assert names(path.parent) == []


class Interrupted(BaseException):
    pass


def test_a_removal_that_we_are_interrupted_in_is_done_whole(shm: Path, stop_before: Stop) -> None:
    stop_before("unlink")
    path = made(shm)

    def interrupt(*_: object) -> None:
        raise Interrupted

    def from_outside() -> None:
        child = stopped_child()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        time.sleep(0.05)  # for whoever would end the child at once
        go_on(child)

    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=from_outside)
    try:
        thread.start()
        with Remover(shm, most_seconds=PATIENT) as remover, pytest.raises(Interrupted):
            remover.remove(removal_of(path, shm))
        assert names(shm) == []
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_child_that_hangs_in_the_kernel_is_left_and_the_file_has_its_name(
    shm: Path, stop_before: Stop, keep_from_dying: Callable[[int], Callable[[], None]]
) -> None:
    stop_before("look at the lease")
    path = made(shm)
    with removing(shm, removal_of(path, shm), most_seconds=1.5) as outcome:
        child = stopped_child()
        let_die = keep_from_dying(child)
        assert outcome.result(10).result is Result.FAILED
        assert names(shm) == [path.name]
        let_die()
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("moment", "first", "second"),
    [
        ("open", Result.GONE, Result.DONE),
        ("take the lease", Result.DONE, Result.SPARED),
        ("rename", Result.SPARED, Result.SPARED),
        ("look at the lease", Result.DONE, Result.GONE),
        ("unlink", Result.DONE, Result.GONE),
    ],
)
def test_of_two_that_remove_a_file_at_once_one_does_or_both_spare_it_whole(
    moment: str, first: Result, second: Result, shm: Path, stop_before: Stop
) -> None:
    stop_before(moment)
    path = made(shm, content=b"whole")
    removal = removal_of(path, shm)
    with removing(shm, removal) as outcome:
        child = stopped_child()
        stop_before("nothing")
        other = removed(shm, removal)
        go_on(child)
        assert (outcome.result().result, other.result) == (first, second)
    if Result.DONE in {first, second}:
        assert names(shm) == []
    else:
        assert (names(shm), path.read_bytes()) == ([path.name], b"whole")


def test_a_folder_that_a_user_makes_a_file_system_that_never_answers_is_not_waited_for(shm: Path) -> None:
    path = made(shm, "joblib_memmapping_folder_7_ab_cd/1-2.pkl")
    other = made(shm)
    removals = [removal_of(path, shm), removal_of(other, shm)]
    with hung_fuse(path.parent), Remover(shm) as remover:
        outcomes = [remover.remove(removal) for removal in removals]
    assert [outcome.result for outcome in outcomes] == [Result.FAILED, Result.DONE]
    assert outcomes[0].detail.startswith("the check took longer than 1 s, and so does its folder; it may be called ")
    assert [path.name for path in path.parent.iterdir()] == [path.name]


def test_where_the_check_cannot_run_nothing_is_removed_and_that_is_reported(
    shm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(shm)
    monkeypatch.setattr(lease_program, "__file__", "/nonexistent")
    outcome = removed(shm, removal_of(path, shm))
    assert (outcome.result, names(shm)) == (Result.FAILED, [path.name])
    assert outcome.detail == f"cannot check it: {sys.executable} was ended by somebody"
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    assert removed(shm, removal_of(path, shm)).detail == "cannot check it: No such file or directory"
