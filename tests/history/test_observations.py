"""Observations in the history: runs of processes, units of segments, time in states, times of starts."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.fakes.observed import observed
from tests.fakes.values import (
    GIB,
    HOST,
    gpu,
    held,
    in_service,
    process,
    segment,
    shared_memory,
    snapshot,
    started,
    table,
    unit,
)

from llmhost.derive.history import bounds
from llmhost.model.engine import EngineAnswer, EngineSample, EnginesReport
from llmhost.model.gpu import Gpu
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.ids import ProcessId, RunId, UnitId
from llmhost.model.process import Home, Placement, Process, Role
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit

ME = UnitId("vllm.service")
SERVICE = in_service("vllm.service")
MAIN = process(900, SERVICE, start=1000, engine="vllm", role=Role.API_SERVER)
CORE = process(901, SERVICE, start=1010, engine="vllm", role=Role.CORE)
UP = unit(invocation_id="a", main_pid=900)
NOW = RunId(unit=ME, invocation_id="a")


def taken(processes: Iterable[Process], *units: Unit, gpus: Iterable[Gpu] = (), **given: object) -> Snapshot:
    return snapshot(gpus=gpus, processes=processes, units=units or (UP,), **given)


def test_an_engines_processes_are_of_the_run_that_they_are_seen_in() -> None:
    tracker = process(902, SERVICE, start=1011, role=Role.TRACKER)
    holder, shell = process(903, SERVICE, start=1012), process(904, SERVICE, start=1013)
    elsewhere = process(905, Placement(Home.SESSION), start=1014, engine="vllm", role=Role.CORE)
    holding = [gpu(holders=Ok((held(903, GIB, 1012), held(904, GIB, 999))))]  # 904 is not who held it
    history = observed(taken([MAIN, CORE, tracker, holder, shell, elsewhere], gpus=holding))
    assert history.process_runs == dict.fromkeys((MAIN.id, CORE.id, tracker.id, holder.id), NOW)


def test_a_process_stays_of_the_run_that_it_was_seen_in() -> None:
    later = replace(UP, invocation_id="b", main_pid=950)
    main = process(950, SERVICE, start=5000, engine="vllm", role=Role.API_SERVER)
    # a worker of the run before is left, and a new one has started
    worker = process(951, SERVICE, start=5010, engine="vllm", role=Role.WORKER)
    history = observed(taken([MAIN, CORE]), taken([CORE, main, worker], later))
    new = RunId(unit=ME, invocation_id="b")
    assert history.process_runs == {CORE.id: NOW, main.id: new, worker.id: new}


def test_a_child_is_of_its_parents_run_however_young_and_of_none_below_what_may_be_left() -> None:
    later, new = replace(UP, invocation_id="b", main_pid=950), RunId(unit=ME, invocation_id="b")
    main, wrapper = process(950, SERVICE, start=5000), process(700, SERVICE, start=900, session=70)
    children = [
        process(960, SERVICE, start=6000, ppid=901),  # of a core that was seen in the run before: whatever it is
        process(961, SERVICE, start=6001, ppid=960, engine="vllm", role=Role.WORKER),
        process(962, SERVICE, start=6002, ppid=700, engine="vllm", role=Role.WORKER),  # of what was left, or daemonised
        process(963, SERVICE, start=6003, session=70, engine="vllm", role=Role.WORKER),  # the same, its parent is gone
        process(964, SERVICE, start=6004, ppid=950, engine="vllm", role=Role.WORKER),
        process(965, SERVICE, start=6005, ppid=950),
    ]
    found = observed(taken([MAIN, CORE]), taken([CORE, wrapper, main, *children], later)).process_runs
    assert {process.pid: run for process, run in found.items()} == {901: NOW, 960: NOW, 961: NOW, 964: new}


@pytest.mark.parametrize(
    ("processes", "watched"),
    [
        ([MAIN, process(890, SERVICE, start=999, engine="vllm", role=Role.CORE)], UP),  # older than the main process
        ([CORE], UP),  # the main process is not there: systemd's answer is of another run than /proc's
        ([replace(MAIN, state="Z"), CORE], UP),
        ([MAIN, replace(CORE, state="Z")], UP),
        ([replace(MAIN, placement=in_service("sshd.service")), CORE], UP),  # its pid is somebody else's by now
        ([MAIN, CORE], replace(UP, active_state="activating", sub_state="auto-restart")),
        ([MAIN, CORE], replace(UP, invocation_id="")),
    ],
    ids=["older", "no main", "zombie", "ended", "pid reused", "between runs", "no invocation"],
)
def test_a_process_that_may_be_of_another_run_is_of_none(processes: list[Process], watched: Unit) -> None:
    found = observed(taken(processes, watched)).process_runs
    assert {pid for pid in found if pid.pid != 900} == set()


def test_it_is_forgotten_when_it_is_neither_there_nor_listed_by_the_driver() -> None:
    first = taken([MAIN, CORE])
    kept = {MAIN.id: NOW, CORE.id: NOW}
    still_listed = [gpu(holders=Ok((held(901, GIB, 1010),)))]
    for later in (
        taken([MAIN], gpus=still_listed),
        taken([MAIN], gpus=[gpu(holders=Failed(Cause.CHANGING))]),
        replace(taken([MAIN]), nvml=Failed(Cause.TIMEOUT)),
        replace(taken([MAIN]), processes=Failed(Cause.TIMEOUT)),
        replace(taken([MAIN]), processes=Ok(replace(table([MAIN]), denied=frozenset({901})))),
    ):
        assert observed(first, later).process_runs == kept
    another = process(901, SERVICE, start=7000)  # got its pid
    assert observed(first, taken([MAIN, another])).process_runs == {MAIN.id: NOW}
    without_nvml = snapshot(processes=[MAIN], units=[UP])
    assert observed(first, without_nvml).process_runs == {MAIN.id: NOW}


def test_an_older_reading_of_processes_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    read_late = replace(taken([MAIN, CORE]), processes=Ok(replace(table([MAIN, CORE]), read_at_monotonic=100.0)))
    read_early = replace(taken([]), processes=Ok(replace(table([]), read_at_monotonic=99.0)))
    assert len(observed(read_late, read_early).process_runs) == 2
    monkeypatch.setattr("llmhost.derive.history.processes.MAX_PROCESSES", 1)
    assert observed(read_late).process_runs == {CORE.id: NOW}


HELD_BY_CORE, UNHELD = segment(5, CORE.id), segment(5)


def test_a_segment_is_its_last_holders_units_for_as_long_as_it_is_there() -> None:
    holding = taken([MAIN, CORE], shm=Ok(shared_memory(HELD_BY_CORE, segment(6), read_at=1.0)))
    ended = taken([], shm=Ok(shared_memory(UNHELD, segment(6), read_at=2.0)))
    history = observed(holding, ended)
    assert history.segment_units == {HELD_BY_CORE.id: ME}
    failed = taken([], shm=Failed(Cause.NO_SHM))
    assert observed(failed, history=history).segment_units == {HELD_BY_CORE.id: ME}
    removed = taken([], shm=Ok(shared_memory(segment(6), read_at=3.0)))
    assert observed(removed, history=history).segment_units == {}


def test_a_segment_is_of_the_unit_that_its_holder_was_of_or_is_in() -> None:
    moved = process(901, Placement(Home.SESSION), start=1010)
    history = History(process_runs={moved.id: NOW})
    plain = process(905, in_service("sglang.service"), start=1000)  # no engine's, no holder of GPU memory
    stranger = process(906, in_service("postgresql.service"), start=1000)
    files = shared_memory(segment(1, moved.id), segment(2, plain.id), segment(3, stranger.id), segment(4, CORE.id))
    there = taken([moved, plain, stranger], UP, unit("sglang.service"), shm=Ok(files))
    found = observed(there, history=history).segment_units
    assert {segment_id.inode: name.name for segment_id, name in found.items()} == {
        1: "vllm.service",
        2: "sglang.service",
        4: "vllm.service",
    }


def test_a_segment_that_another_unit_takes_over_is_that_units() -> None:
    other = process(905, in_service("sglang.service"), start=1000)
    first = taken([MAIN, CORE], shm=Ok(shared_memory(HELD_BY_CORE, read_at=1.0)))
    together = taken([MAIN, CORE, other], UP, unit("sglang.service"))
    shared = replace(together, shm=Ok(shared_memory(segment(5, CORE.id, other.id), read_at=2.0)))
    last = replace(together, shm=Ok(shared_memory(segment(5, other.id), read_at=3.0)))
    assert observed(first, shared).segment_units == {HELD_BY_CORE.id: ME}
    assert observed(first, shared, last).segment_units == {HELD_BY_CORE.id: UnitId("sglang.service")}


def test_no_more_segments_are_kept_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmhost.derive.history.segments.MAX_SEGMENTS", 2)
    files = shared_memory(*(segment(inode, CORE.id) for inode in range(1, 5)))
    found = observed(taken([MAIN, CORE], shm=Ok(files))).segment_units
    assert [segment_id.inode for segment_id in found] == [3, 4]
    assert bounds.MAX_SEGMENTS == 10_000


def test_the_first_observation_says_which_boot_it_is() -> None:
    assert observed(taken([])).boot_id == HOST.boot_id == "b"
    assert observed(taken([]), history=History(boot_id="kept")).boot_id == "kept"
    assert observed(taken([], host=Failed(Cause.NO_PROCFS))).boot_id == ""


def test_an_observation_counts_the_time_in_a_state_that_has_not_changed() -> None:
    active = UnitHistory(last_seen_at=5.0, state="active", state_since_monotonic=970.0, state_seconds={"active": 10.0})
    waiting = replace(active, state="auto_restart")
    history = History(units={ME: active, UnitId("b.service"): waiting, UnitId("c.service"): active})
    history_now = observed(taken([], UP, unit("b.service"), unit("new.service")), history=history)  # at 1000 s
    assert history_now.units.keys() == history.units.keys()  # units come with their events
    assert history_now.units[ME].state_seconds == {"active": 40.0}
    assert history_now.units[ME].state_since_monotonic == 1000.0
    assert history_now.units[ME].last_seen_at == 1_767_225_600.0
    assert history_now.units[UnitId("b.service")].state_seconds == {"active": 10.0}  # the event will say since when
    assert history_now.units[UnitId("c.service")] == active  # systemd did not list it


def test_a_start_keeps_how_long_its_engine_took() -> None:
    loading = replace(UP, condition_monotonic=900.0, inactive_exit_monotonic=900.0)
    here = "http://127.0.0.1:8000"
    silent = EngineAnswer(unit=ME, engine="vllm", endpoint=here, samples=Failed(Cause.STARTING))
    serving = replace(silent, samples=Ok((EngineSample(model="m", engine_index="0"),)))
    before = UnitHistory(last_seen_at=0.0, state="active", starts=(started("z"), started("a")))

    def at(monotonic: float, answer: EngineAnswer) -> Snapshot:
        return taken([], loading, engines=Ok(EnginesReport(answers=(answer,))), at_monotonic=monotonic)

    history = observed(at(910.0, silent), history=History(units={ME: before}))
    assert [start.ready_seconds for start in history.units[ME].starts] == [None, None]
    history = observed(at(925.0, serving), at(940.0, silent), at(955.0, serving), history=history)
    assert [start.ready_seconds for start in history.units[ME].starts] == [None, 25.0]


def test_an_observation_that_failed_everywhere_changes_nothing() -> None:
    history = observed(taken([MAIN, CORE], shm=Ok(shared_memory(HELD_BY_CORE))))
    failed = Failed(Cause.TIMEOUT)
    blind = replace(taken([]), nvml=failed, processes=failed, units=failed, engines=failed, host=failed)
    assert observed(blind, history=history) == history
    assert ProcessId(901, 1010) in history.process_runs
