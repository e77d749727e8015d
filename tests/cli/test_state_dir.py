"""`--state-dir`: which directory is used, what is said of it, and that history outlives the daemon."""

import logging
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.daemon import LLMHOST, Daemon, environment
from tests.fakes.histories import BIG, FILE_1, OLLAMA, WRITTEN_DOWN
from tests.fakes.other_users import as_nobody, llmhost_for_all, open_path

from llmhost.model.history.history import History
from llmhost.state import saved_history
from llmhost.state.history_document import history_of
from llmhost.state.history_file import HistoryFile

__all__ = ["open_path"]

BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def llmhost(*arguments: str, state: str | None = None) -> subprocess.CompletedProcess[str]:
    env = environment({} if state is None else {"STATE_DIRECTORY": state})
    return subprocess.run([*LLMHOST, *arguments], env=env, capture_output=True, text=True, check=False, timeout=120)


def stamps(directory: Path) -> dict[str, tuple[int, bytes]]:
    files = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in directory.iterdir()}
    return files | {".": (directory.stat().st_mtime_ns, b"")}


def of_this_boot(directory: Path) -> History:
    """Leave a history in the directory as a daemon of this boot would have."""
    history = replace(WRITTEN_DOWN, boot_id=BOOT_ID)
    store = HistoryFile(directory)
    store.save(history, durable=False)
    store.close()
    return history


@pytest.mark.parametrize("once", [(), ("--once",)])
def test_a_directory_that_was_given_and_cannot_be_used_is_one_line(once: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for directory, complaint in ((tmp_path / "none", "No such file or directory"), (file, "Not a directory")):
        done = llmhost("serve", "--web.listen-address", "127.0.0.1:0", "--state-dir", str(directory), *once)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"llmhost: {directory} cannot be used: {complaint}\n"


def test_a_directory_that_may_not_be_written_to_is_one_line(open_path: Path) -> None:
    unprivileged = as_nobody("--bounding-set=-all") + llmhost_for_all()
    command = [*unprivileged, "serve", "--web.listen-address", "127.0.0.1:0", "--state-dir", str(open_path)]
    for _ in range(2):
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=120)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"llmhost: {open_path} cannot be used: Permission denied\n"
        of_this_boot(open_path)  # now there is a lock file of root's


def test_a_second_daemon_names_the_holder_of_the_directory(tmp_path: Path) -> None:
    with Daemon("--state-dir", str(tmp_path)) as daemon:
        done = llmhost("serve", "--web.listen-address", "127.0.0.1:0", "--state-dir", str(tmp_path))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"llmhost: {tmp_path} is in use by another llmhost (pid {daemon.process.pid})\n"
        with Daemon(env={"STATE_DIRECTORY": str(tmp_path)}) as other:  # nobody said that it must be there
            other.logged(rf"WARNING history is kept in memory only, and lost at the end: {tmp_path} is in use by .*\n")
            assert other.get()[0] == 200


def test_the_first_of_systemds_directories_is_used(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with Daemon(env={"STATE_DIRECTORY": f"{first}:{second}"}) as daemon:
        daemon.logged(rf"INFO history is kept in {first}/history\.json; units in it: 0\n")
        assert daemon.end()[0] == 0
    assert history_of((first / "history.json").read_bytes()).boot_id == BOOT_ID
    assert list(second.iterdir()) == []


def test_what_a_page_is_made_from_is_saved_before_it_is_served(tmp_path: Path) -> None:
    with Daemon("--state-dir", str(tmp_path)) as daemon:
        assert daemon.get()[0] == 200
        daemon.end(signal.SIGKILL)
    history = history_of((tmp_path / "history.json").read_bytes())
    assert history.boot_id == BOOT_ID
    assert history.processes_at is not None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_next_daemon_goes_on_with_what_one_has_left(number: signal.Signals, tmp_path: Path) -> None:
    before = of_this_boot(tmp_path)
    for _ in range(2):
        with Daemon("--state-dir", str(tmp_path)) as daemon:
            daemon.logged(rf"INFO history is kept in {tmp_path}/history\.json; units in it: 2\n")
            assert daemon.get()[0] == 200
            daemon.end(number)
        after = history_of((tmp_path / "history.json").read_bytes())
        assert after.units.keys() == {BIG, OLLAMA}
        assert after.units[BIG].starts == before.units[BIG].starts
        assert after.units[BIG].starts_total == before.units[BIG].starts_total
        assert after.gpu_sets == before.gpu_sets


def test_once_reads_history_and_leaves_everything_as_it_is(tmp_path: Path) -> None:
    of_this_boot(tmp_path)
    before = stamps(tmp_path)
    for held in (False, True):
        holder = HistoryFile(tmp_path) if held else None
        before = stamps(tmp_path)
        done = llmhost("serve", "--once", "--log.level=error", "--state-dir", str(tmp_path))
        if holder is not None:
            holder.close()
        assert (done.returncode, done.stderr) == (0, "")
        assert "llmhost_build_info" in done.stdout
        assert stamps(tmp_path) == before
    (tmp_path / "history.json").write_text("garbage")
    before = stamps(tmp_path)
    done = llmhost("serve", "--once", state=str(tmp_path))
    assert done.returncode == 0
    (line,) = [line for line in done.stderr.splitlines() if "history.json" in line]
    path = tmp_path / "history.json"
    assert f"WARNING there is no history: {path} is no history that can be used: it is no JSON: " in line
    assert stamps(tmp_path) == before


def test_a_file_that_is_no_history_does_not_keep_the_daemon_from_serving(tmp_path: Path) -> None:
    (tmp_path / "history.json").write_bytes(FILE_1.read_bytes()[:700])
    with Daemon("--state-dir", str(tmp_path)) as daemon:
        assert len(daemon.log.split("is no history that can be used")) == 2
        daemon.logged("units in it: 0\n")
        assert daemon.get()[0] == 200
        assert daemon.end()[0] == 0
    (aside,) = tmp_path.glob("history.json.bad-*")
    assert aside.read_bytes() == FILE_1.read_bytes()[:700]
    assert history_of((tmp_path / "history.json").read_bytes()).units == {}


def test_a_directory_that_goes_while_it_runs_costs_no_page_and_is_logged_once(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    with Daemon("--state-dir", str(state)) as daemon:
        state.rename(tmp_path / "away")
        assert daemon.get()[0] == 200
        assert daemon.get()[0] == 200
        state.mkdir()
        assert daemon.get()[0] == 200
        daemon.logged(r"history is saved again in \S+/state/history\.json\n")
        assert daemon.end()[0] == 0
        assert daemon.log.count("history is not saved: ") == 1
    assert history_of((state / "history.json").read_bytes()).boot_id == BOOT_ID


def test_without_a_word_the_usual_directory_is_used_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(saved_history, "DEFAULT_STATE", tmp_path / "usual")
    for environment_ in ({}, {"STATE_DIRECTORY": ""}):
        without = saved_history.open_history(None, "boot", environment_)
        without.log_where()
        assert (without.history, without.save) == (History(boot_id="boot"), None)
    (tmp_path / "usual").mkdir()
    there = saved_history.open_history(None, "boot", {})
    there.log_where()
    there.close(there.history)
    assert saved_history.read_history(None, "boot", {}).history == History(boot_id="boot")
    said = "history is kept in memory only, and lost at the end: say with --state-dir where to keep it"
    assert caplog.messages == [said, said, f"history is kept in {tmp_path}/usual/history.json; units in it: 0"]
