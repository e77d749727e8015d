"""What looks add to the history: whose processes and files were seen, time in states, how long starts took."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
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

from llmhost.config.schema import Policy
from llmhost.derive.history import bounds
from llmhost.derive.history.observations import with_observation
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
MINE = in_service("vllm.service")
MAIN = process(900, MINE, start=1000, engine="vllm", role=Role.API_SERVER)
CORE = process(901, MINE, start=1010, engine="vllm", role=Role.CORE)
UP = unit(invocation_id="a", main_pid=900)
NOW = RunId(unit=ME, invocation_id="a")


def seen(*looks: Snapshot, history: History | None = None) -> History:
    history = history or History()
    for one in looks:
        history = with_observation(history, one, Policy())
    return history


def look(processes: Iterable[Process], *units: Unit, gpus: Iterable[Gpu] = (), **given: object) -> Snapshot:
    return snapshot(gpus=gpus, processes=processes, units=units or (UP,), **given)


def test_an_engines_processes_belong_to_the_activation_that_they_are_seen_in() -> None:
    tracker = process(902, MINE, start=1011, role=Role.TRACKER)
    holder, shell = process(903, MINE, start=1012), process(904, MINE, start=1013)
    elsewhere = process(905, Placement(Home.SESSION), start=1014, engine="vllm", role=Role.CORE)
    holding = [gpu(holders=Ok((held(903, GIB, 1012), held(904, GIB, 999))))]  # 904 is not who held it
    history = seen(look([MAIN, CORE, tracker, holder, shell, elsewhere], gpus=holding))
    assert history.process_runs == dict.fromkeys((MAIN.id, CORE.id, tracker.id, holder.id), NOW)


def test_who_was_seen_in_an_activation_stays_of_that() -> None:
    later = replace(UP, invocation_id="b", main_pid=950)
    main = process(950, MINE, start=5000, engine="vllm", role=Role.API_SERVER)
    # a worker of the run before is left, and a new one has started
    worker = process(951, MINE, start=5010, engine="vllm", role=Role.WORKER)
    history = seen(look([MAIN, CORE]), look([CORE, main, worker], later))
    new = RunId(unit=ME, invocation_id="b")
    assert history.process_runs == {CORE.id: NOW, main.id: new, worker.id: new}


@pytest.mark.parametrize(
    ("processes", "one"),
    [
        ([MAIN, process(890, MINE, start=999, engine="vllm", role=Role.CORE)], UP),  # older than the main process
        ([CORE], UP),  # the main process is not there: systemd's answer is of another run than /proc's
        ([replace(MAIN, state="Z"), CORE], UP),
        ([MAIN, replace(CORE, state="Z")], UP),
        ([replace(MAIN, placement=in_service("sshd.service")), CORE], UP),  # its pid is somebody else's by now
        ([MAIN, CORE], replace(UP, active_state="activating", sub_state="auto-restart")),
        ([MAIN, CORE], replace(UP, invocation_id="")),
    ],
    ids=["older", "no main", "zombie", "ended", "pid reused", "between runs", "no invocation"],
)
def test_what_may_be_of_another_activation_is_taken_for_none(processes: list[Process], one: Unit) -> None:
    found = seen(look(processes, one)).process_runs
    assert {pid for pid in found if pid.pid != 900} == set()


def test_it_is_forgotten_when_it_is_neither_there_nor_listed_by_the_driver() -> None:
    first = look([MAIN, CORE])
    kept = {MAIN.id: NOW, CORE.id: NOW}
    still_listed = [gpu(holders=Ok((held(901, GIB, 1010),)))]
    for later in (
        look([MAIN], gpus=still_listed),
        look([MAIN], gpus=[gpu(holders=Failed(Cause.CHANGING))]),
        replace(look([MAIN]), nvml=Failed(Cause.TIMEOUT)),
        replace(look([MAIN]), processes=Failed(Cause.TIMEOUT)),
        replace(look([MAIN]), processes=Ok(replace(table([MAIN]), denied=frozenset({901})))),
    ):
        assert seen(first, later).process_runs == kept
    another = process(901, MINE, start=7000)  # got its pid
    assert seen(first, look([MAIN, another])).process_runs == {MAIN.id: NOW}
    without_nvml = snapshot(processes=[MAIN], units=[UP])
    assert seen(first, without_nvml).process_runs == {MAIN.id: NOW}


def test_an_older_reading_of_processes_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    read_late = replace(look([MAIN, CORE]), processes=Ok(replace(table([MAIN, CORE]), read_at_monotonic=100.0)))
    read_early = replace(look([]), processes=Ok(replace(table([]), read_at_monotonic=99.0)))
    assert len(seen(read_late, read_early).process_runs) == 2
    monkeypatch.setattr("llmhost.derive.history.processes.MAX_PROCESSES", 1)
    assert seen(read_late).process_runs == {CORE.id: NOW}


HELD_BY_CORE, HELD_BY_NOBODY = segment(5, CORE.id), segment(5)


def test_a_file_is_its_last_holders_units_for_as_long_as_it_is_there() -> None:
    holding = look([MAIN, CORE], shm=Ok(shared_memory(HELD_BY_CORE, segment(6), read_at=1.0)))
    ended = look([], shm=Ok(shared_memory(HELD_BY_NOBODY, segment(6), read_at=2.0)))
    history = seen(holding, ended)
    assert history.segment_units == {HELD_BY_CORE.id: ME}
    failed = look([], shm=Failed(Cause.NO_SHM))
    assert seen(failed, history=history).segment_units == {HELD_BY_CORE.id: ME}
    removed = look([], shm=Ok(shared_memory(segment(6), read_at=3.0)))
    assert seen(removed, history=history).segment_units == {}


def test_a_file_is_of_the_unit_that_its_holder_was_of_or_is_in() -> None:
    moved = process(901, Placement(Home.SESSION), start=1010)
    history = History(process_runs={moved.id: NOW})
    plain = process(905, in_service("sglang.service"), start=1000)  # no engine's, no holder of GPU memory
    stranger = process(906, in_service("postgresql.service"), start=1000)
    files = shared_memory(segment(1, moved.id), segment(2, plain.id), segment(3, stranger.id), segment(4, CORE.id))
    there = look([moved, plain, stranger], UP, unit("sglang.service"), shm=Ok(files))
    found = seen(there, history=history).segment_units
    assert {one.inode: of.name for one, of in found.items()} == {
        1: "vllm.service",
        2: "sglang.service",
        4: "vllm.service",
    }


def test_a_file_that_another_unit_takes_over_is_that_units() -> None:
    other = process(905, in_service("sglang.service"), start=1000)
    first = look([MAIN, CORE], shm=Ok(shared_memory(HELD_BY_CORE, read_at=1.0)))
    both = look([MAIN, CORE, other], UP, unit("sglang.service"))
    shared = replace(both, shm=Ok(shared_memory(segment(5, CORE.id, other.id), read_at=2.0)))
    taken = replace(both, shm=Ok(shared_memory(segment(5, other.id), read_at=3.0)))
    assert seen(first, shared).segment_units == {HELD_BY_CORE.id: ME}
    assert seen(first, shared, taken).segment_units == {HELD_BY_CORE.id: UnitId("sglang.service")}


def test_no_more_files_are_remembered_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmhost.derive.history.segments.MAX_SEGMENTS", 2)
    files = shared_memory(*(segment(inode, CORE.id) for inode in range(1, 5)))
    found = seen(look([MAIN, CORE], shm=Ok(files))).segment_units
    assert [one.inode for one in found] == [3, 4]
    assert bounds.MAX_SEGMENTS == 10_000


def test_the_first_look_says_which_boot_it_is() -> None:
    assert seen(look([])).boot_id == HOST.boot_id == "b"
    assert seen(look([]), history=History(boot_id="kept")).boot_id == "kept"
    assert seen(look([], host=Failed(Cause.NO_PROCFS))).boot_id == ""


def test_a_look_counts_the_time_in_a_state_that_has_not_changed() -> None:
    active = UnitHistory(last_seen_at=5.0, state="active", state_since_monotonic=970.0, state_seconds={"active": 10.0})
    waiting = replace(active, state="auto_restart")
    history = History(units={ME: active, UnitId("b.service"): waiting, UnitId("c.service"): active})
    looked = seen(look([], UP, unit("b.service"), unit("new.service")), history=history)  # at 1000 s
    assert looked.units.keys() == history.units.keys()  # units come with their events
    assert looked.units[ME].state_seconds == {"active": 40.0}
    assert looked.units[ME].state_since_monotonic == 1000.0
    assert looked.units[ME].last_seen_at == 1_767_225_600.0
    assert looked.units[UnitId("b.service")].state_seconds == {"active": 10.0}  # the event will say since when
    assert looked.units[UnitId("c.service")] == active  # systemd did not tell of it


def test_a_start_remembers_how_long_its_engine_took() -> None:
    loading = replace(UP, condition_monotonic=900.0, inactive_exit_monotonic=900.0)
    here = "http://127.0.0.1:8000"
    silent = EngineAnswer(unit=ME, engine="vllm", endpoint=here, samples=Failed(Cause.STARTING))
    serving = replace(silent, samples=Ok((EngineSample(model="m", engine_index="0"),)))
    before = UnitHistory(last_seen_at=0.0, state="active", starts=(started("z"), started("a")))

    def at(monotonic: float, answer: EngineAnswer) -> Snapshot:
        return look([], loading, engines=Ok(EnginesReport(answers=(answer,))), at_monotonic=monotonic)

    history = seen(at(910.0, silent), history=History(units={ME: before}))
    assert [start.ready_seconds for start in history.units[ME].starts] == [None, None]
    history = seen(at(925.0, serving), at(940.0, silent), at(955.0, serving), history=history)
    assert [start.ready_seconds for start in history.units[ME].starts] == [None, 25.0]


def test_a_look_that_failed_everywhere_changes_nothing() -> None:
    history = seen(look([MAIN, CORE], shm=Ok(shared_memory(HELD_BY_CORE))))
    failed = Failed(Cause.TIMEOUT)
    blind = replace(look([]), nvml=failed, processes=failed, units=failed, engines=failed, host=failed)
    assert seen(blind, history=history) == history
    assert ProcessId(901, 1010) in history.process_runs
