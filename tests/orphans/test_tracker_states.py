"""The states of Python's resource trackers, by proof."""

from collections.abc import ValuesView
from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.values import process, table

from llmhost.derive.trackers import TrackerState, tracker_states
from llmhost.model.engines import classify
from llmhost.model.ids import ProcessId
from llmhost.model.process import Process

PIPE, OTHER = 7001, 7002
MAIN = "from multiprocessing.resource_tracker import main;main(31)"
LOKY = "from joblib.externals.loky.backend.resource_tracker import main; main(31, False)"
SPAWN = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=9, pipe_handle=8)"
ATTACHED, ORPHANED, DETACHED = TrackerState.ATTACHED, TrackerState.ORPHANED, TrackerState.DETACHED


def run(pid: int, *argv: str, **more: Any) -> Process:  # noqa: ANN401
    engine, role = classify(argv, "python3")
    values: dict[str, Any] = {"argv": argv, "engine": engine, "role": role, "pgrp": 100, "pipes": {}}
    values |= more
    return process(pid, **({"pipes_denied": values["pipes"] is None} | values))


def tracker(ppid: int, **more: Any) -> Process:  # noqa: ANN401
    return run(500, "python3", "-B", "-c", MAIN, **({"ppid": ppid, "pipes": {31: PIPE, 2: OTHER}} | more))


def state(
    *processes: Process, orphans: frozenset[ProcessId] = frozenset(), unknown_holders: frozenset[int] = frozenset()
) -> TrackerState | None:
    return tracker_states(replace(table(processes), unknown_holders=unknown_holders), orphans).get(ProcessId(500, 1000))


@pytest.mark.parametrize(
    ("parent", "expected"),
    [
        (run(100, "vllm", "serve", "m", pipes={32: PIPE}), ATTACHED),
        (run(100, "python3", "app.py", pipes={0: PIPE}), ATTACHED),
        (run(1, "python3", "app.py", pipes={9: PIPE}, pgrp=1), ATTACHED),  # process 1 of a container
        (run(100, "python3", "app.py", pipes={9: OTHER}), ORPHANED),  # the tracker's own standard error
        (run(100, "vllm", "serve", "m", pipes={9: OTHER}), ORPHANED),
        (run(100, "vllm", "serve", "m", pipes=None, state="Z"), ORPHANED),
        # without the pipes of both
        (run(100, "vllm", "serve", "m", pipes=None), ATTACHED),
        (run(100, "VLLM::Worker_TP0", pipes=None), ATTACHED),
        (run(100, "vllm", "serve", "m", pipes=None, pgrp=5), ORPHANED),
        (run(100, "bash", pipes=None), ORPHANED),
        (run(100, "python3", "app.py", pipes=None, pgrp=5), ORPHANED),
        (run(100, "python3", "app.py", pipes=None), None),  # its creator, or a subreaper: nobody can tell
    ],
)
def test_a_tracker_is_attached_where_its_parent_holds_its_pipe(parent: Process, expected: TrackerState | None) -> None:
    assert state(parent, tracker(parent.id.pid)) is expected


def test_without_its_own_pipes_the_parents_prove_nothing() -> None:
    blind = tracker(100, pipes=None)
    assert state(run(100, "python3", "app.py", pipes={32: PIPE}), blind) is None
    assert state(run(100, "bash", pipes={32: PIPE}), blind) is ORPHANED
    assert state(run(100, "vllm", "serve", "m", pipes={32: PIPE}), blind) is ATTACHED


def test_the_pipe_is_that_on_the_descriptor_of_its_arguments() -> None:
    parent = run(100, "python3", "app.py", pipes={32: OTHER})
    assert state(parent, tracker(100)) is ORPHANED
    assert state(parent, tracker(100, argv=("python3", "-c", MAIN.replace("31", "2")))) is ATTACHED
    assert state(parent, tracker(100, argv=("python3", "-c", LOKY))) is ORPHANED


def test_a_zombie_is_neither() -> None:
    assert state(run(100, "vllm", "serve", "m", pipes={32: PIPE}), tracker(100, state="Z", argv=())) is (
        TrackerState.ZOMBIE
    )


INIT = run(1, "/sbin/init", pgrp=1)
LOST = tracker(1)


