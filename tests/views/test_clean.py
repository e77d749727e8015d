"""The report of `llmhost clean`, line by line."""

import json
import re

from tests.fakes.clean_plans import ROOT, host, planned
from tests.fakes.orphan_trees import TRACKER, run
from tests.fakes.values import GIB, gpu, held, segment

from llmhost.decide.cleanup.steps import CleanupReport, Ending, Outcome, Plan, Result
from llmhost.model.reading import Ok
from llmhost.model.segment import SegmentKind
from llmhost.views.clean.as_json import clean_json
from llmhost.views.clean.text import plan_text, report_text
from llmhost.views.text import columns

PATHS = ("nccl-AbCdEf", "nccl-GhIjKl", "vllm_dist_8e9daca0bd034e93bb87d243e511867e-tp:0-[0-1]-cpushm_0")


def a_plan() -> Plan:
    """Give a core with 60 GiB, a worker, their tracker; three files of 1 MiB each."""
    tree = [
        run(31, TRACKER, pipes={31: 120}),
        run(40, "VLLM::EngineCore", pipes={24: 121, 32: 120, 40: 122}),
        run(50, "VLLM::Worker_TP0", 40, pipes={24: 122, 32: 120}),
    ]
    files = [
        segment(inode, path=path, kind=SegmentKind.NCCL, allocated_bytes=1 << 20, inspected_at=5000.0)
        for inode, path in enumerate(PATHS, 5)
    ]
    return planned(host(tree, files, gpus=[gpu(holders=Ok((held(40, 60 * GIB),)))]))


def test_all_that_was_done_and_what_that_freed() -> None:
    plan = a_plan()
    core, worker, tracker = plan.endings
    outcomes = (
        Outcome(step=core, result=Result.DONE, detail="after SIGTERM", seconds=1.25),
        Outcome(step=worker, result=Result.GONE, detail="it has ended by itself", seconds=0.0),
        Outcome(step=tracker, result=Result.DONE, detail="by itself, as what it belonged to had ended", seconds=0.2),
        Outcome(step=plan.removals[0], result=Result.DONE, detail=""),
        Outcome(step=plan.removals[1], result=Result.SPARED, detail="somebody has it open or mapped"),
        Outcome(step=plan.removals[2], result=Result.DONE, detail=""),
    )
    report = CleanupReport(plan=plan, outcomes=outcomes)
    assert report_text(report).splitlines() == [
        "DONE",
        "  ended          40 VLLM::EngineCore (1.2 s): after SIGTERM",
        "  gone by itself 50 VLLM::Worker_TP0: it has ended by itself",
        "  ended          31 python3 (0.2 s): by itself, as what it belonged to had ended",
        "  removed        2 files (2.0 MiB): nccl-AbCdEf,",
        "                 vllm_dist_8e9daca0bd034e93bb87d243e511867e-tp:0…",
        "  spared         nccl-GhIjKl (1.0 MiB): somebody has it open or mapped",
        "",
        "freed 60 GiB of GPU memory, 2.0 MiB of shared memory",
        "what the ended processes held may be left over by now: clean again to see",
    ]
    assert report.complete  # what is in use was spared, as it should be
    document = json.loads(clean_json(plan, report))
    assert (document["schema_version"], document["applied"], document["complete"], document["not_begun"]) == (
        1,
        True,
        True,
        [],
    )
    assert document["freed"] == {"gpu_bytes": 60 * GIB, "shm_bytes": 2 << 20}
    assert [outcome["result"] for outcome in document["outcomes"]] == ["done", "gone", "done", "done", "spared", "done"]
    assert document["outcomes"][0] | {"because": ""} == {
        "step": "end",
        "process": {
            "pid": 40,
            "start_ticks": 1000,
            "comm": "VLLM::EngineCor",
            "engine": "vllm",
            "role": "core",
            "uid": 0,
        },
        "condition": "orphan",
        "unit": None,
        "manager": None,
        "gpu_bytes": 60 * GIB,
        "because": "",
        "result": "done",
        "detail": "after SIGTERM",
        "seconds": 1.25,
    }
    assert document["removals"][0]["file"]["path"] == "nccl-AbCdEf"


