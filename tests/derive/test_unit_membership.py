"""The run that a process is of: descent before age.

The unit's activation began 4000 s after boot, on a host that has been up for 5000 s. The wrapper is of an ended run,
900 is the main process, 800 the control process.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.values import HOST, in_service, process, table, unit

from llmhost.derive.unit_membership import UnitMembership, UnitMemberships
from llmhost.model.ids import ProcessId, RunId, UnitId
from llmhost.model.process import Home, Placement, Process
from llmhost.model.unit import Unit

UNIT = UnitId("vllm.service")
HERE, SESSION = in_service("vllm.service"), Placement(Home.SESSION)
SCOPE = Placement(Home.SCOPE, scope=UnitId("batch-job.scope"))
OLD, YOUNG, YOUNGEST = 300_000, 400_100, 450_000
WRAPPER = process(40, HERE, start=OLD, session=30)
MAIN = process(900, HERE, start=410_000)
CONTROL = process(800, HERE, start=400_050)
STARTS = unit(
    "vllm.service",
    "activating",
    "start-post",
    main_pid=900,
    control_pid=800,
    condition_monotonic=4000.0,
    inactive_exit_monotonic=4000.1,
    invocation_id="new",
)
ENDED, PRESENT = RunId(unit=UNIT, invocation_id="old"), RunId(unit=UNIT, invocation_id="new")


def child(ppid: int, place: Placement = HERE, start: int = YOUNGEST, **given: Any) -> Process:  # noqa: ANN401
    return process(50, place, start=start, ppid=ppid, **given)


ROWS: dict[str, tuple[list[Process], bool]] = {
    # of the ended run, however young
    "a child of what an ended run has left": ([WRAPPER, child(40)], False),
    "a grandchild": ([WRAPPER, process(41, HERE, start=YOUNG, ppid=40), child(41)], False),
    "a child whose parent is gone, by its session": ([WRAPPER, child(1, session=30)], False),
    "a child of a zombie": ([process(40, HERE, start=OLD, state="Z"), child(40)], False),
    "a child in a session": ([WRAPPER, child(40, SESSION)], False),
    "a child in a cgroup of nobody's": ([WRAPPER, child(40, Placement(Home.NONE))], False),
    # of the present activation, however old
    "below the main process": ([WRAPPER, MAIN, child(900)], True),
    "below the control process": ([CONTROL, child(800, start=OLD)], True),
    "below the main process, which a leftover has started": (
        [WRAPPER, process(900, HERE, start=YOUNG, ppid=40, session=30), child(900, session=30)],
        True,
    ),
    "in the main process's session": (
        [WRAPPER, process(900, HERE, start=YOUNG, session=30), child(1, session=30)],
        True,
    ),
    "gone to the background before the main process": ([WRAPPER, child(1, start=YOUNG)], True),
    "below one that has gone to the background": ([process(60, HERE, start=YOUNG), child(60)], True),
    # by the clock alone
    "what is older than the activation": ([child(1, start=OLD)], False),
    "what is younger": ([child(1)], True),
}


def membership(
    processes: list[Process],
    runs: Mapping[ProcessId, RunId] | None = None,
    ended_sessions: Iterable[int] = (),
    starts: Unit = STARTS,
) -> UnitMembership | None:
    found = UnitMemberships(
        units={UNIT: starts},
        processes=table(processes),
        host=HOST,
        process_runs=runs or {},
        ended_sessions=frozenset(ended_sessions),
    )
    return found.of(processes[-1])


@pytest.mark.parametrize(("processes", "present"), ROWS.values(), ids=ROWS)
def test_descent_comes_before_age(processes: list[Process], present: bool) -> None:
    assert membership(processes) == UnitMembership(unit=UNIT, present=present)


@pytest.mark.parametrize(
    ("run", "present"), [(ENDED, False), (PRESENT, True), (RunId(unit=UNIT, invocation_id=""), False)]
)
def test_a_child_is_of_the_run_that_its_parent_was_seen_in(run: RunId, present: bool) -> None:
    parent = process(40, HERE, start=YOUNG)
    assert membership([parent, child(40)], runs={parent.id: run}) == UnitMembership(unit=UNIT, present=present)


def test_where_systemd_does_not_tell_which_run_is_under_way_none_has_ended() -> None:
    parent, starts = process(40, HERE, start=YOUNG), replace(STARTS, invocation_id="")
    unknown = UnitMembership(unit=UNIT, present=None)
    assert membership([parent], runs={parent.id: PRESENT}, starts=starts) == unknown
    in_session = membership([parent, child(40, SESSION)], runs={parent.id: PRESENT}, starts=starts)
    assert in_session is None


def test_a_session_that_had_a_process_of_an_ended_run_is_known_after_that_is_gone() -> None:
    stray = child(1, session=30)
    assert membership([stray], ended_sessions=[30]) == UnitMembership(unit=UNIT, present=False)
    leader = process(30, HERE, start=YOUNG)  # another process got the pid, and made a session of its own
    assert membership([leader, stray], ended_sessions=[30]) == UnitMembership(unit=UNIT, present=True)


def test_what_has_moved_elsewhere_takes_its_children_along_where_no_other_unit_is() -> None:
    moved = process(40, SESSION, start=OLD)
    runs = {moved.id: ENDED}
    assert membership([moved, child(40, SESSION)], runs=runs) == UnitMembership(unit=UNIT, present=False)
    for place in (SCOPE, in_service("db.service"), Placement(Home.CONTAINER, container_id="c0ffee")):
        assert membership([moved, child(40, place)], runs=runs) is None
        assert membership([WRAPPER, child(40, place)]) is None
    assert membership([moved, child(40, SESSION)], runs={moved.id: PRESENT}) is None
    assert membership([process(900, HERE, start=YOUNG), child(900, SESSION)]) is None
    assert membership([process(1, SCOPE, start=1, ppid=0), child(1, SESSION)], runs={ProcessId(7, 7): ENDED}) is None
