"""A segment is removed only once the processes of the plan that may open it have ended."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.removals import made, removal_of, shm
from tests.fakes.values import process

from llmhost.act.carry_out import Interrupts, carry_out
from llmhost.config.paths import Paths
from llmhost.decide.cleanup.steps import Condition, Ending, Plan, Result
from llmhost.model.ids import ProcessId
from llmhost.sources.procfs_files import parse_stat

__all__ = ["shm"]


@pytest.mark.parametrize("ends", [True, False])
def test_a_segment_is_removed_only_once_the_processes_before_it_have_ended(shm: Path, ends: bool) -> None:
    path = made(shm)
    child = subprocess.Popen(["sleep", "1000"])
    try:
        ticks = parse_stat(Path(f"/proc/{child.pid}/stat").read_bytes()).start_ticks
        ended = replace(process(child.pid), id=ProcessId(child.pid, ticks if ends else ticks - 1))  # or another one
        ending = Ending(process=ended, condition=Condition.ORPHAN, unit=None, gpu_bytes=None, because="")
        removal = replace(removal_of(path, shm), after=frozenset({ended.id}))
        report = carry_out(Plan(endings=(ending,), removals=(removal,)), Paths(shm=shm), Interrupts())
    finally:
        child.kill()
        child.wait()
    _, outcome = report.outcomes
    assert path.exists() is not ends
    assert outcome.result is (Result.DONE if ends else Result.SPARED)
    assert outcome.detail == ("" if ends else f"process {child.pid} has not ended, and may come for it")


def test_processes_are_ended_where_there_is_no_tmpfs(tmp_path: Path) -> None:
    ended = replace(process(os.getpid()), id=ProcessId(os.getpid(), 1))
    ending = Ending(process=ended, condition=Condition.ORPHAN, unit=None, gpu_bytes=None, because="")
    report = carry_out(Plan(endings=(ending,)), Paths(shm=tmp_path / "none"), Interrupts())
    assert [outcome.result for outcome in report.outcomes] == [Result.SPARED]


def test_files_that_cannot_be_reached_are_reported_and_what_was_ended_before_too(shm: Path, tmp_path: Path) -> None:
    ended = replace(process(os.getpid()), id=ProcessId(os.getpid(), 1))
    ending = Ending(process=ended, condition=Condition.ORPHAN, unit=None, gpu_bytes=None, because="")
    plan = Plan(endings=(ending,), removals=(removal_of(made(shm), shm),))
    report = carry_out(plan, Paths(shm=tmp_path / "none"), Interrupts())
    assert [outcome.result for outcome in report.outcomes] == [Result.SPARED, Result.FAILED]
    assert report.outcomes[1].detail == "cannot check it: No such file or directory"
    assert not report.complete
