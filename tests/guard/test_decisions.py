"""The guard's decisions, by numbers worked out by hand."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from tests.fakes import values
from tests.fakes.values import GIB, MIB, memory

from llmhost.config.schema import Config, GpusConfig
from llmhost.decide.guard.decision import Decision, GuardOptions, Rule, decide, rule_of
from llmhost.decide.guard.memory_stability import STILL_BYTES, UsageTrend, UsageTrends, advance
from llmhost.decide.guard.refusal import refusal_code, success_note
from llmhost.decide.guard.target import WaitLimit
from llmhost.model.gpu import Gpu, NvmlReport
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.history.history import History
from llmhost.model.ids import GpuUuid
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit, UnitSettings

AT = 1000.0


def gpu(number: int, used_gib: float = 0.0, **given: Any) -> Gpu:  # noqa: ANN401 - whatever field a test cares for
    """96 GiB, of which 1 GiB is reserved."""
    return values.gpu(number, **{"memory": memory(int(used_gib * GIB), 96 * GIB), **given})


def snapshot_of(nvml: Reading[NvmlReport]) -> Snapshot:
    return values.snapshot(nvml=nvml, at_monotonic=AT)


def vllm(*arguments: str, **environment: str) -> Unit:
    exec_start = (("/opt/vllm/bin/vllm", "serve", "model", *arguments),)
    settings = UnitSettings(exec_start=exec_start, environment=tuple(environment.items()))
    return values.unit("vllm.service", "activating", "start-pre", settings=settings)


def still(nvml: NvmlReport, seconds: float = 10.0) -> UsageTrends:
    return advance({}, nvml.used_bytes, AT - seconds)


def decided(
    unit: Unit,
    *gpus: Gpu,
    options: GuardOptions | None = None,
    trends: UsageTrends | None = None,
    config: Config | None = None,
) -> Decision:
    options = options or GuardOptions()
    found = values.report(gpus)
    snapshot = snapshot_of(Ok(found))
    rule = rule_of(unit, options, snapshot, config or Config(), History())
    return decide(rule, options, snapshot, still(found) if trends is None else trends)


def short(decision: Decision) -> list[tuple[str, int | None, int | None]]:
    return [(lack.gpu.index, lack.free_bytes, lack.needed_bytes) for lack in decision.lacks]


def test_a_gpu_of_the_set_that_lacks_a_byte_holds_the_start_and_others_do_not() -> None:
    unit = vllm("--gpu-memory-utilization", "0.9", CUDA_VISIBLE_DEVICES="1,2")
    needed = int(0.9 * 95 * GIB)  # of what is not reserved
    enough = 95 * GIB - needed

    def with_used(used_bytes: int) -> Gpu:
        return gpu(1, memory=memory(used_bytes, 96 * GIB))

    assert decided(unit, gpu(0, 90), with_used(enough), gpu(2)).verdict is GuardVerdict.FREE
    held = decided(unit, gpu(0, 90), with_used(enough + 1), gpu(2))
    assert held.verdict is GuardVerdict.HELD
    assert short(held) == [("1", needed - 1, needed)]


def test_without_a_known_need_less_than_max_used_must_be_in_use() -> None:
    """1000 MiB, as operators have it in their loops: 999 are few enough, 1000 are not."""
    unit = replace(vllm(), settings=UnitSettings(exec_start=(("/opt/serve",),)))
    options = GuardOptions(gpus=("0",))
    assert decided(unit, gpu(0, 999 / 1024), options=options).verdict is GuardVerdict.FREE
    assert decided(unit, gpu(0, 1000 / 1024), options=options).verdict is GuardVerdict.HELD
    larger = GuardOptions(gpus=("0",), max_used_bytes=2 * GIB)
    assert decided(unit, gpu(0, 1000 / 1024), options=larger).verdict is GuardVerdict.FREE


def test_what_the_command_line_wants_goes_over_what_the_engine_will_ask_for() -> None:
    unit = vllm("--gpu-memory-utilization", "0.9", CUDA_VISIBLE_DEVICES="0")
    size = GuardOptions(gpus=("00000000:11:00.0",), free_bytes=40 * GIB)
    assert decided(unit, gpu(0, 90), gpu(1, 55), options=size).verdict is GuardVerdict.FREE
    assert short(decided(unit, gpu(0), gpu(1, 56), options=size)) == [("1", 39 * GIB, 40 * GIB)]
    half = GuardOptions(free_ratio=0.5)
    assert short(decided(unit, gpu(0, 50), options=half)) == [("0", 45 * GIB, int(47.5 * GIB))]


def test_where_a_units_gpus_are_unknown_all_must_have_it_free() -> None:
    unit = vllm("--config", "/etc/vllm.yml", "--gpu-memory-utilization", "0.9")
    options = GuardOptions()
    snapshot = snapshot_of(Ok(values.report([gpu(0), gpu(1, 90)])))
    rule = rule_of(unit, options, snapshot, Config(), History())
    assert rule.doubt == "a config file of the engine may say how many GPUs it uses"
    assert short(decided(unit, gpu(0), gpu(1, 90))) == [("1", 5 * GIB, int(0.9 * 95 * GIB))]
    assert decided(unit, gpu(0), gpu(1)).verdict is GuardVerdict.FREE


def test_memory_must_stand_still_for_as_long_as_settle_says() -> None:
    unit = vllm(CUDA_VISIBLE_DEVICES="0")
    found = values.report([gpu(0)])
    for seconds, verdict in ((0.99, GuardVerdict.HELD), (1.0, GuardVerdict.FREE)):
        decision = decided(unit, gpu(0), trends=still(found, seconds))
        assert decision.verdict is verdict
        assert [gpu.index for gpu in decision.moving] == (["0"] if verdict is GuardVerdict.HELD else [])
    at_once = decided(unit, gpu(0), options=GuardOptions(settle_seconds=0.0), trends=still(found, 0.0))
    assert at_once.verdict is GuardVerdict.FREE
    assert decided(unit, gpu(0), trends={}).verdict is GuardVerdict.HELD, "never read"


def test_memory_that_moves_by_16_mib_stands_still_and_by_a_byte_more_does_not() -> None:
    uuid = GpuUuid("GPU-0")
    trends = advance({}, {uuid: 100 * MIB}, 10.0)
    trends = advance(trends, {uuid: 108 * MIB}, 10.5)
    trends = advance(trends, {uuid: 92 * MIB}, 11.0)  # 16 MiB between the least and the most
    assert trends[uuid].since == 10.0
    moved = advance(trends, {uuid: 92 * MIB - 1}, 11.5)
    assert moved[uuid] == UsageTrend(
        since=11.5,
        least_bytes=92 * MIB - 1,
        most_bytes=92 * MIB - 1,
        samples=((10.0, 100 * MIB), (10.5, 108 * MIB), (11.0, 92 * MIB), (11.5, 92 * MIB - 1)),
    )
    slowly = advance({}, {uuid: 0}, 0.0)
    for step in range(1, 18):  # 1 MiB each tenth of a second: no two readings differ by much
        slowly = advance(slowly, {uuid: step * MIB}, step / 10)
    assert slowly[uuid].since == 1.7
    assert advance(trends, {}, 12.0) == {}, "what was not read does not count as still"
    assert STILL_BYTES == 16 * MIB


def test_the_rate_is_that_of_the_last_two_seconds() -> None:
    uuid = GpuUuid("GPU-0")
    trends: UsageTrends = {}
    for at, used in ((0.0, 90), (1.0, 80), (2.0, 69), (3.0, 58)):
        trends = advance(trends, {uuid: used * GIB}, at)
    assert trends[uuid].falling_bytes_per_second == 11 * GIB  # from 80 at 1 s to 58 at 3 s


def test_a_fabric_that_is_not_ready_holds_the_start() -> None:
    unit = vllm(CUDA_VISIBLE_DEVICES="0")
    held = decided(unit, gpu(0, fabric_ready=False))
    assert (held.verdict, [lack.why for lack in held.lacks]) == (
        GuardVerdict.HELD,
        ["its NVLink fabric is not ready"],
    )
    assert decided(unit, gpu(0, fabric_ready=True)).verdict is GuardVerdict.FREE


@pytest.mark.parametrize("cause", [Cause.LOST, Cause.RESET_REQUIRED])
def test_a_lost_gpu_of_the_set_is_no_use_to_wait_for_and_another_is_no_concern(cause: Cause) -> None:
    unit = vllm(CUDA_VISIBLE_DEVICES="0")
    broken = gpu(1, fault=cause, memory=Failed(cause))
    assert decided(unit, gpu(0), broken).verdict is GuardVerdict.FREE
    both = decided(vllm("-tp", "2", CUDA_VISIBLE_DEVICES="0,1"), gpu(0), broken)
    assert (both.verdict, both.is_hopeless) == (GuardVerdict.UNKNOWN, True)


def test_a_gpu_that_is_known_to_be_missing_is_no_use_to_wait_for() -> None:
    unit = vllm("--tensor-parallel-size", "1")
    decision = decided(unit, gpu(0), config=Config(gpus=GpusConfig(expected=2)))
    assert decision.verdict is GuardVerdict.UNKNOWN
    assert decision.failure is not None
    assert decision.failure.cause is Cause.LOST


@pytest.mark.parametrize(
    "unit",
    [
        vllm("--tensor-parallel-size", "2"),
        vllm("-tp", "8", "--distributed-executor-backend", "ray"),
        vllm(CUDA_VISIBLE_DEVICES="0,1"),
        vllm(CUDA_VISIBLE_DEVICES="GPU-of-another-host"),
    ],
)
def test_more_gpus_than_the_host_has_are_no_fault_of_it(unit: Unit) -> None:
    assert decided(unit, gpu(0)).verdict is GuardVerdict.FREE
    assert decided(unit, gpu(0, 90)).verdict is GuardVerdict.HELD


def test_the_guard_waits_for_what_all_servers_of_a_unit_need() -> None:
    code = (
        "vllm serve a --gpu-memory-utilization 0.55 & vllm serve b --gpu-memory-utilization 0.35 --port 8001 & wait -n"
    )
    unit = replace(vllm(), settings=UnitSettings(exec_start=(("/bin/bash", "-c", code),)))
    assert short(decided(unit, gpu(0, 10))) == [("0", 85 * GIB, int(0.55 * 95 * GIB) + int(0.35 * 95 * GIB))]


def test_a_driver_that_does_not_serve_is_unknown_and_is_waited_for() -> None:
    options = GuardOptions()
    for cause, no_use in (
        (Cause.NO_DRIVER, False),
        (Cause.NO_LIBRARY, False),
        (Cause.NO_GPU, False),
        (Cause.TIMEOUT, False),
        (Cause.DRIVER_MISMATCH, True),
    ):
        snapshot = snapshot_of(Failed(cause))
        rule = rule_of(vllm(), options, snapshot, Config(), History())
        decision = decide(rule, options, snapshot, {})
        assert (decision.verdict, decision.is_hopeless) == (GuardVerdict.UNKNOWN, no_use)
    found = replace(values.report([gpu(0)]), driver_mismatch=True, library_on_disk_version="575.1")
    snapshot = snapshot_of(Ok(found))
    rule = rule_of(vllm(), options, snapshot, Config(), History())
    decision = decide(rule, options, snapshot, still(found))
    assert (decision.verdict, decision.is_hopeless) == (GuardVerdict.UNKNOWN, True)


def test_a_unit_without_gpus_is_free_at_once() -> None:
    assert decided(vllm(CUDA_VISIBLE_DEVICES=""), gpu(0, 90)).verdict is GuardVerdict.FREE


def test_a_gpu_that_is_split_stands_for_its_instances() -> None:
    parent = gpu(0, memory=NotApplicable("MIG"), holders=NotApplicable("MIG"))
    first = gpu(1, index="0:0", parent_uuid=parent.uuid, uuid=GpuUuid("MIG-a"))
    second = gpu(2, 40, index="0:1", parent_uuid=parent.uuid, uuid=GpuUuid("MIG-b"))
    options = GuardOptions(gpus=("0",), free_bytes=60 * GIB)
    assert short(decided(vllm(), parent, first, second, options=options)) == [("0:1", 55 * GIB, 60 * GIB)]
    options = GuardOptions(gpus=("MIG-a",), free_bytes=60 * GIB)
    assert decided(vllm(), parent, first, second, options=options).verdict is GuardVerdict.FREE


def test_unified_memory_is_that_of_the_host_and_need_not_stand_still() -> None:
    unified = gpu(0, memory=NotApplicable("unified"), unified_memory=True)
    unit = vllm("--gpu-memory-utilization", "0.8", CUDA_VISIBLE_DEVICES="0")  # of 128 GiB: 102.4
    assert short(decided(unit, unified, trends={})) == [("0", 100 * GIB, int(0.8 * 128 * GIB))]
    unit = vllm("--gpu-memory-utilization", "0.78", CUDA_VISIBLE_DEVICES="0")  # 99.84
    assert decided(unit, unified, trends={}).verdict is GuardVerdict.FREE


def test_shared_memory_counts_where_it_is_asked_for() -> None:
    options = GuardOptions(gpus=("0",), shm_bytes=16 * GIB)
    found = values.report([gpu(0)])
    snapshot = snapshot_of(Ok(found))
    rule = Rule(gpus=Ok((GpuUuid("GPU-0"),)), need=NotApplicable("not known"))
    for free, verdict in (
        (16 * GIB, GuardVerdict.FREE),
        (16 * GIB - 1, GuardVerdict.HELD),
        (None, GuardVerdict.UNKNOWN),
    ):
        decision = decide(rule, options, snapshot, still(found), shm_free_bytes=free)
        assert decision.verdict is verdict


@pytest.mark.parametrize(
    ("code", "listed", "expected"),
    [
        (1, (), 1),
        (1, (2, 143), 1),
        (1, (1,), 5),
        (143, (143, 5, 6), 7),
        (3, range(1, 126), 193),  # neither a shell's codes nor systemd's, as long as there is another
        (4, (*range(1, 126), *range(193, 200)), 126),
        (1, range(1, 256), 1),  # nothing is left
    ],
)
def test_a_refusal_has_its_documented_code_or_the_next_that_the_unit_does_not_list(
    code: int, listed: Collection[int], expected: int
) -> None:
    assert refusal_code(code, listed) == expected


@pytest.mark.parametrize(
    ("may_notify", "access", "control_pid", "until"),
    [
        (True, "exec", 7, 150.0),
        (True, "exec", 6, 27.0),  # below a shell: 30 s less a tenth
        (True, "all", 6, 150.0),
        (True, "main", 6, 27.0),
        (False, "main", 7, 27.0),
    ],
)
def test_a_wait_is_extended_only_by_a_process_that_systemd_listens_to(
    may_notify: bool, access: str, control_pid: int, until: float
) -> None:
    starting = values.unit(
        "vllm.service",
        "activating",
        "start-pre",
        control_pid=control_pid,
        settings=UnitSettings(notify_access=access, start_timeout_seconds=30.0),
    )
    limit = WaitLimit(began=0.0, timeout_seconds=150.0, may_notify=may_notify, pid=7)
    assert limit.until(starting, 0.0, is_own=True)[0] == until


def test_a_users_own_manager_is_taken_to_have_systemds_default() -> None:
    limit = WaitLimit(began=0.0, timeout_seconds=150.0, may_notify=False, pid=7, start_seconds=90.0)
    assert limit.until(None, -1.0, is_own=False) == (
        84.0,
        "5 s before TimeoutStartSec=90s would end it; NotifyAccess=exec lets the guard extend it",
    )


@pytest.mark.parametrize(
    ("shown", "listed"), [("", ""), ("75 6 TERM RTMIN+2", ""), ("1 75 143 KILL", "1 143 KILL"), ("11 31 4", "4")]
)
def test_install_says_what_the_unit_counts_as_success(shown: str, listed: str) -> None:
    """As systemctl shows `SuccessExitStatus=1 TEMPFAIL 143 SIGKILL`."""
    note = success_note(shown)
    assert (f"counts {listed} as success" in note) is bool(listed)
    assert bool(note) is bool(listed)
