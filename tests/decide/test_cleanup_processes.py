"""Processes that a clean-up ends, and reasons to skip others. Trees as test_real_trees.py finds them."""

import pytest
from tests.fakes.clean_plans import OWN_PID, ROOT, host, kept, pids, planned, waiting
from tests.fakes.orphan_trees import ADOPTER_PIPES, SERVICE, SPAWN, TRACKER, run
from tests.fakes.values import GIB, gpu, held, process, unit

from llmhost.decide.cleanup.steps import CleanupRequest, Condition
from llmhost.model.ids import RunId, UnitId
from llmhost.model.process import Home, Placement, Process
from llmhost.model.reading import Ok

T = 120  # inode of the tracker's pipe


def tree(uid: int = 0) -> list[Process]:
    """Give an orphaned core, its two workers and its tracker."""
    return [
        run(31, TRACKER, pipes={31: T}, uid=uid),
        run(40, "VLLM::EngineCore", pipes={24: 121, 32: T, 40: 122, 41: 123}, uid=uid),
        run(50, "VLLM::Worker_TP0", 40, pipes={24: 122, 32: T}, uid=uid),
        run(51, "VLLM::Worker_TP1", 40, pipes={24: 123, 32: T}, uid=uid),
    ]


def test_a_tree_is_ended_from_the_top_and_its_tracker_last() -> None:
    snapshot = host(
        tree(), gpus=[gpu(0, holders=Ok((held(50, 2 * GIB), held(51, None)))), gpu(1, holders=Ok((held(50, GIB),)))]
    )
    found = planned(snapshot)
    assert pids(found) == [40, 50, 51, 31]
    assert [ending.condition for ending in found.endings] == [*[Condition.ORPHAN] * 3, Condition.TRACKER]
    assert [ending.gpu_bytes for ending in found.endings] == [0, 3 * GIB, None, 0]
    assert (found.skipped, found.unknowns, found.refused) == ((), (), "")


def test_a_living_tree_is_no_matter() -> None:
    server = run(30, "/usr/bin/vllm serve m", pipes={5: 121, 6: T})
    living = [
        server,
        *(
            run(member.id.pid, member.argv, 30 if member.ppid == 1 else member.ppid, pipes=member.pipes)
            for member in tree()
        ),
    ]
    found = planned(host(living))
    assert (found.endings, found.waiting, found.skipped) == ((), (), ())


@pytest.mark.parametrize(
    "adopter",
    [
        run(20, "sh run.sh", pipes={0: 7002}),
        run(20, "tmux new", pipes={}),
        run(20, ("python3", "supervise.py"), pipes=ADOPTER_PIPES),
        run(20, "/usr/lib/systemd/systemd --user", pipes={}, comm="systemd"),
    ],
    ids=["shell", "tmux", "python", "user manager"],
)
def test_a_process_that_has_merely_adopted_an_orphan_is_never_in_the_plan(adopter: Process) -> None:
    adopted = [
        run(member.id.pid, member.argv, 20 if member.ppid == 1 else member.ppid, pipes=member.pipes)
        for member in tree()
    ]
    found = planned(host([adopter, *adopted]))
    assert pids(found) == [40, 50, 51, 31]
    assert 20 not in kept(found)


def test_a_server_that_still_listens_keeps_its_tree_and_what_shares_its_group() -> None:
    launched = [
        run(31, TRACKER, pipes={31: T}),
        run(40, "VLLM::EngineCore_DP0", pipes={24: 121, 32: T}),
        run(50, "VLLM::Worker", 40, pipes={24: 122, 32: T}),
        run(60, "VLLM::APIServer_0", pipes={24: 131, 32: T}),
        run(61, "VLLM::DPCoordinator", pipes={24: 132, 32: T}),
    ]
    found = planned(host(launched), listening=[60])
    assert (found.endings, found.waiting) == ((), ())
    why = kept(found)
    assert "still listens" in why[60]
    assert why[40] == why[50] == why[61] == "ending it would take down 60 VLLM::APIServer_0, which stays"
    assert "40 VLLM::EngineCore_DP0 stays and holds its pipe" in why[31]
    assert pids(planned(host(launched))) == [40, 60, 61, 50, 31]
    assert "cannot be told" in kept(planned(host(launched), unknown=[60]))[60]


def test_a_worker_may_listen_for_its_collectives_and_is_not_even_asked() -> None:
    assert pids(planned(host(tree()), listening=[40, 50, 51])) == [40, 50, 51, 31]


