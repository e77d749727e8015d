"""The guard's remedies: it ends and removes only what provably is of its own unit's ended runs.

The unit's activation began 4000 s after boot, on a host that has been up for 5000 s; the guard is its ExecStartPre=.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.clean_plans import NOW, epoch, host, never_set
from tests.fakes.orphan_trees import TRACKER, run
from tests.fakes.values import HOST, LISTENS, UNUSED, in_service, segment, shared_memory, unit

from llmhost.config.schema import Policy
from llmhost.decide.cleanup.steps import Condition
from llmhost.decide.guard.remedies import (
    Reaping,
    StartingUnit,
    UnprovenError,
    missing_history,
    reaping,
    removals,
    runs_of_ended,
    sessions_of_ended,
    starting_unit,
    to_ask_for_use,
)
from llmhost.model.clock_offset import ClockOffset
from llmhost.model.history.history import History
from llmhost.model.ids import ProcessId, RunId, UnitId
from llmhost.model.process import Home, Placement, Process
from llmhost.model.process_use import ProcessUse
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.segment import Segment, SegmentId, SegmentKind

UNIT = UnitId("vllm.service")
OTHER = UnitId("vllm-b.service")
HERE, THERE = in_service("vllm.service"), in_service("vllm-b.service")
GUARD = 700
STARTS = unit(
    "vllm.service",
    "activating",
    "start-pre",
    condition_monotonic=4000.0,
    inactive_exit_monotonic=4000.1,
    control_pid=GUARD,
    invocation_id="new",
)
BESIDE = unit("vllm-b.service", invocation_id="b", condition_monotonic=100.0, inactive_exit_monotonic=100.1)
ME = run(GUARD, "llmhost guard", placement=HERE, start=400_100, ppid=1, session=GUARD, pgrp=GUARD)


def process(pid: int, command: str | tuple[str, ...] = "VLLM::Worker", **given: Any) -> Process:  # noqa: ANN401
    """Give one of an ended run: it started 10 s after boot, in the unit's cgroup. Each run has a session of its own."""
    values: dict[str, Any] = {"placement": HERE, "start": 1000, "session": given.get("start", 1000)}
    return run(pid, command, **(values | given))


def own(*processes: Process, units: Iterable[Any] = (STARTS, BESIDE), **given: Any) -> StartingUnit:  # noqa: ANN401
    process_runs = given.pop("process_runs", {})
    history = given.pop("history", {})
    snapshot = host([ME, *processes], units=units, **given)
    history = {"clock_offsets": never_set(snapshot), **history}
    return starting_unit(snapshot, History(process_runs=process_runs, **history), UNIT, GUARD)


def reaped(
    *processes: Process,
    uses: Mapping[int, Reading[ProcessUse]] | None = None,
    before: Iterable[int] = (),
    **given: Any,  # noqa: ANN401
) -> Reaping:
    snapshot = own(*processes, **given)
    by_id = {asked.id: (uses or {}).get(asked.id.pid, UNUSED) for asked in to_ask_for_use(snapshot)}
    return reaping(snapshot, by_id, {ProcessId(pid, 1000) for pid in before})


def pids(of: Reaping) -> list[int]:
    return [ending.process.id.pid for ending in of.endings]


def kept(of: Reaping) -> dict[int, str]:
    return {skipped.subject.id.pid: skipped.because for skipped in of.skipped if isinstance(skipped.subject, Process)}


def test_processes_older_than_the_activation_in_its_cgroup_are_ended_and_younger_ones_stay() -> None:
    found = reaped(process(40), process(41, "/bin/sleep 5"), process(50, start=400_050))
    assert pids(found) == [40, 41]
    assert {ending.condition for ending in found.endings} == {Condition.LEFTOVER}
    assert not found.skipped


def test_short_children_of_what_is_left_go_with_it() -> None:
    loop, child = process(40, "sh -c loop", pgrp=40), process(50, "sleep 0.4", ppid=40, pgrp=40, start=490_000)
    found = reaped(loop, child)
    assert (pids(found), found.skipped) == ([40, 50], [])
    known = own(loop, child)
    assert sessions_of_ended(known) == {1000, 490_000}
    assert runs_of_ended(known) == dict.fromkeys((loop.id, child.id), RunId(unit=UNIT, invocation_id=""))


def test_the_guard_and_its_parents_stay_even_if_the_clocks_were_wrong() -> None:
    shell = process(60, "sh -c guard")
    me = run(GUARD, "llmhost guard", placement=HERE, start=1000, ppid=60)
    snapshot = host([shell, me], units=[STARTS])
    assert not reaping(starting_unit(snapshot, History(), UNIT, GUARD), {shell.id: UNUSED}, ()).endings


def test_of_another_units_processes_none_is_ended() -> None:
    assert not pids(reaped(process(40, placement=THERE), process(41, placement=Placement(Home.SESSION))))


