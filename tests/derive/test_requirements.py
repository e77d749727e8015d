"""The requirements of a start, by vLLM's own rule, and whether they are free."""

from dataclasses import replace

import pytest
from tests.fakes.values import GIB, HOST, MIB, gpu, memory, process, report, settings, snapshot, unit

from llmhost.config.schema import Config, Policy
from llmhost.derive.facts import UnitFacts, derive
from llmhost.derive.requirements import needed_ratio
from llmhost.model.engine_arguments import parse_engine_arguments
from llmhost.model.gpu import Gpu
from llmhost.model.history.history import History
from llmhost.model.ids import GpuUuid, RunId
from llmhost.model.process import Home, Placement, Role
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.unit import Unit


def ratio(engine: str, command: str) -> Reading[float]:
    return needed_ratio(engine, parse_engine_arguments(engine, tuple(command.split())), Policy())


@pytest.mark.parametrize(
    ("engine", "command", "share"),
    [
        ("vllm", "vllm serve m --gpu-memory-utilization 0.9", 0.9),
        ("vllm", "vllm serve m --gpu_memory_utilization=0.5", 0.5),
        ("vllm", "vllm serve m", 0.92),
        ("vllm", "vllm serve --config c.yaml --gpu-memory-utilization 0.8", 0.8),
        ("vllm", "vllm serve m --gpu-mem 0.35", 0.35),
    ],
)
def test_the_share_is_the_engines_own(engine: str, command: str, share: float) -> None:
    assert ratio(engine, command) == Ok(share)


def test_what_cannot_be_known_is_not_guessed() -> None:
    assert isinstance(ratio("vllm", "vllm serve --config c.yaml"), Failed)
    assert isinstance(ratio("vllm", "vllm serve m --gpu-memory-utilization ${UTIL}"), Failed)
    assert isinstance(ratio("sglang", "sglang serve"), NotApplicable)
    assert isinstance(ratio("sglang", "sglang serve --mem-fraction-static 0.85"), NotApplicable)  # of what is free
    assert isinstance(ratio("ollama", "ollama serve"), NotApplicable)
    assert isinstance(needed_ratio("", None, Policy()), NotApplicable)


DOWN = unit(active="activating", sub="auto-restart", settings=settings("/usr/bin/vllm serve m -tp 2"))


def facts(watched: Unit, *gpus: Gpu) -> UnitFacts:
    found = derive(snapshot(gpus=gpus, processes=[], units=[watched]), Config(), History()).units
    assert isinstance(found, Ok)
    return found.value[0]


def test_the_incident_is_not_startable_for_one_gpu_that_is_full() -> None:
    # 94.97 GiB with 551 MiB reserved: 0.92 of 94.43 GiB
    full = gpu(1, memory=memory(used=91 * GIB, total=95 * GIB, reserved=551 * MIB))
    free = gpu(0, memory=memory(used=0, total=95 * GIB, reserved=551 * MIB))
    found_facts = facts(DOWN, free, full)
    expected = int(0.92 * (95 * GIB - 551 * MIB))
    assert found_facts.needed == Ok({GpuUuid("GPU-0"): expected, GpuUuid("GPU-1"): expected})
    assert found_facts.startable == Ok(False)
    assert facts(DOWN, free, gpu(1, memory=memory())).startable == Ok(True)


def test_a_unit_that_is_up_has_a_need_but_no_answer() -> None:
    found_facts = facts(unit(settings=settings("vllm serve m")), gpu())
    assert found_facts.needed == Ok({GpuUuid("GPU-0"): int(0.92 * 79 * GIB)})
    assert isinstance(found_facts.startable, NotApplicable)


def test_a_fabric_that_is_not_ready_refuses_a_start() -> None:
    assert facts(DOWN, gpu(0), gpu(1, fabric_ready=False)).startable == Ok(False)
    assert facts(DOWN, gpu(0), gpu(1, fabric_ready=True)).startable == Ok(True)


def test_a_lost_gpu_refuses_a_start_and_one_that_does_not_answer_leaves_it_unknown() -> None:
    lost = gpu(1, fault=Cause.LOST, memory=Failed(Cause.LOST))
    assert facts(DOWN, gpu(0), lost).startable == Ok(False)
    silent = gpu(1, fault=Cause.TIMEOUT, memory=Failed(Cause.TIMEOUT))
    assert facts(DOWN, gpu(0), silent).startable == Failed(Cause.TIMEOUT)


def test_a_driver_that_does_not_fit_its_library_refuses_every_start() -> None:
    mismatch = snapshot(processes=[], units=[DOWN, unit("other.service", active="failed", sub="failed")])
    found = derive(replace(mismatch, nvml=Failed(Cause.DRIVER_MISMATCH)), Config(), History()).units
    assert isinstance(found, Ok)
    assert found.value[0].startable == Ok(False)
    assert isinstance(found.value[1].startable, NotApplicable)  # nobody knows that it uses a GPU
    later = replace(report([gpu(0), gpu(1)]), driver_mismatch=True)
    found = derive(replace(mismatch, nvml=Ok(later)), Config(), History()).units
    assert isinstance(found, Ok)
    assert found.value[0].startable == Ok(False)