def test_trees_that_have_nothing_to_do_with_each_other_are_decided_each_by_itself() -> None:
    other = run(70, "VLLM::APIServer_1", pipes={24: 200}, pgrp=200)
    found = planned(host([*tree(), other]), listening=[70])
    assert pids(found) == [40, 50, 51, 31]
    assert list(kept(found)) == [70]


def test_what_is_in_a_unit_that_is_up_is_left() -> None:
    in_unit = [run(40, "VLLM::EngineCore", placement=SERVICE, pipes={24: 121})]
    for active, sub in (("active", "running"), ("activating", "start-pre"), ("reloading", "reload")):
        found = planned(host(in_unit, units=[unit("vllm.service", active, sub)]))
        assert (found.endings, found.waiting) == ((), ())
        assert kept(found) == {40: "in vllm.service, which is up: goes when that is stopped"}
    for active, sub in (("failed", "failed"), ("inactive", "dead"), ("activating", "auto-restart")):
        assert pids(planned(host(in_unit, units=[unit("vllm.service", active, sub)]))) == [40]
    assert "not watched" in kept(planned(host(in_unit)))[40]
    assert planned(host(in_unit, units=[unit("vllm.service", "deactivating", "stop-sigterm")])).steps == ()


def test_what_moved_out_of_the_unit_that_is_up_is_left_as_well() -> None:
    moved = run(40, "VLLM::EngineCore", pipes={24: 121})
    process_runs = {moved.id: RunId(unit=UnitId("vllm.service"), invocation_id="a")}
    up = unit("vllm.service", invocation_id="a")
    found = planned(host([moved], units=[up]), process_runs=process_runs)
    assert kept(found) == {40: "of vllm.service, which is up: goes when that is stopped"}
    later = unit("vllm.service", invocation_id="b")  # of an ended activation of it
    assert pids(planned(host([moved], units=[later]), process_runs=process_runs)) == [40]


def test_what_has_moved_from_its_unit_into_a_scope_stays_and_what_was_started_in_one_does_not() -> None:
    scope = Placement(Home.SCOPE, scope=UnitId("batch-job.scope"))
    job = run(40, "VLLM::EngineCore", pipes={24: 121}, placement=scope)
    process_runs = {job.id: RunId(unit=UnitId("vllm.service"), invocation_id="a")}
    stopped = host([job], units=[unit("vllm.service", "inactive", "dead", invocation_id="a")])
    assert kept(planned(stopped, process_runs=process_runs)) == {
        40: "of vllm.service, and lives in batch-job.scope by now: for whoever started that to end"
    }
    assert pids(planned(stopped)) == [40]


def test_what_is_in_a_container_is_for_its_own_tools() -> None:
    inside = run(40, "VLLM::EngineCore", placement=Placement(Home.CONTAINER, None, "3f0c5b1e9a7d4c2b"), pipes={24: 1})
    assert kept(planned(host([inside]))) == {40: "in container 3f0c5b1e9a7d: for its own tools to end"}


def test_other_users_processes_take_root_and_the_option() -> None:
    theirs = host(tree(uid=1000))
    assert pids(planned(theirs)) == [40, 50, 51, 31]
    assert pids(planned(theirs, CleanupRequest(uid=1000))) == [40, 50, 51, 31]
    assert set(kept(planned(theirs, CleanupRequest(uid=0))).values()) == {"user 1000's: --all-users ends it"}
    for request in (CleanupRequest(uid=1001), CleanupRequest(uid=1001, all_users=True)):
        found = planned(theirs, request)
        assert (found.endings, found.waiting) == ((), ())
        assert set(kept(found).values()) == {"user 1000's: root, with --all-users, ends it"}
    mixed = host([*tree(uid=1000)[:3], *tree(uid=0)[3:]])
    assert planned(mixed, CleanupRequest(uid=1000)).steps == ()  # the tree goes as a whole or not at all


def test_what_was_only_inferred_is_left() -> None:
    snapshot = host([run(40, "VLLM::EngineCore", pipes=None, pgrp=100)])
    assert kept(planned(snapshot)) == {40: "only seems orphaned, as its pipes may not be read: root can tell"}


