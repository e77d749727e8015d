"""The history's file: whole or as it was, ours alone, and never a reason not to run."""

import logging
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.histories import BIG, BOOT, FILE_1, SECOND_RUN, WRITTEN_DOWN, with_starts
from tests.fakes.history_files import SAVED_AT, names, store_in
from tests.fakes.needs import needs, needs_root

from llmhost.model.history.history import History
from llmhost.runtime.trusted_path import trusted_owners
from llmhost.state.directory import StoreError
from llmhost.state.history_document import history_of
from llmhost.state.history_file import HistoryFile, UnreadableHistoryError, open_for_reading
from llmhost.state.saved_history import read_history


def test_what_is_saved_is_loaded_by_the_next_one(tmp_path: Path) -> None:
    for durable in (False, True):
        with store_in(tmp_path) as store:
            store.save(History(boot_id="before"), durable=durable)
            store.save(WRITTEN_DOWN, durable=durable)
        with store_in(tmp_path) as store:
            assert store.load(BOOT) == WRITTEN_DOWN
    assert names(tmp_path) == ["history.json", "lock"]


def test_where_there_is_no_file_there_is_no_history(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with store_in(tmp_path) as store:
        assert store.load(BOOT) is None
    assert caplog.text == ""


def test_what_is_of_one_boot_is_forgotten_in_the_next(tmp_path: Path) -> None:
    (tmp_path / "history.json").write_bytes(FILE_1.read_bytes())
    with store_in(tmp_path) as store:
        history = store.load("another boot")
    assert history is not None
    assert history.boot_id == "another boot"
    assert history.process_runs == {}
    assert history.units[BIG].starts_total == WRITTEN_DOWN.units[BIG].starts_total
    end = history.units[BIG].starts[-1].end
    assert end is not None
    assert end.at == 1764467990.25  # when the unit was last seen


def test_the_file_is_for_its_owner_and_group_whatever_the_umask(tmp_path: Path) -> None:
    for umask in (0o000, 0o077):
        before = os.umask(umask)
        try:
            with store_in(tmp_path) as store:
                store.save(WRITTEN_DOWN, durable=False)
        finally:
            os.umask(before)
        assert (tmp_path / "history.json").stat().st_mode & 0o7777 == 0o640


def test_a_history_of_another_users_is_none_to_a_guard(tmp_path: Path) -> None:
    needs_root()
    (tmp_path / "history.json").write_bytes(FILE_1.read_bytes())
    owners = trusted_owners()
    assert read_history(tmp_path, BOOT, {}, owners=owners).history == WRITTEN_DOWN
    os.chown(tmp_path / "history.json", 65534, -1)
    saved = read_history(tmp_path, BOOT, {}, owners=owners)
    assert (saved.history, "it belongs to user 65534" in saved.fault) == (History(boot_id=BOOT), True)


def test_a_lock_cannot_be_taken_by_another_user() -> None:
    needs_root()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # as StateDirectory= is
        with store_in(Path(folder)):
            pass
        takes = [needs("flock"), "--nonblock", f"{folder}/lock", "true"]
        done = subprocess.run(
            takes, user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=False
        )
        assert (done.returncode != 0, "Permission denied" in done.stderr) == (True, True)


def test_a_link_in_place_of_the_file_is_neither_read_nor_written_through(tmp_path: Path) -> None:
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    state.mkdir()
    elsewhere.write_bytes(FILE_1.read_bytes())
    (state / "history.json").symlink_to(elsewhere)
    (state / "history.json.new").symlink_to(elsewhere)
    with store_in(state) as store:
        assert store.load(BOOT) is None
        (state / "history.json").symlink_to(elsewhere)
        store.save(History(boot_id="x"), durable=False)
    assert elsewhere.read_bytes() == FILE_1.read_bytes()
    assert not (state / "history.json").is_symlink()
    assert history_of((state / "history.json").read_bytes()) == History(boot_id="x")


def test_a_file_cut_off_anywhere_is_put_aside_and_three_such_files_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = FILE_1.read_bytes()
    for count, length in enumerate(range(0, len(whole) - 2, 50)):
        (tmp_path / "history.json").write_bytes(whole[:length])
        with store_in(tmp_path, at=SAVED_AT + count) as store:
            assert store.load(BOOT) is None
        (record,) = caplog.records
        assert record.levelno == logging.ERROR
        caplog.clear()
        aside = [name for name in names(tmp_path) if name.startswith("history.json.bad-")]
        assert len(aside) == min(3, count + 1)
        assert (tmp_path / aside[-1]).read_bytes() == whole[:length]
        assert not (tmp_path / "history.json").exists()
    assert count > 50


@pytest.mark.parametrize("kind", ["folder", "fifo", "large", "newer"])
def test_what_is_no_file_of_ours_is_put_aside(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "history.json"
    match kind:
        case "folder":
            file.mkdir()
        case "fifo":
            os.mkfifo(file)
        case "large":
            file.write_bytes(FILE_1.read_bytes() + b" " * 10_000)
        case _:
            file.write_text('{"format": "llmhost history", "version": 2}')
    with store_in(tmp_path, most_bytes=10_000) as store:
        assert store.load(BOOT) is None
        store.save(History(), durable=False)
    expected = {
        "folder": "it is no regular file",
        "fifo": "it is no regular file",
        "large": "it is larger than 10000 bytes",
        "newer": "it is of version 2, from a newer llmhost; this one reads version 1",
    }
    aside = "it is put aside as history.json.bad-20251130T020000Z"
    assert caplog.messages == [f"{file} is no history that can be used ({expected[kind]}): {aside}"]
    assert names(tmp_path) == ["history.json", "history.json.bad-20251130T020000Z", "lock"]


def test_a_copy_that_is_on_the_disk_is_taken_where_the_file_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with store_in(tmp_path) as store:
        store.save(WRITTEN_DOWN, durable=False)
        store.sync()
        store.sync()  # of the same file
        assert names(tmp_path) == ["history.json", "history.json.synced", "lock"]
        store.save(History(boot_id=BOOT), durable=False)
    (tmp_path / "history.json").unlink()
    (tmp_path / "history.json").touch()  # as a power failure leaves it
    with store_in(tmp_path) as store:
        assert store.load(BOOT) == WRITTEN_DOWN
    assert "(it is empty)" in caplog.messages[0]
    assert caplog.messages[1] == f"history goes on from {tmp_path / 'history.json.synced'}"


def test_a_directory_has_one_exporter_at_a_time(tmp_path: Path) -> None:
    with store_in(tmp_path):
        with pytest.raises(StoreError) as refused:
            HistoryFile(tmp_path)
        assert str(refused.value) == f"{tmp_path} is in use by another llmhost (pid {os.getpid()})"
    with store_in(tmp_path):
        pass


def test_a_directory_that_cannot_be_used_is_reported_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for directory, complaint in ((tmp_path / "none", "No such file or directory"), (file, "Not a directory")):
        with pytest.raises(StoreError) as refused:
            HistoryFile(directory)
        assert str(refused.value) == f"{directory} cannot be used: {complaint}"
        with pytest.raises(StoreError) as refused:
            open_for_reading(directory, BOOT)
        assert str(refused.value) == f"{directory} cannot be used: {complaint}"


def test_a_reader_changes_nothing_and_needs_no_lock(tmp_path: Path) -> None:
    unjudged = replace(WRITTEN_DOWN.units[BIG].starts[1], verdict=None, in_the_way=())
    record = replace(WRITTEN_DOWN.units[BIG], starts=(unjudged,))
    history = replace(WRITTEN_DOWN, units={BIG: record})
    with store_in(tmp_path) as store:
        assert open_for_reading(tmp_path, BOOT) is None
        store.save(history, durable=False)
        read = open_for_reading(tmp_path, BOOT)
        assert read == history
        assert read.units[BIG].starts[0].invocation_id == SECOND_RUN
        rebooted = open_for_reading(tmp_path, "another boot")
        assert rebooted is not None
        assert rebooted.process_runs == {}
    (tmp_path / "history.json").write_text("{")
    before = [(path.name, path.stat().st_mtime_ns) for path in (tmp_path, *sorted(tmp_path.iterdir()))]
    with pytest.raises(UnreadableHistoryError) as unreadable:
        open_for_reading(tmp_path, BOOT)
    assert [(path.name, path.stat().st_mtime_ns) for path in (tmp_path, *sorted(tmp_path.iterdir()))] == before
    assert str(unreadable.value).startswith(
        f"{tmp_path / 'history.json'} is no history that can be used: it is no JSON: "
    )


# Saves two histories by turns until it is killed, 100 times: after its first or second save, each time 0.1 ms later.
KILLED = """
import os, signal, sys, time
from pathlib import Path
from tests.fakes.histories import with_starts
from llmhost.state.history_document import history_of
from llmhost.state.history_file import HistoryFile
directory = Path(sys.argv[1])
histories = [with_starts(units, 10) for units in (5, 50)]
lengths = set()
for number in range(100):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        store = HistoryFile(directory)
        while True:
            for history in histories:
                store.save(history, durable=False)
                os.write(writer, b".")
    for _ in range(1 + number % 2):
        os.read(reader, 1)
    time.sleep(number / 10_000)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    content = (directory / "history.json").read_bytes()
    assert history_of(content) in histories
    lengths.add(len(content) // 1000)
    assert {path.name for path in directory.iterdir()} <= {"history.json", "history.json.new", "lock"}
print(len(lengths))
"""


def test_a_file_is_whole_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(command, cwd=FILE_1.parents[2], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")
    with store_in(tmp_path) as store:
        assert store.load(BOOT) in (with_starts(5, 10), with_starts(50, 10))
        store.save(History(), durable=False)
    assert names(tmp_path) == ["history.json", "lock"]


def test_after_the_end_nothing_is_saved(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.save(WRITTEN_DOWN, durable=True)
    store.save(History(), durable=False)
    assert history_of((tmp_path / "history.json").read_bytes()) == WRITTEN_DOWN


def test_a_full_file_system_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    needs_root()
    subprocess.run([needs("mount"), "-t", "tmpfs", "-o", "size=64k", "llmhost-test", str(tmp_path)], check=True)
    try:
        with store_in(tmp_path) as file:
            file.save(WRITTEN_DOWN, durable=True)
            with pytest.raises(StoreError, match=r"history\.json cannot be written: No space left on device"):
                file.save(with_starts(50, 10), durable=False)
            assert file.load(BOOT) == WRITTEN_DOWN
            assert names(tmp_path) == ["history.json", "lock"]
            file.save(History(), durable=False)
    finally:
        subprocess.run([needs("umount"), str(tmp_path)], check=True)
