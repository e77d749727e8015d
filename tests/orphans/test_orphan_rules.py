"""The rules by which a process is an orphan, one by one."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.orphan_trees import (
    ADOPTER_PIPES,
    CHILD_PIPES,
    CREATOR_PIPES,
    FORKSERVER,
    INIT,
    OTHER_PIPE,
    OUTPUT,
    SERVICE,
    SPAWN,
    TRACKER,
    WITH_CREATOR,
    conditions,
    run,
)
from tests.fakes.values import GIB, gpu, held, in_service, settings, snapshot, unit

from llmhost.derive.orphans import orphan_conditions
from llmhost.model.process import Home, Placement, Process
from llmhost.model.reading import Ok

PROVEN, INFERRED, NONE = {200: False}, {200: True}, dict[int, bool]()


@pytest.mark.parametrize(
    ("parent", "child_pipes", "expected"),
    [
        # a program of somebody's that runs LLM() shares a pipe for as long as both live
        (run(100, "python3 batch.py", pipes=CREATOR_PIPES), CHILD_PIPES, NONE),
        (run(100, "python3 batch.py", pipes={1: WITH_CREATOR}), CHILD_PIPES, PROVEN),
        (run(100, "python3 batch.py", pipes={5: OUTPUT}), {24: OTHER_PIPE, 2: OUTPUT, 9: OUTPUT}, PROVEN),
        (run(100, "python3 batch.py", pipes=CREATOR_PIPES), {}, PROVEN),
        # whoever has adopted it, in the same process group or another
        (run(100, "python3 launcher.py", pipes=ADOPTER_PIPES), CHILD_PIPES, PROVEN),
        (run(100, "bash", pipes=ADOPTER_PIPES), CHILD_PIPES, PROVEN),
        (run(100, "/usr/lib/systemd/systemd --user", pipes=ADOPTER_PIPES, pgrp=7), CHILD_PIPES, PROVEN),
        (run(100, "/usr/bin/conmon", pipes={}), CHILD_PIPES, PROVEN),
        (run(100, "tmux", pipes=ADOPTER_PIPES), CHILD_PIPES, PROVEN),
        # an engine's living process is no adopter, a dead one is no parent
        (run(100, "vllm serve m", pipes={}), CHILD_PIPES, NONE),
        (run(100, "vllm serve m", pipes=None), None, NONE),
        (run(100, "vllm serve m", pipes=None, state="Z"), CHILD_PIPES, PROVEN),
        (run(100, "vllm serve m --api-server-count 2", pipes=None, pgrp=5), CHILD_PIPES, NONE),
        # without privilege: another group, or neither Python nor an engine
        (run(100, "python3 batch.py", pipes=None), None, NONE),
        (run(100, "/opt/v/bin/python3.12 batch.py", pipes=None), CHILD_PIPES, NONE),
        (run(100, "python3 batch.py", pipes=CREATOR_PIPES), None, NONE),
        (run(100, "python3 batch.py", pipes=None, pgrp=5), None, INFERRED),
        (run(100, "bash", pipes=None), None, INFERRED),
        (run(100, "bash", pipes=ADOPTER_PIPES), None, INFERRED),
        (run(100, "bash", pipes=None), CHILD_PIPES, INFERRED),
    ],
)
def test_a_core_is_an_orphans_likeness_where_its_parent_did_not_make_it(
    parent: Process, child_pipes: dict[int, int] | None, expected: dict[int, bool]
) -> None:
    assert conditions(parent, run(200, "VLLM::EngineCore", ppid=100, pipes=child_pipes)) == expected


@pytest.mark.parametrize("parents", [None, ADOPTER_PIPES])
@pytest.mark.parametrize("denied", [False, True])
def test_pipes_that_were_not_read_for_what_that_costs_allow_no_inference(
    parents: dict[int, int] | None, denied: bool
) -> None:
    parent = run(100, "gunicorn: worker [chat]", pipes=parents, pipes_denied=False)
    core = run(200, "VLLM::EngineCore", ppid=100, pipes=None, pipes_denied=denied)
    assert conditions(parent, core) == (INFERRED if denied and parents is not None else NONE)
    assert conditions(parent, replace(core, pipes=CHILD_PIPES)) == (PROVEN if parents is not None else NONE)


def test_a_parent_that_is_process_1_proves_nothing_by_that() -> None:
    python = run(1, "python3 -m batch", ppid=0, pipes=CREATOR_PIPES)
    found = orphan_conditions(snapshot(processes=[python, run(200, "VLLM::EngineCore", pipes=CHILD_PIPES)]))
    assert found == Ok({})


def test_a_parent_that_is_not_to_be_seen_is_no_creator() -> None:
    assert conditions(run(200, "VLLM::EngineCore", ppid=4000, pipes=CHILD_PIPES)) == PROVEN


@pytest.mark.parametrize(
    ("command", "is_orphan"),
    [
        ("VLLM::EngineCore", True),
        ("myteam::EngineCore_DP1", True),
        ("VLLM::Worker_TP0", True),
        ("VLLM::DPCoordinator", True),
        ("VLLM::APIServer_0", True),
        ("VLLM::APIServer_DP3", True),
        ("sglang::scheduler_DP0_TP0_EP0", True),
        ("sglang::data_parallel_controller", True),
        ("sglang::tokenizer_worker:4711", True),
        ("sglang::server", True),
        ("sgl_diffusion::scheduler_U1", True),
        ("sglang::mm_proc_svc_gpu0", True),
        ("vLLM-Omni::DiffusionWorker-0", True),
        ("VLLM::DPEngineCore_1", True),
        ("ollama runner --model /m", True),
        ("text-generation-server serve m", True),
        # started by people and supervisors
        ("vllm serve m", False),
        ("vllm serve m --headless", False),
        ("python3 -m sglang.launch_server", False),
        ("VLLM::APIServer", False),
        ("ollama serve", False),
        ("llama-server -m m", False),
        ("text-generation-launcher", False),
        ("tritonserver", False),
        # nobody's, or of a role that says nothing
        ("sglang::detokenizer", False),
        ("sglang::router", False),
        ("VLLM::SomethingNew", False),
        ("python3 worker.py", False),
    ],
)
def test_only_what_an_engine_must_have_started_can_be_one(command: str, is_orphan: bool) -> None:
    assert conditions(run(200, command)) == (PROVEN if is_orphan else NONE)


def test_a_zombie_is_none() -> None:
    assert conditions(run(200, "VLLM::EngineCore", state="Z", pipes=None)) == NONE


FOREIGN_PARTS = [
    "ollama runner --model /m",
    "/opt/venv/bin/python3 /opt/venv/bin/text-generation-server serve m",
    "/opt/tritonserver/backends/python/triton_python_backend_stub m",
]


@pytest.mark.parametrize("command", FOREIGN_PARTS)
@pytest.mark.parametrize("pipes", [None, {5: 7004}], ids=["without privilege", "with pipes"])
def test_a_part_without_a_creators_pipes_is_one_only_where_it_was_certainly_adopted(
    command: str, pipes: dict[int, int] | None
) -> None:
    part = run(200, command, ppid=100, pipes=pipes, pgrp=150, session=150)
    serve = run(150, "bash", ppid=100, pgrp=150)
    # process 1 has it, and did not start it
    assert conditions(replace(part, ppid=1)) == PROVEN
    assert conditions(serve, replace(part, ppid=1)) == PROVEN
    assert conditions(replace(part, ppid=1, pgrp=200)) == PROVEN  # a leader of its group, as the launcher makes shards
    assert conditions(replace(part, ppid=1, pgrp=200, session=200)) == NONE  # ExecStart=
    # a subreaper has it, and what led its group is gone
    for adopter in ("/usr/lib/systemd/systemd --user", "bash", "python3 start.py", "/usr/bin/conmon"):
        parent = run(100, adopter, pipes=pipes)
        assert conditions(parent, part) == PROVEN
        assert conditions(parent, serve, part) == NONE
        assert conditions(parent, replace(part, pgrp=200)) == NONE  # by hand, with job control
        assert conditions(parent, replace(part, pgrp=100)) == NONE  # by a program, as torchrun


def test_a_group_leader_that_cannot_be_read_is_there() -> None:
    part = run(200, FOREIGN_PARTS[0], ppid=100, pgrp=150)
    snapshot_taken = snapshot(processes=[INIT, run(100, "bash"), part])
    assert isinstance(snapshot_taken.processes, Ok)
    unread = replace(snapshot_taken, processes=Ok(replace(snapshot_taken.processes.value, denied=frozenset({150}))))
    assert orphan_conditions(snapshot_taken) == Ok({part.id: False})
    assert orphan_conditions(unread) == Ok({})


def test_another_engines_part_below_its_living_server_is_none() -> None:
    for command, server in zip(
        FOREIGN_PARTS, ("ollama serve", "text-generation-launcher", "tritonserver"), strict=True
    ):
        part = run(200, command, ppid=100, pipes=None, pgrp=150)
        assert conditions(run(100, server, pipes=None), part) == NONE


def test_a_ray_actor_is_none_while_a_raylet_of_its_user_lives() -> None:
    actor = run(200, ("ray::RayWorkerWrapper.execute_method",), ppid=100, uid=1000)
    raylet = run(100, "/v/ray/core/src/ray/raylet/raylet --x", uid=1000, pipes={})
    assert conditions(raylet, actor) == NONE
    in_a_container = run(200, ("ray::RayWorkerWrapper",), ppid=300, uid=1000)
    assert conditions(raylet, run(300, "conmon"), in_a_container) == NONE
    assert conditions(run(100, "/v/raylet", uid=1001), in_a_container) == PROVEN
    assert conditions(run(100, "/v/raylet", uid=1000, state="Z"), actor) == PROVEN
    assert conditions(actor) == PROVEN


def test_a_raylet_that_adopted_a_core_did_not_make_it() -> None:
    raylet = run(100, "/v/raylet", pipes=ADOPTER_PIPES)
    assert conditions(raylet, run(200, "VLLM::EngineCore", ppid=100, pipes=CHILD_PIPES)) == PROVEN


# Bare children of multiprocessing


@pytest.mark.parametrize("command", [SPAWN, (*SPAWN, "--multiprocessing-fork_TP0"), FORKSERVER])
def test_a_bare_child_is_of_no_engine_without_more_evidence(command: tuple[str, ...]) -> None:
    bare = run(200, command)
    assert conditions(bare) == NONE
    assert conditions(bare, gpus=[gpu(holders=Ok((held(200, GIB),)))]) == PROVEN
    assert conditions(bare, gpus=[gpu(holders=Ok((held(200, GIB, start=999),)))]) == NONE  # another that had its pid
    assert conditions(bare, gpus=[gpu(holders=Ok((held(200, GIB, start=None),)))]) == NONE


def test_a_bare_child_in_an_engines_unit_is_the_engines() -> None:
    bare = run(200, SPAWN, placement=SERVICE)
    assert conditions(bare) == NONE
    waiting = {"active": "activating", "sub": "auto-restart"}
    assert conditions(bare, units=[unit(settings=settings("/v/bin/vllm serve m"), **waiting)]) == PROVEN
    assert conditions(bare, units=[unit(settings=settings("/v/bin/other"), **waiting)]) == NONE
    assert conditions(bare, run(300, "vllm serve m", placement=SERVICE)) == PROVEN
    assert conditions(bare, run(300, "vllm serve m", placement=in_service("vllm@b.service"))) == NONE


def test_a_bare_child_that_engines_come_from_is_one_with_them() -> None:
    bare = run(200, SPAWN, pipes={24: 7004, 5: WITH_CREATOR})
    core = run(201, "VLLM::EngineCore", ppid=200, pipes=CHILD_PIPES)
    assert conditions(bare, core) == {200: False, 201: False}
    below_a_server = [run(202, "vllm serve m", ppid=200), run(203, "VLLM::EngineCore", ppid=202, pipes=CHILD_PIPES)]
    assert conditions(bare, *below_a_server) == {}


def test_a_bare_child_below_an_engines_process_is_the_engines() -> None:
    server = run(100, "vllm serve m", pipes=CREATOR_PIPES)
    between = run(150, "sh -c", ppid=100)
    assert conditions(server, between, run(200, SPAWN, ppid=150, pipes=CHILD_PIPES)) == PROVEN


def test_a_bare_child_whose_creator_lives_is_none_though_it_holds_memory() -> None:
    creator = run(100, "python3 train.py", pipes=CREATOR_PIPES)
    bare = run(200, SPAWN, ppid=100, pipes=CHILD_PIPES)
    assert conditions(creator, bare, gpus=[gpu(holders=Ok((held(200, GIB),)))]) == NONE


def test_what_a_fork_server_made_has_lost_its_creator_with_the_fork_servers() -> None:
    fork_server = run(200, FORKSERVER, pipes={9: WITH_CREATOR})
    core = run(201, "VLLM::EngineCore", ppid=200, pipes={4: WITH_CREATOR})  # it holds the fork server's own pipe
    creator = run(100, "python3 batch.py", pipes=CREATOR_PIPES)
    assert conditions(creator, run(200, FORKSERVER, ppid=100, pipes={9: WITH_CREATOR}), core) == {}
    assert conditions(fork_server, core) == {200: False, 201: False}


# Units


def test_nothing_is_one_in_a_unit_that_is_on_its_way_out() -> None:
    inside = run(200, "VLLM::EngineCore", placement=SERVICE, pipes=CHILD_PIPES)
    below = run(201, "VLLM::Worker_TP0", ppid=200, placement=SERVICE)
    outside = run(202, "VLLM::Worker_TP1", ppid=200, placement=Placement(Home.SESSION))
    units = [unit(active="deactivating", sub="stop-sigterm")]
    assert conditions(inside, below, units=units) == {}
    assert conditions(run(200, "VLLM::EngineCore", pipes=CHILD_PIPES), below, outside, units=units) == {
        200: False,
        202: False,
    }
    assert conditions(inside, below, units=[unit()]) == {200: False, 201: False}
    assert conditions(inside, below, units=[unit("vllm@b.service", "deactivating", "stop-sigterm")]).keys() == {
        200,
        201,
    }


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        ([unit()], NONE),
        ([unit(active="activating", sub="start-post")], NONE),
        ([unit(active="activating", sub="auto-restart")], PROVEN),
        ([unit(active="failed", sub="failed")], PROVEN),
        ([], NONE),  # nobody watches the unit: its living server says that it is up
        (None, NONE),
    ],
)
def test_one_below_the_living_server_of_its_unit_is_none_while_that_is_up(
    units: list[Any] | None, expected: dict[int, bool]
) -> None:
    server = run(100, "vllm serve m", placement=SERVICE)
    between = run(150, "numactl", ppid=100, placement=SERVICE, pipes={})
    core = run(200, "VLLM::EngineCore", ppid=150, placement=SERVICE, pipes=CHILD_PIPES)
    assert conditions(server, between, core, units=units) == expected


def test_a_dead_server_above_excuses_nobody() -> None:
    server = run(100, "vllm serve m", placement=SERVICE, state="Z", pipes=None)
    between = run(150, "numactl", ppid=100, placement=SERVICE, pipes={})
    core = run(200, "VLLM::EngineCore", ppid=150, placement=SERVICE, pipes=CHILD_PIPES)
    assert conditions(server, between, core, units=[unit()]) == PROVEN


def test_the_server_of_another_unit_excuses_nobody() -> None:
    server = run(100, "vllm serve m", placement=in_service("vllm@b.service"))
    between = run(150, "bash", ppid=100, pipes={})
    core = run(200, "VLLM::EngineCore", ppid=150, placement=SERVICE, pipes=CHILD_PIPES)
    assert conditions(server, between, core, units=[unit()]) == PROVEN


# What is below an orphan


def test_all_below_an_orphan_are_orphans_but_trackers_zombies_and_servers() -> None:
    core = run(200, "VLLM::EngineCore", pipes=CHILD_PIPES)
    worker = run(201, "VLLM::Worker_TP0", ppid=200)
    compiling = run(202, "python3 -m torch._inductor.compile_worker --workers=32", ppid=201)
    tracker = run(203, TRACKER, ppid=201)
    dead = run(204, "nvcc", ppid=201, state="Z")
    below_dead = run(205, "cicc", ppid=204)
    server = run(206, "vllm serve other", ppid=200)
    of_the_server = run(207, "VLLM::EngineCore", ppid=206)
    found = conditions(core, worker, compiling, tracker, dead, below_dead, server, of_the_server)
    assert found == {200: False, 201: False, 202: False, 205: False}


def test_what_is_inferred_of_an_ancestor_is_inferred_of_those_below() -> None:
    core = run(200, "VLLM::EngineCore", ppid=100, pipes=None)
    worker = run(201, "VLLM::Worker_TP0", ppid=200, pipes=None)
    assert conditions(run(100, "bash", pipes=None), core, worker) == {200: True, 201: True}


def test_what_is_proven_of_an_ancestor_is_proven_of_those_below() -> None:
    core = run(300, "VLLM::EngineCore", pipes=CHILD_PIPES)
    between = run(250, "bash", ppid=300, pipes=None)
    below = run(200, "VLLM::EngineCore", ppid=250, pipes=None)
    assert conditions(below, between, core) == {300: False, 250: False, 200: False}


def test_parents_that_seem_to_go_round_are_endured() -> None:
    first, second = run(200, "VLLM::EngineCore", ppid=201), run(201, "bash", ppid=200, pipes={})
    assert conditions(first, second, units=[unit()]) == {200: False, 201: False}