def test_what_lives_below_an_orphan_and_is_none_keeps_it() -> None:
    serving = run(80, "/usr/bin/vllm serve m", 40, pipes={3: 300})
    found = planned(host([*tree(), serving]))
    assert found.steps == ()
    assert kept(found)[40] == "below it is 80 vllm, which is no orphan"
    command = run(OWN_PID, "llmhost clean", 50)
    assert set(kept(planned(host([*tree(), command]))).values()) >= {"runs this very command"}


def test_a_process_that_is_no_orphan_and_shares_a_pipe_may_work_with_it() -> None:
    """The killed parent may be a fork server, which is not the process that asked for the child."""
    asker = run(30, "/usr/bin/vllm serve m", pipes={7: 121})
    found = planned(host([asker, *tree()]))
    assert found.steps == ()
    assert kept(found)[40] == "shares a pipe with 30 vllm, which is no orphan, and may work with it"


def test_an_orphan_that_was_not_watched_for_long_enough_waits() -> None:
    found = planned(host(tree()), watched=14.0)
    assert (found.steps, waiting(found)) == ((), [40, 50, 51, 31])
    assert pids(planned(host(tree()), watched=15.0)) == [40, 50, 51, 31]


def test_a_second_plan_takes_only_what_the_first_had() -> None:
    first = planned(host(tree()), watched=0.0)
    assert pids(planned(host(tree()), ROOT, first)) == [40, 50, 51, 31]
    late = run(52, "VLLM::Worker_TP2", 40, pipes={24: 124, 32: T})
    found = planned(host([*tree(), late]), ROOT, first)
    assert found.steps == ()  # its tree goes as a whole
    assert kept(found)[52] == "not like an orphan at the first look: clean again"
    reused = [*tree()[:2], run(50, "VLLM::Worker_TP0", 40, start=2000, pipes={24: 122, 32: T}), tree()[3]]
    assert planned(host(reused), ROOT, first).steps == ()
    fewer = planned(host(tree()[:3]), ROOT, first)
    assert pids(fewer) == [40, 50, 31]


def test_a_tracker_alone_is_ended_only_where_no_process_holds_its_pipe() -> None:
    assert pids(planned(host([run(31, TRACKER, pipes={31: T})]))) == [31]
    pool = run(45, SPAWN, pipes={24: 141, 32: T}, pgrp=300)  # a child of multiprocessing that is no engine's
    found = planned(host([run(31, TRACKER, pipes={31: T}), pool]))
    assert (found.steps, list(kept(found))) == ((), [31])
    unseen = host([run(31, TRACKER, pipes=None, pgrp=400)])
    assert "root can tell" in kept(planned(unseen))[31]


def test_only_the_requested_kinds_are_planned() -> None:
    snapshot = host(tree())
    assert pids(planned(snapshot, CleanupRequest(uid=0, kinds=frozenset({Condition.ORPHAN})))) == [40, 50, 51]
    of_trackers = planned(snapshot, CleanupRequest(uid=0, kinds=frozenset({Condition.TRACKER})))
    assert (pids(of_trackers), list(kept(of_trackers))) == ([], [31])
    assert planned(snapshot, CleanupRequest(uid=0, units=frozenset({UnitId("vllm.service")}))).skipped == ()
    # processes of 1000 ticks started at 10.0, and it is 5000.0
    assert pids(planned(snapshot, CleanupRequest(uid=0, older_than_seconds=4990.0))) == [40, 50, 51, 31]
    assert planned(snapshot, CleanupRequest(uid=0, older_than_seconds=4991.0)).skipped == ()
    younger = [*tree()[:3], run(51, "VLLM::Worker_TP1", 40, start=3000, pipes={24: 123, 32: T})]
    found = planned(host(younger), CleanupRequest(uid=0, older_than_seconds=4990.0))
    assert found.steps == ()
    assert kept(found)[40] == "not all of its tree is asked for, and that goes as a whole"


def test_leftovers_that_are_no_orphans_are_named_and_left_to_the_guard() -> None:
    survivor = process(90, SERVICE, start=500, argv=("python3", "notes.py"))
    found = planned(host([survivor], units=[unit("vllm.service", "failed", "failed")]))
    assert found.steps == ()
    assert kept(found) == {
        90: "of an ended run of vllm.service, but no orphan: for that unit's guard to end, with --reap"
    }


def test_zombies_and_kernel_threads_are_no_matter() -> None:
    dead = run(40, "VLLM::EngineCore", state="Z", pipes=None)
    found = planned(host([dead, process(41, kernel_thread=True, argv=(), comm="kworker/0")]))
    assert (found.steps, found.skipped) == ((), ())