def test_what_the_second_look_no_longer_finds_is_told_with_its_sum() -> None:
    first = a_plan()
    second = planned(host([run(31, TRACKER, pipes={31: 120})], gpus=[gpu()]), ROOT, first)
    assert [step.process.id.pid for step in second.gone if isinstance(step, Ending)] == [40, 50]
    told = "2 processes (60 GiB of GPU memory), 3 files (3.0 MiB) went by themselves meanwhile"
    report = CleanupReport(plan=second)
    assert told in " ".join(report_text(report).split())
    assert [step["step"] for step in json.loads(clean_json(second, report))["gone"]] == ["end", "end", *["remove"] * 3]
    assert planned(host()).gone == ()


def test_what_does_not_die_and_what_was_never_begun_leave_it_incomplete() -> None:
    plan = a_plan()
    stuck = "SIGKILL does not end it, state D, in uvm_spin_loop of the kernel: it takes a GPU reset or a reboot"
    outcomes = (Outcome(step=plan.endings[0], result=Result.STUCK, detail=stuck, seconds=15.0),)
    report = CleanupReport(plan=plan, outcomes=outcomes, interrupted_by=2)
    assert not report.complete
    assert report_text(report).splitlines() == [
        "DONE",
        "  does not die   40 VLLM::EngineCore: SIGKILL does not end it, state D, in",
        "                 uvm_spin_loop of the kernel: it takes a GPU reset or a reboot",
        "",
        "NOT BEGUN, AS IT WAS INTERRUPTED                                      GPU memory",
        "  orphans: whoever they worked for is gone",
        "    50 VLLM::Worker_TP0        vllm worker                                   0 B",
        "  trackers that nobody is left to hold; waited for first, as they clean up by",
        "  themselves",
        "    31 python3                 tracker                                       0 B",
        "  nobody holds them, and nobody is left who may come for them",
        "    nccl: 3 files (3.0 MiB): nccl-AbCdEf, nccl-GhIjKl,",
        "      vllm_dist_8e9daca0bd034e93bb87d243e511867e-tp:0…",
        "",
        "interrupted; freed 0 B of GPU memory, 0 B of shared memory",
    ]
    document = json.loads(clean_json(plan, report))
    assert (document["complete"], document["interrupted_by"], len(document["not_begun"])) == (False, 2, 5)
    for result in (Result.STUCK, Result.DENIED):
        all_begun = tuple(Outcome(step=step, result=result, detail="") for step in plan.steps)
        assert not CleanupReport(plan=plan, outcomes=all_begun).complete


def test_nothing_to_do_and_a_refusal_take_a_line() -> None:
    assert plan_text(Plan(), 0.0) == report_text(CleanupReport(plan=Plan())) == "nothing to clean\n"
    assert (
        plan_text(Plan(unknowns=("whether it rains",)), 0.0).splitlines()[-1]
        == "nothing to clean in what could be seen"
    )
    refused = Plan(refused="processes cannot be read: timeout")
    assert (
        plan_text(refused, 0.0)
        == report_text(CleanupReport(plan=refused))
        == "refused: processes cannot be read: timeout\n"
    )
    assert json.loads(clean_json(refused))["refused"] == "processes cannot be read: timeout"


def test_no_line_is_wider_than_the_terminal_and_no_name_writes_to_it() -> None:
    evil = segment(9, path="nccl-\x1b[2J" + "日本" * 60, kind=SegmentKind.NCCL, inspected_at=5000.0)
    plan = planned(host([run(40, "VLLM::EngineCore\x1b[2J" + "x" * 200, pipes={24: 121})], [evil]))
    assert len(plan.steps) == 2
    for width in (40, 60, 80, 120):
        for colour in (False, True):
            text = plan_text(plan, 30.0, width=width, colour=colour)
            plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
            assert "\x1b" not in plain
            assert max(columns(line.rstrip()) for line in plain.splitlines()) <= width
