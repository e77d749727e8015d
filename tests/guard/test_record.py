"""Records of guard runs: counted, whole, and trusted only from root and ourselves."""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.fakes.needs import needs_root

from llmhost.model.guard_run import GuardRun, GuardVerdict
from llmhost.model.ids import UnitId
from llmhost.state.directory import StoreError
from llmhost.state.guard_record import GuardRecords, record

UNIT = UnitId("vllm@a.service")


def read(run: Path) -> tuple[GuardRun, ...]:
    return GuardRecords(run).read(time.monotonic() + 5)


def test_runs_are_counted_by_verdict_and_the_last_is_shown(tmp_path: Path) -> None:
    assert read(tmp_path) == ()
    record(tmp_path, UNIT, GuardVerdict.HELD, at=100.0, wait_seconds=85.0)
    record(tmp_path, UNIT, GuardVerdict.HELD, at=200.0, wait_seconds=85.0)
    record(tmp_path, UNIT, GuardVerdict.FREE, at=300.0, wait_seconds=34.25)
    assert read(tmp_path) == (
        GuardRun(
            unit=UNIT,
            at=300.0,
            wait_seconds=34.25,
            verdict=GuardVerdict.FREE,
            runs_total={GuardVerdict.HELD: 2, GuardVerdict.FREE: 1},
        ),
    )


def test_no_run_is_lost_when_several_guards_end_at_once(tmp_path: Path) -> None:
    """A guard does not wait for one that writes slowly; here writing may be slow, as the machine may be busy."""
    end = (
        "import sys; from pathlib import Path\n"
        "from llmhost.state import guard_record; guard_record._LOCK_SECONDS = 30\n"
        "from llmhost.state.guard_record import record, GuardVerdict, UnitId\n"
        "unit = UnitId('vllm@a.service')\n"
        "for _ in range(20): record(Path(sys.argv[1]), unit, GuardVerdict.FREE, at=1.0, wait_seconds=1.0)"
    )
    guards = [subprocess.Popen([sys.executable, "-c", end, str(tmp_path)]) for _ in range(4)]
    assert [guard.wait(30) for guard in guards] == [0, 0, 0, 0]
    (run,) = read(tmp_path)
    assert run.runs_total == {GuardVerdict.FREE: 80}


def test_an_invalid_record_costs_itself_only_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record(tmp_path, UNIT, GuardVerdict.FREE, at=1.0, wait_seconds=1.0)
    folder = tmp_path / "guards"
    (folder / "cut.service").write_text((folder / UNIT.name).read_text()[:-20])
    (folder / "other.service").write_text((folder / UNIT.name).read_text())
    (folder / "huge.service").write_text(" " * 70_000)
    (folder / "link.service").symlink_to(folder / UNIT.name)
    os.mkfifo(folder / "pipe.service")
    records = GuardRecords(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            (run,) = records.read(time.monotonic() + 5)
            assert run.unit == UNIT
    messages = [message.getMessage() for message in caplog.records]
    assert len(messages) == 5
    assert any(
        "other.service is no valid record of a guard: it is of vllm@a.service" in message for message in messages
    )


def test_a_record_of_another_user_counts_for_nothing(tmp_path: Path) -> None:
    needs_root()
    record(tmp_path, UNIT, GuardVerdict.HELD, at=1.0, wait_seconds=1.0)
    os.chown(tmp_path / "guards" / UNIT.name, 65534, -1)
    assert read(tmp_path) == ()
    record(tmp_path, UNIT, GuardVerdict.FREE, at=2.0, wait_seconds=1.0)
    (run,) = read(tmp_path)
    assert run.runs_total == {GuardVerdict.FREE: 1}, "theirs is not counted on"
    os.chown(tmp_path / "guards", 65534, -1)
    with pytest.raises(StoreError, match="cannot be written"):
        record(tmp_path, UNIT, GuardVerdict.FREE, at=3.0, wait_seconds=1.0)


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    for name in ("../x.service", ".x.service"):
        with pytest.raises(StoreError, match="no unit's name"):
            record(tmp_path, UnitId(name), GuardVerdict.FREE, at=1.0, wait_seconds=1.0)