def test_unified_memory_is_the_hosts() -> None:
    spark = gpu(0, unified_memory=True, memory=Failed(Cause.NOT_SUPPORTED))
    watched = unit(active="failed", sub="failed", settings=settings("vllm serve m --gpu-memory-utilization 0.5"))
    found_facts = facts(watched, spark)
    assert found_facts.needed == Ok({GpuUuid("GPU-0"): HOST.memory_total_bytes // 2})
    assert found_facts.startable == Ok(True)  # 100 of 128 GiB available


def test_the_v1_call_leaves_the_reserve_in() -> None:
    old = gpu(0, memory=memory(used=GIB, total=80 * GIB, reserved=None))
    assert facts(unit(settings=settings("vllm serve m")), old).needed == Ok({GpuUuid("GPU-0"): int(0.92 * 80 * GIB)})


def test_the_running_servers_arguments_beat_exec_start_and_its_launcher_has_them() -> None:
    place = Placement(Home.SERVICE, unit().id)
    titled = process(10, place, engine="vllm", role=Role.API_SERVER, argv=("VLLM::APIServer_0",))
    command = ("/v/bin/vllm", "serve", "m", "--gpu-memory-utilization", "0.7")
    launcher = process(11, place, engine="vllm", role=Role.LAUNCHER, argv=command)
    watched = unit(settings=settings("vllm serve m"))
    found = derive(snapshot(gpus=[gpu()], processes=[titled, launcher], units=[watched]), Config(), History()).units
    assert isinstance(found, Ok)
    (found_facts,) = found.value
    assert found_facts.needed == Ok({GpuUuid("GPU-0"): int(0.7 * 79 * GIB)})
    assert found_facts.processes == Ok({Role.API_SERVER: 1, Role.LAUNCHER: 1})


def test_variables_of_the_environment_are_expanded() -> None:
    watched = unit(
        settings=settings("vllm serve m $ARGS -tp ${TP}", {"ARGS": "--gpu-memory-utilization 0.6", "TP": "2"})
    )
    found_facts = facts(watched, gpu(0), gpu(1))
    assert found_facts.needed == Ok({GpuUuid("GPU-0"): int(0.6 * 79 * GIB), GpuUuid("GPU-1"): int(0.6 * 79 * GIB)})
    assert found_facts.engine == "vllm"


def test_a_changed_exec_start_beats_the_arguments_of_a_leftover_server() -> None:
    command = ("/v/bin/vllm", "serve", "m", "--gpu-memory-utilization", "0.9")
    server = process(11, Placement(Home.SERVICE, unit().id), engine="vllm", role=Role.API_SERVER, argv=command)
    down = unit(active="failed", sub="failed", settings=settings("vllm serve m --gpu-memory-utilization 0.5"))
    found = derive(snapshot(gpus=[gpu()], processes=[server], units=[down]), Config(), History()).units
    assert isinstance(found, Ok)
    assert found.value[0].needed == Ok({GpuUuid("GPU-0"): int(0.5 * 79 * GIB)})


def test_leftovers_are_counted_and_zombies_are_not() -> None:
    place = Placement(Home.SERVICE, unit().id)
    members = [process(10, place, start=950), process(11, place, start=100), process(12, place, start=100, state="Z")]
    found = derive(snapshot(processes=members, units=[unit(), unit("vllm@b.service")]), Config(), History()).units
    assert isinstance(found, Ok)
    assert [unit_facts.leftovers for unit_facts in found.value] == [Ok(frozenset({members[1].id})), Ok(frozenset())]


def test_leftovers_are_counted_wherever_they_have_moved_to() -> None:
    up = unit(invocation_id="now")  # its activation began at tick 900
    moved, present = process(3, Placement(Home.SESSION), start=1000), process(4, Placement(Home.SESSION), start=1001)
    history = History(
        process_runs={
            moved.id: RunId(unit=up.id, invocation_id="before"),
            present.id: RunId(unit=up.id, invocation_id="now"),
        }
    )
    found = derive(snapshot(processes=[moved, present], units=[up]), Config(), history).units
    assert isinstance(found, Ok)
    assert [unit_facts.leftovers for unit_facts in found.value] == [Ok(frozenset({moved.id}))]


def test_leftovers_are_not_counted_where_the_clocks_leave_one_unknown() -> None:
    place = Placement(Home.SERVICE, unit().id)
    members = [process(10, place, start=950), process(11, place, start=100)]
    silent = unit(condition_monotonic=None)
    found = derive(snapshot(processes=members, units=[silent]), Config(), History()).units
    assert isinstance(found, Ok)
    assert isinstance(found.value[0].leftovers, Failed)
    assert found.value[0].processes == Ok({Role.OTHER: 2})


def test_a_guard_in_start_pre_is_seen() -> None:
    guarded = unit(settings=type(settings())(exec_start_pre=(("/opt/llmhost/bin/llmhost", "guard"),)))
    assert facts(guarded, gpu()).guarded
    assert not facts(unit(), gpu()).guarded