def test_a_tracker_of_a_program_in_the_background_is_detached() -> None:
    daemon = run(300, "python3", "app.py", session=300, pgrp=300, pipes={7: PIPE})
    assert state(INIT, LOST, daemon) is DETACHED
    assert state(INIT, LOST, replace(daemon, pipes={7: OTHER})) is ORPHANED
    assert state(replace(INIT, pipes=None, pipes_denied=True), LOST, daemon) is DETACHED
    child = run(301, "python3", "-c", SPAWN, ppid=300, pipes={9: PIPE, 24: 7003})
    assert state(INIT, LOST, replace(daemon, pipes={7: PIPE, 8: 7003}), child) is DETACHED


def test_one_holder_that_is_an_orphan_or_has_lost_its_creator_is_enough() -> None:
    daemon = run(300, "python3", "app.py", pipes={7: PIPE})
    core = run(301, "VLLM::EngineCore", pipes={9: PIPE, 24: 7003})
    assert state(INIT, LOST, daemon, core) is ORPHANED  # also before its grace time is over
    assert state(INIT, LOST, core) is ORPHANED
    assert state(INIT, LOST, daemon, orphans=frozenset({daemon.id})) is ORPHANED
    pool = run(302, "python3", "-c", SPAWN, pipes={9: PIPE, 24: 7003})
    assert state(INIT, LOST, pool) is ORPHANED  # whoever's it is


def test_a_holder_below_one_that_has_lost_its_creator_is_not_healthy() -> None:
    fork_server = run(
        300, "python3", "-c", "from multiprocessing.forkserver import main; main(9, 10)", pipes={10: 7003}
    )
    core = run(301, "VLLM::EngineCore", ppid=300, pipes={8: 7003, 9: PIPE})
    assert state(INIT, LOST, fork_server, core) is ORPHANED
    creator = run(299, "python3", "app.py", pipes={4: 7003})
    assert state(INIT, LOST, creator, replace(fork_server, ppid=299), core) is DETACHED


def test_a_tracker_without_a_known_holder_is_orphaned() -> None:
    assert state(INIT, LOST) is ORPHANED
    assert state(LOST) is ORPHANED  # its parent is not to be seen


def test_a_process_may_own_two_trackers() -> None:
    creator = run(100, "python3", "app.py", pipes={32: PIPE, 33: OTHER})
    second = run(501, "python3", "-c", LOKY, ppid=100, pipes={31: OTHER})
    assert list(tracker_states(table([creator, tracker(100), second]), frozenset()).values()) == [ATTACHED, ATTACHED]


def test_where_pipes_were_not_read_for_what_that_costs_a_tracker_has_no_state() -> None:
    busy = run(100, "gunicorn: worker [chat]", pipes=None, pipes_denied=False)
    assert state(busy, tracker(100)) is None
    assert state(replace(busy, argv=("vllm", "serve"), engine="vllm"), tracker(100)) is None
    assert state(run(100, "bash"), tracker(100, pipes=None, pipes_denied=False)) is None
    core = run(301, "VLLM::EngineCore", ppid=100, pipes={9: PIPE, 24: 7003})
    assert state(INIT, busy, LOST, core) is None  # its holder is healthy, or an orphan


def test_a_tracker_whose_pipe_may_have_an_unknown_holder_is_not_called_orphaned() -> None:
    unknown = frozenset({500})
    daemon = run(300, "python3", "app.py", pipes={7: PIPE})
    orphan = run(301, "VLLM::EngineCore", pipes={9: PIPE, 24: 7003})
    assert state(INIT, LOST, unknown_holders=unknown) is None
    assert state(INIT, LOST, daemon, unknown_holders=unknown) is None
    assert state(INIT, LOST, orphan, unknown_holders=unknown) is ORPHANED
    assert state(INIT, LOST, unknown_holders=frozenset({501})) is ORPHANED


class Counted(dict[int, int]):
    """Pipes that count their searches."""

    times = 0

    def values(self) -> ValuesView[int]:  # type: ignore[override]  # dict has a type of its own for them
        self.times += 1
        return super().values()


def test_a_process_with_many_pipes_is_not_searched_for_each_of_many_trackers() -> None:
    pipes = Counted({number: 50_000 + number for number in range(4000)})
    trackers = [replace(LOST, id=ProcessId(1000 + number, 1000)) for number in range(50)]
    found = tracker_states(table([INIT, run(300, "python3", "app.py", pipes=pipes), *trackers]), frozenset())
    assert len(found) == 50
    assert pipes.times == 1
