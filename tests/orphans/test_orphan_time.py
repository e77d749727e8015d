"""The time that a process has been in an orphan's condition, from observation to observation."""

from dataclasses import replace
from typing import Any

from tests.fakes.orphan_trees import CHILD_PIPES, INIT, SERVICE, SPAWN, run
from tests.fakes.values import GIB, gpu, held, snapshot, unit

from llmhost.config.schema import Config, Policy
from llmhost.derive.facts import derive
from llmhost.derive.history.observations import with_observation
from llmhost.derive.history.processes import next_orphan_since
from llmhost.derive.orphans import orphan_conditions, orphans
from llmhost.model.history.history import History
from llmhost.model.ids import ProcessId
from llmhost.model.process import Process, Role
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok
from llmhost.model.snapshot import Snapshot

CORE = run(200, "VLLM::EngineCore", pipes=CHILD_PIPES)


def after(since: dict[ProcessId, float], at: float, *processes: Process, **more: Any) -> Snapshot:  # noqa: ANN401
    taken = snapshot(processes=[INIT, *processes], at_monotonic=at, **more)
    carried = next_orphan_since(since, taken)
    since.clear()
    since.update(carried)
    return taken


def listed(taken: Snapshot, since: dict[ProcessId, float]) -> list[tuple[int, str, str, float]]:
    found = orphans(taken, since, 0.0, Policy(orphan_grace_seconds=15))
    assert isinstance(found, Ok)
    return [(orphan.process.id.pid, orphan.engine, orphan.process.role, orphan.seconds) for orphan in found.value]


def test_it_is_one_once_it_has_been_in_that_condition_for_the_grace_time() -> None:
    since: dict[ProcessId, float] = {}
    assert listed(after(since, 100.0, CORE), since) == []
    assert listed(after(since, 114.9, CORE), since) == []
    assert listed(after(since, 115.0, CORE), since) == [(200, "vllm", Role.CORE, 15.0)]
    assert listed(after(since, 700.0, CORE), since) == [(200, "vllm", Role.CORE, 600.0)]


def test_one_observation_without_the_condition_starts_the_time_anew() -> None:
    since: dict[ProcessId, float] = {}
    after(since, 100.0, CORE)
    ending = replace(CORE, placement=SERVICE)
    assert listed(after(since, 116.0, ending, units=[unit(active="deactivating")]), since) == []
    assert listed(after(since, 120.0, CORE), since) == []
    assert listed(after(since, 135.0, CORE), since) == [(200, "vllm", Role.CORE, 15.0)]


def test_another_process_with_its_pid_has_a_time_of_its_own() -> None:
    since: dict[ProcessId, float] = {}
    after(since, 100.0, CORE)
    later = replace(CORE, id=ProcessId(200, 2000))
    assert listed(after(since, 120.0, later), since) == []
    assert since == {ProcessId(200, 2000): 120.0}


def test_a_failed_reading_changes_nothing_and_shows_nothing() -> None:
    since: dict[ProcessId, float] = {}
    after(since, 100.0, CORE)
    failed = Failed(Cause.TIMEOUT, "5 of 9 processes read")
    blind = replace(snapshot(at_monotonic=110.0), processes=failed)
    assert next_orphan_since(since, blind) == since
    assert orphan_conditions(blind) == failed
    assert orphans(blind, since, 0.0, Policy()) == failed
    assert listed(after(since, 115.0, CORE), since) == [(200, "vllm", Role.CORE, 15.0)]


def test_former_holders_of_gpu_memory_count_while_nvml_does_not_answer() -> None:
    since: dict[ProcessId, float] = {}
    bare = run(200, SPAWN)
    after(since, 100.0, bare, gpus=[gpu(holders=Ok((held(200, GIB),)))])
    after(since, 110.0, bare)
    lost = gpu(holders=Failed(Cause.LOST))
    assert listed(after(since, 120.0, bare, gpus=[lost]), since) == [(200, "none", Role.OTHER, 20.0)]
    assert listed(after(since, 130.0, bare, gpus=[gpu()]), since) == []
    assert listed(after(since, 150.0, bare), since) == []


def test_a_gpu_that_can_have_no_holders_is_no_gpu_that_does_not_answer() -> None:
    since: dict[ProcessId, float] = {}
    bare = run(200, SPAWN)
    after(since, 100.0, bare, gpus=[gpu(holders=Ok((held(200, GIB),)))])
    mig_parent = gpu(holders=NotApplicable("its instances have"))
    assert listed(after(since, 120.0, bare, gpus=[mig_parent, gpu(1)]), since) == []


def test_orphans_are_sorted_by_pid() -> None:
    since: dict[ProcessId, float] = {}
    tree = [run(300, "VLLM::EngineCore"), run(250, "VLLM::Worker_TP0", ppid=300), run(280, "sglang::scheduler")]
    after(since, 0.0, *tree)
    assert [orphan[0] for orphan in listed(after(since, 15.0, *tree), since)] == [250, 280, 300]


def test_orphans_are_unknown_without_observations_for_the_grace_time() -> None:
    first = snapshot(processes=[INIT, CORE], at_monotonic=100.0)
    history = with_observation(History(), first, Policy())
    assert history.processes_since == 100.0
    assert isinstance(derive(first, Config(), history).orphans, NotApplicable)
    later = snapshot(processes=[INIT, CORE], at_monotonic=115.0)
    found = derive(later, Config(), with_observation(history, later, Policy())).orphans
    assert isinstance(found, Ok)
    assert [orphan.process.id for orphan in found.value] == [CORE.id]
    healthy = snapshot(processes=[INIT], at_monotonic=100.0)
    assert derive(healthy, Config(), with_observation(History(), healthy, Policy())).orphans == Ok(
        ()
    )  # there can be none


def read_at(taken: Snapshot, at: float | None) -> Snapshot:
    assert isinstance(taken.processes, Ok)
    return replace(taken, processes=Ok(replace(taken.processes.value, read_at_monotonic=at)))


def test_time_is_taken_when_processes_are_read_not_when_all_else_was() -> None:
    history = History()
    for at, late in ((100.0, 8.0), (114.0, 8.0)):
        taken = read_at(snapshot(processes=[INIT, CORE], at_monotonic=at + late), at)
        history = with_observation(history, taken, Policy())
        assert not isinstance(derive(taken, Config(), history).orphans, Ok)
    assert (history.processes_since, history.processes_at, history.orphan_since) == (100.0, 114.0, {CORE.id: 100.0})
    taken = read_at(snapshot(processes=[INIT, CORE], at_monotonic=115.0), 115.0)
    found = derive(taken, Config(), with_observation(history, taken, Policy())).orphans
    assert isinstance(found, Ok)
    assert [orphan.seconds for orphan in found.value] == [15.0]


def test_a_reading_older_than_one_that_was_taken_in_changes_nothing() -> None:
    history = with_observation(
        History(), read_at(snapshot(processes=[INIT, CORE], at_monotonic=101.0), 100.0), Policy()
    )
    healthy = snapshot(processes=[INIT], at_monotonic=109.0)
    older = with_observation(history, read_at(healthy, 99.0), Policy())  # somebody's who had to wait for other things
    assert replace(older, clock_offsets=history.clock_offsets) == history
    assert with_observation(history, read_at(healthy, 100.0), Policy()).orphan_since == {}
    assert with_observation(history, read_at(healthy, 102.0), Policy()).orphan_since == {}