def test_a_process_of_an_ended_run_is_ended_anywhere_but_in_another_unit_or_a_container() -> None:
    ended = RunId(unit=UNIT, invocation_id="old")
    places = {
        40: Placement(Home.SESSION),
        41: Placement(Home.NONE),
        42: in_service("else.service"),  # not watched
        43: Placement(Home.CONTAINER, container_id="c0ffee"),
        44: THERE,  # watched: it is that unit's now
        45: Placement(Home.SCOPE, scope=UnitId("batch-job.scope")),
        46: Placement(Home.NONE, cgroup="/batch"),
    }
    found = reaped(
        *(process(pid, placement=place) for pid, place in places.items()),
        process_runs={ProcessId(pid, 1000): ended for pid in places},
    )
    assert pids(found) == [40, 41]
    assert kept(found) == {
        42: "lives in else.service by now",
        43: "lives in a container by now",
        45: "lives in batch-job.scope by now",
        46: "lives in the cgroup /batch by now",
    }


def test_what_was_seen_in_the_present_run_stays_whatever_the_clocks_say() -> None:
    present = {ProcessId(40, 1000): RunId(unit=UNIT, invocation_id="new")}
    assert not pids(reaped(process(40), process_runs=present))


def test_what_the_clocks_leave_unknown_stays() -> None:
    """Suspended for an hour: what started in the hour before the activation may be of it, or not."""
    suspended = Ok(replace(HOST, boottime_ahead_seconds=3600.0))
    found = reaped(process(40, start=500_000), process(41, start=1000), host=suspended)
    assert pids(found) == [41]
    assert kept(found) == {40: "whether it is of an ended run cannot be told by the clocks"}


@pytest.mark.parametrize(
    ("use", "why"),
    [
        (LISTENS, "still listens, and may serve somebody: for a person to end, if nobody uses it"),
        (Failed(Cause.NO_PERMISSION), "whether it listens cannot be told: root can tell"),
        (
            Failed(Cause.NETWORK_NAMESPACE),
            "may listen in its own network namespace, which is not looked into: for a person to end",
        ),
        (NotApplicable(), "whether it listens cannot be told: root can tell"),
        (Failed(Cause.UNKNOWN, "no such table"), "whether it is in use cannot be told: no such table"),
        (
            Ok(ProcessUse(peers=("10.0.0.2:5678", "7 nc"))),
            "still connected to 10.0.0.2:5678, and may work for it: for a person to end, if nobody uses it",
        ),
        (
            Ok(ProcessUse(unknown_sockets=("SCTP",))),
            "has a socket (SCTP) of which cannot be told whom it serves: for a person to end, if nobody uses it",
        ),
        (Ok(ProcessUse(debugger="gdb (pid 12)")), "is being debugged by gdb (pid 12)"),
    ],
)
def test_one_that_is_in_use_or_may_be_stays_with_its_tree_and_others_go(use: Reading[ProcessUse], why: str) -> None:
    server = process(40, "vllm serve m", pgrp=40)
    core = process(41, "VLLM::EngineCore", ppid=40, pgrp=40)
    alone = process(50, "VLLM::EngineCore", pgrp=50)
    found = reaped(server, core, alone, uses={40: use})
    assert pids(found) == [50]
    assert kept(found) == {40: why, 41: "ending it would take down 40 vllm, which stays"}


def test_an_engines_part_that_listens_for_its_own_goes_and_one_with_a_connection_to_others_stays() -> None:
    core, worker = process(40, "VLLM::EngineCore", pgrp=40), process(41, ppid=40, pgrp=40)
    assert pids(reaped(core, worker, uses={40: LISTENS, 41: LISTENS})) == [40, 41]
    found = reaped(core, worker, uses={41: Ok(ProcessUse(peers=("10.0.0.2:5678",)))})
    assert (pids(found), sorted(kept(found))) == ([], [40, 41])


def test_what_works_with_a_process_that_stays_does_too_however_long_the_chain() -> None:
    daemon, client = process(40, "daemon", pgrp=40), process(50, "client", pgrp=50)
    ties = {60: 50, 50: 40}  # 60 serves 50, and 50 serves 40
    uses = {pid: Ok(ProcessUse(tied_to=frozenset({ProcessId(to, 1000)}))) for pid, to in ties.items()}
    last = process(60, "server", pgrp=60)
    assert pids(reaped(daemon, client, last, uses=uses)) == [40, 50, 60]
    assert kept(reaped(daemon, client, last, uses={**uses, 40: LISTENS})) == {
        40: "still listens, and may serve somebody: for a person to end, if nobody uses it",
        50: "works with 40 daemon, which stays",
        60: "works with 50 client, which stays",
    }
    found = reaped(daemon, client, uses={40: uses[50], 50: LISTENS})  # a client of what stays may go
    assert pids(found) == [40]


def test_a_parent_of_another_process_stays() -> None:
    found = reaped(process(40, "sh"), process(41, "postgres", ppid=40, placement=in_service("db.service")))
    assert (pids(found), kept(found)) == ([], {40: "below it is 41 postgres, which stays"})


def test_no_process_is_ended_twice() -> None:
    assert pids(reaped(process(40, pgrp=40), process(41, pgrp=41), before=[40])) == [41]


