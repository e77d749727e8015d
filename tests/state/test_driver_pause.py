"""Requests for a driver pause: by which user, for how long, and over a boot."""

import json
import logging
import os
import stat
from pathlib import Path

import pytest
from tests.fakes.needs import needs_root

from llmhost.state.directory import StoreError
from llmhost.state.driver_pause import PauseRequest, ask, withdraw
from llmhost.state.run_directory import make_directory

BOOT = "5f0c5b3e-8a37-4a2f-9d6e-0d6a3c1b7f11"
GOOD = {"format": "llmhost driver release", "version": 1, "boot_id": BOOT, "until_boottime_seconds": 1300.0}


class Now:
    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def request_in(directory: Path, now: Now | None = None) -> PauseRequest:
    return PauseRequest(directory, boot_id=BOOT, boottime=now or Now())


def test_it_holds_until_its_time_and_can_be_taken_back(tmp_path: Path) -> None:
    run, now = tmp_path / "run" / "llmhost", Now()
    request = request_in(run, now)
    assert request.remaining_seconds() == 0.0
    ask(run, boot_id=BOOT, until_boottime_seconds=1300.0)
    assert request.remaining_seconds() == 300.0
    now.seconds = 1299.5
    assert request.remaining_seconds() == 0.5
    now.seconds = 1300.0
    assert request.remaining_seconds() == 0.0
    ask(run, boot_id=BOOT, until_boottime_seconds=1310.0)
    assert request.remaining_seconds() == 10.0
    ask(run, boot_id=BOOT, until_boottime_seconds=1302)  # the later one counts, also where it is shorter
    assert request.remaining_seconds() == 2.0
    assert withdraw(run)
    assert request.remaining_seconds() == 0.0
    assert not withdraw(run)
    assert list(run.iterdir()) == []


def test_everybody_may_read_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        ask(tmp_path, boot_id=BOOT, until_boottime_seconds=1300.0)
    finally:
        os.umask(before)
    assert (tmp_path / "release").stat().st_mode & 0o777 == 0o644


def test_it_is_over_after_a_boot_without_a_complaint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ask(tmp_path, boot_id="another boot", until_boottime_seconds=1300.0)
    assert request_in(tmp_path).remaining_seconds() == 0.0
    assert caplog.text == ""


@pytest.mark.parametrize(
    "content",
    [
        "",
        "until noon",
        "[]",
        "\xff",
        json.dumps(GOOD | {"format": "llmhost guard record"}),
        json.dumps(GOOD | {"version": 2}),
        json.dumps(GOOD | {"until_boottime_seconds": "1300"}),
        json.dumps(GOOD | {"until_boottime_seconds": None}),
        json.dumps(GOOD | {"until_boottime_seconds": True}),
        json.dumps(GOOD | {"until_boottime_seconds": float("nan")}),
        json.dumps(GOOD | {"until_boottime_seconds": float("inf")}),
        json.dumps(GOOD | {"until_boottime_seconds": 1000.0 + 3602}),  # an hour is the most
        json.dumps(GOOD) + " " * 4096,
    ],
)
def test_an_invalid_request_is_logged_once_and_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    (tmp_path / "release").write_bytes(content.encode("latin-1"))
    request = request_in(tmp_path)
    assert [request.remaining_seconds() for _ in range(3)] == [0.0] * 3
    (line,) = caplog.messages
    assert line.startswith(f"{tmp_path}/release is no valid request: ")


def test_an_hour_may_be_requested(tmp_path: Path) -> None:
    ask(tmp_path, boot_id=BOOT, until_boottime_seconds=1000.0 + 3600)
    assert request_in(tmp_path).remaining_seconds() == 3600.0


def test_another_users_file_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    needs_root()
    ask(tmp_path, boot_id=BOOT, until_boottime_seconds=1300.0)
    os.chown(tmp_path / "release", 65534, 65534)
    request = request_in(tmp_path)
    assert request.remaining_seconds() == 0.0
    assert "it belongs to user 65534" in caplog.text
    ask(tmp_path, boot_id=BOOT, until_boottime_seconds=1300.0)  # one of ours takes its place
    assert request.remaining_seconds() == 300.0


def test_what_is_no_file_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    real = tmp_path / "real"
    ask(real, boot_id=BOOT, until_boottime_seconds=1300.0)
    for kind in ("link", "fifo", "folder"):
        run = tmp_path / kind
        run.mkdir()
        if kind == "link":
            (run / "release").symlink_to(real / "release")
        elif kind == "fifo":
            os.mkfifo(run / "release")
        else:
            (run / "release").mkdir()
        assert request_in(run).remaining_seconds() == 0.0
    assert len(caplog.messages) == 3


def test_where_it_cannot_be_written_it_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file/release cannot be written: (Not a directory|File exists)"):
        ask(tmp_path / "file", boot_id=BOOT, until_boottime_seconds=1300.0)
    with pytest.raises(StoreError, match=r"file/release cannot be removed: Not a directory"):
        withdraw(tmp_path / "file")
    assert not withdraw(tmp_path / "nowhere")


def test_a_directory_of_another_user_is_not_written_to(tmp_path: Path) -> None:
    needs_root()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    with pytest.raises(StoreError, match="cannot be written: the folder is neither root's nor of this user"):
        ask(theirs, boot_id=BOOT, until_boottime_seconds=1300.0)
    assert list(theirs.iterdir()) == []


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_run_directory_is_for_all_to_read_and_us_to_write_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        make_directory(tmp_path / "run" / "llmhost")
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("run", "run/llmhost")] == [0o755, 0o755]
