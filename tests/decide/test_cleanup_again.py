"""However far a plan has come, planning again adds nothing to it."""

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.fakes.clean_plans import host as host_of
from tests.fakes.clean_plans import planned, process_context, view_of
from tests.fakes.orphan_trees import SPAWN, TRACKER, run
from tests.fakes.values import segment, table, unit

from llmhost.config.schema import Config
from llmhost.decide.cleanup.plan import plan
from llmhost.decide.cleanup.steps import CleanupRequest, Condition, Ending, Plan, Step
from llmhost.derive.facts import derive
from llmhost.derive.host_view import HostView
from llmhost.model.process import Process
from llmhost.model.reading import Ok
from llmhost.model.segment import Segment, SegmentKind

ROUNDS = 400
_COMMANDS = (
    "VLLM::EngineCore",
    "VLLM::Worker_TP0",
    "VLLM::APIServer_0",
    "VLLM::DPCoordinator",
    "/usr/bin/vllm serve m",
    "python3 train.py",
    "sh run.sh",
    SPAWN,
    TRACKER,
)
_PATHS = (
    ("psm_{:08x}", SegmentKind.PYTHON_SHM, False),
    ("nccl-{:06x}", SegmentKind.NCCL, False),
    ("sem.loky-{}-abcdefgh", SegmentKind.LOKY, True),
    ("cuda.shm.0.{}", SegmentKind.CUDA, False),
)


def hosts(seed: int) -> tuple[list[Process], list[Segment], list[int]]:
    """Make up processes with random parents, groups and pipes, segments, and listening processes."""
    chance = random.Random(seed)
    processes = []
    for pid in range(40, 40 + chance.randint(1, 12)):
        command = chance.choice(_COMMANDS)
        pipes = {fd: 100 + chance.randrange(8) for fd in chance.sample((0, 1, 4, 24, 31, 32), chance.randint(0, 3))}
        parent = chance.choice([1, *range(40, pid)])
        uid, group, start = chance.choice([0, 0, 1000]), chance.choice([100, 200]), chance.randrange(1000, 300_000)
        state = chance.choice("SSSSSZ")
        pipes_read = None if state == "Z" or chance.random() < 0.1 else pipes
        processes.append(run(pid, command, parent, pipes=pipes_read, uid=uid, pgrp=group, start=start, state=state))
    files = []
    for inode in range(5, 5 + chance.randint(0, 6)):
        form, kind, has_pid = chance.choice(_PATHS)
        maker = chance.choice([39, *(process.id.pid for process in processes)])
        holders = (
            chance.sample([process.id for process in processes if not process.zombie], 1) if _any(processes) else []
        )
        kept = holders if chance.random() < 0.3 else []
        files.append(
            segment(
                inode,
                *kept,
                path=form.format(maker if has_pid else inode),
                kind=kind,
                creator_pid=maker if has_pid else None,
                changed_at=1_767_225_600.0 - chance.randrange(0, 5000),
                inspected_at=5000.0,
                uid=chance.choice([0, 1000]),
            )
        )
    return processes, files, [process.id.pid for process in processes if chance.random() < 0.1]


def _any(processes: Iterable[Process]) -> bool:
    return any(not process.zombie for process in processes)


def without(view: HostView, done: Iterable[Step]) -> HostView:
    """Give the host once these steps are done: ended processes are gone, and their children adopted by process 1."""
    assert isinstance(view.snapshot.processes, Ok)
    assert isinstance(view.snapshot.shm, Ok)
    ended = {step.process.id for step in done if isinstance(step, Ending)}
    removed = {step.segment.id for step in done if not isinstance(step, Ending)}
    ended_pids = {process.pid for process in ended}
    processes = [
        replace(process, ppid=1) if process.ppid in ended_pids else process
        for process in view.snapshot.processes.value.by_pid.values()
        if process.id not in ended
    ]
    files = tuple(
        replace(segment, holders=segment.holders - ended if segment.holders is not None else None)
        for segment in view.snapshot.shm.value.segments
        if segment.id not in removed
    )
    shm = Ok(replace(view.snapshot.shm.value, segments=files))
    snapshot = replace(view.snapshot, processes=Ok(table(processes)), shm=shm)
    return replace(view, snapshot=snapshot, facts=derive(snapshot, Config(), view.history))


def identities(of: Plan) -> set[object]:
    return {(step.process.id, step.condition) if isinstance(step, Ending) else step.segment.id for step in of.steps}


@pytest.mark.parametrize("seed", range(4))
def test_planning_again_after_any_part_of_a_plan_adds_nothing(seed: int) -> None:
    steps = 0
    for number in range(ROUNDS):
        processes, files, listening = hosts(seed * ROUNDS + number)
        view = view_of(host_of(processes, files, units=[unit("vllm.service", "failed", "failed")]))
        request = CleanupRequest(uid=0, all_users=number % 2 == 0)
        first = plan(view, request, process_context(view, listening=listening))
        steps += len(first.steps)
        for count in range(1, len(first.steps) + 1):
            later = without(view, first.steps[:count])
            again = plan(later, request, process_context(later, listening=listening))
            added = identities(again) - identities(first)
            assert not added, f"host {seed * ROUNDS + number}, after {count} steps: {added}"
            assert len(again.steps) <= len(first.steps) - count
    assert steps > ROUNDS  # there was something to do


def test_random_hosts_are_no_worse_for_a_second_plan() -> None:
    for number in range(200):
        processes, files, listening = hosts(number)
        snapshot = host_of(processes, files)
        first = planned(snapshot, listening=listening, watched=0.0)
        second = planned(snapshot, first=first, listening=listening)
        once = planned(snapshot, listening=listening)
        assert identities(second) == identities(once)
        assert {ending.condition for ending in first.endings} <= {Condition.TRACKER}  # of which nobody knows since when