def test_a_tracker_goes_last_and_only_with_all_holders_of_its_pipe() -> None:
    tracker = process(39, TRACKER, pipes={31: 900}, pgrp=40)
    worker = process(40, pipes={20: 900}, pgrp=40)
    found = reaped(tracker, worker)
    assert [(ending.process.id.pid, ending.condition) for ending in found.endings] == [
        (40, Condition.LEFTOVER),
        (39, Condition.TRACKER),
    ]
    neighbour = process(50, placement=THERE, pipes={20: 900})
    found = reaped(tracker, neighbour)
    assert (pids(found), kept(found)) == ([], {39: "50 VLLM::Worker stays, and it ends by itself after that"})
    found = reaped(tracker, worker, uses={39: Ok(ProcessUse(debugger="gdb (pid 12)"))})
    assert (pids(found), kept(found)) == ([40], {39: "is being debugged by gdb (pid 12)"})
    found = reaped(process(39, TRACKER, pipes=None))
    assert (pids(found), kept(found)) == ([], {39: "who else holds its pipe cannot be told"})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"units": [unit("vllm.service", "inactive", "dead")]}, "systemd does not say that a start is under way"),
        ({"units": [unit("vllm.service", "activating", "auto-restart")]}, "systemd does not say that a start is under"),
        ({"units": [unit("vllm.service", "deactivating", "stop")]}, "systemd does not say that a start is under way"),
        ({"units": []}, "systemd does not say that a start is under way"),
        (
            {"processes": Failed(Cause.PID_NAMESPACE, "other")},
            "processes cannot be read: pid namespace (other)",
        ),
    ],
)
def test_where_nothing_can_be_proven_it_is_said_why(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UnprovenError) as caught:
        starting_unit(replace(host(units=given.pop("units", [STARTS])), **given), History(), UNIT, GUARD)
    assert str(caught.value).startswith(why)


def file(inode: int = 5, kind: SegmentKind = SegmentKind.PYTHON_SHM, **given: Any) -> Segment:  # noqa: ANN401
    """Give one without a holder for an hour, last changed 1000 s after boot."""
    return segment(inode, **({"kind": kind, "changed_at": epoch(1000.0), "inspected_at": NOW} | given))


def removed(
    *files: Segment,
    units: Mapping[int, UnitId] | None = None,
    processes: Iterable[Process] = (),
    **more: Any,  # noqa: ANN401
) -> tuple[list[int], str]:
    history = {
        **more,
        "unheld_since": {file.id: NOW - 3600 for file in files if file.holders == frozenset()},
        "segment_units": {file.id: (units or {}).get(file.id.inode, UNIT) for file in files},
    }
    found, why = removals(own(*processes, history=history), shared_memory(*files), Policy())
    return [step.segment.id.inode for step in found], why


@pytest.mark.parametrize("kind", list(SegmentKind))
def test_stale_files_of_known_kinds_that_its_processes_held_go(kind: SegmentKind) -> None:
    expected = [] if kind in {SegmentKind.CUDA, SegmentKind.OTHER} else [5]
    assert removed(file(kind=kind)) == (expected, "")


def test_files_with_other_or_without_known_holders_stay() -> None:
    assert removed(file(), units={5: OTHER}) == ([], "")
    assert removed(replace(file(), holders=frozenset({ProcessId(50, 1000)}))) == ([], "")
    assert removed(replace(file(), holders=None)) == ([], "")
    found, _ = removals(own(history={"unheld_since": {SegmentId(27, 5): 0.0}}), shared_memory(file()), Policy())
    assert not found


def test_files_that_are_not_stale_or_not_older_than_the_activation_stay() -> None:
    young = own(history={"unheld_since": {SegmentId(27, 5): NOW - 29}, "segment_units": {SegmentId(27, 5): UNIT}})
    assert removals(young, shared_memory(file()), Policy()) == ((), "")
    assert removed(file(changed_at=epoch(3998.0))) == ([5], "")
    assert removed(file(changed_at=epoch(3999.5))) == ([], "")  # the clocks may be a second apart


def test_a_file_of_this_activation_stays_though_the_clock_was_stepped_forward_since() -> None:
    """By an hour, at 4500 s. The file is of 4100 s, and seems to be of 500 s."""
    at_500 = file(changed_at=epoch(4100.0) - 3600)
    stepped = tuple(ClockOffset(at, epoch(0.0) - back) for at, back in ((0.0, 3600), (4499.0, 3600), (4501.0, 0)))
    assert removed(at_500, clock_offsets=(*stepped, ClockOffset(NOW, epoch(0.0)))) == ([], "")
    assert removed(at_500) == ([5], "")
    assert removed(at_500, clock_offsets=()) == ([], "")  # nothing is known of the clock


def test_while_a_process_of_an_ended_run_lives_or_may_no_file_goes() -> None:
    assert removed(file(), processes=[process(40)]) == (
        [],
        "stale files stay, 1 of them: 40 VLLM::Worker lives, and may come for them",
    )


def test_what_lacks_for_want_of_history_is_said() -> None:
    assert missing_history(History(processes_at=1.0, shm_at=1.0), reap=True, clean_shm=True) == ""
    assert missing_history(History(), reap=True, clean_shm=False) == (
        "the exporter has left no history of this boot: only processes in its own cgroup can be told to be its"
    )
