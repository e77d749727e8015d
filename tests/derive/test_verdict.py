"""Verdicts on starts, worked out by hand: GPUs of 80 GiB, 1 GiB reserved, policy.resident 1000 MiB."""

from dataclasses import replace

import pytest
from tests.fakes.judging import MAIN, ME, NOTEBOOK, SERVICE, in_use, judged, outcome, starting
from tests.fakes.values import GIB, HOST, MIB, gpu, held, in_service, memory, process, snapshot, table, unit

from llmhost.config.schema import Config, UnitGpus, UnitsConfig
from llmhost.derive.verdict import StartReadings, judge
from llmhost.model.gpu import Gpu
from llmhost.model.history.history import History, LearntGpus
from llmhost.model.history.unit_history import Verdict
from llmhost.model.ids import GpuUuid, ProcessId, RunId
from llmhost.model.process import Home, Placement, Role
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok
from llmhost.model.unit import Unit


def test_weights_of_the_run_before_are_in_the_way_on_each_of_its_eight_gpus() -> None:
    workers = [
        process(500 + index, SERVICE, start=12000, engine="vllm", role=Role.WORKER, argv=(f"VLLM::Worker_TP{index}",))
        for index in range(8)
    ]
    gpus = [in_use(index, 70 * GIB, held(500 + index, 70 * GIB, 12000)) for index in range(8)]
    result = judged(gpus, [MAIN, *workers], starting("/usr/bin/vllm serve m -tp 8"))
    assert outcome(result) == (Verdict.RESIDENT, [(str(index), "leftover", 70 * GIB) for index in range(8)])
    assert isinstance(result, Ok)
    first = result.value.obstacles[0]
    assert first.holder is not None
    assert (first.holder.pid, first.holder.command, first.holder.unit) == (500, "VLLM::Worker_TP0", ME)
    assert (first.gpu, first.uuid) == ("0", "GPU-0")


def test_memory_that_was_back_before_the_lists_were_read_was_in_the_way_all_the_same() -> None:
    assert outcome(judged([in_use(0, 0)], used={0: 70 * GIB})) == (Verdict.RESIDENT, [("0", "unattributed", 70 * GIB)])


def test_the_largest_obstacle_comes_first_and_each_has_its_pid_and_name() -> None:
    worker = process(500, SERVICE, start=12000, comm="python3")
    holders = (held(500, 3 * GIB, 12000), held(501, 20 * GIB, None))
    result = judged([in_use(0, 24 * GIB, *holders)], [MAIN, worker])
    assert isinstance(result, Ok)
    assert [(obstacle.kind, obstacle.used_bytes) for obstacle in result.value.obstacles] == [
        ("gone", 20 * GIB),
        ("leftover", 3 * GIB),
        ("unattributed", 1 * GIB),
    ]
    in_the_way = [obstacle.holder for obstacle in result.value.obstacles]
    assert [None if holder is None else (holder.pid, holder.command) for holder in in_the_way] == [
        (501, ""),
        (500, "python3"),
        None,
    ]


@pytest.mark.parametrize(
    ("start", "config", "history"),
    [
        (starting("vllm serve m -tp 4", {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}), Config(), History()),
        (starting("vllm serve m -tp 4"), Config(), History()),
        (
            starting("/opt/run.sh"),
            Config(),
            History(gpu_sets={ME: LearntGpus(invocation_id="a", uuids=tuple(GpuUuid(f"GPU-{n}") for n in range(4)))}),
        ),
        (
            starting("/opt/run.sh"),
            Config(units=UnitsConfig(gpus=(UnitGpus(pattern="vllm*", gpus=("0", "1", "2", "3")),))),
            History(),
        ),
    ],
    ids=["CUDA_VISIBLE_DEVICES", "tensor parallel", "learnt", "configured"],
)
def test_memory_on_other_gpus_than_the_units_is_not_in_its_way(start: Unit, config: Config, history: History) -> None:
    tenant = unit("sglang.service", invocation_id="t")  # up since 9 s
    worker = process(600, in_service("sglang.service"), start=1000)
    leftover = process(601, in_service("sglang.service"), start=100)
    gpus = [in_use(index, 0) for index in range(4)]
    gpus += [in_use(index, 75 * GIB, held(600, 40 * GIB), held(601, 35 * GIB, 100)) for index in range(4, 8)]
    processes = [MAIN, worker, leftover]
    assert outcome(judged(gpus, processes, start, units=[tenant], config=config, history=history)) == (
        Verdict.CLEAN,
        [],
    )
    nearer = [*gpus[:3], replace(gpus[4], uuid=GpuUuid("GPU-3"), index="3"), *gpus[4:]]
    assert outcome(judged(nearer, processes, start, units=[tenant], config=config, history=history)) == (
        Verdict.RESIDENT,
        [("3", "leftover", 35 * GIB)],  # its co-tenant, which is up, is not
    )


def test_memory_that_no_visible_process_holds_is_in_the_way() -> None:
    assert outcome(judged([in_use(0, 1001 * MIB)])) == (Verdict.RESIDENT, [("0", "unattributed", 1001 * MIB)])
    assert outcome(judged([in_use(0, 1000 * MIB)])) == (Verdict.CLEAN, [("0", "unattributed", 1000 * MIB)])


def test_just_the_threshold_is_not_in_the_way_beside_others_either() -> None:
    worker, server = process(500, SERVICE, start=12000), process(8, Placement(Home.SESSION), start=500, comm="Xorg")
    for used_bytes, verdict in ((1000 * MIB, Verdict.CLEAN), (1001 * MIB, Verdict.RESIDENT)):
        gpus = [in_use(0, used_bytes + GIB, held(500, used_bytes, 12000), held(8, GIB, 500))]
        assert outcome(judged(gpus, [MAIN, worker, server])) == (verdict, [("0", "leftover", used_bytes)])


def test_kinds_that_are_in_the_way_add_up_on_one_gpu_and_not_over_gpus() -> None:
    worker = process(500, SERVICE, start=12000)
    both = in_use(0, 1200 * MIB, held(500, 600 * MIB, 12000))
    assert outcome(judged([both], [MAIN, worker])) == (
        Verdict.RESIDENT,
        [("0", "leftover", 600 * MIB), ("0", "unattributed", 600 * MIB)],
    )
    apart = [in_use(0, 600 * MIB, held(500, 600 * MIB, 12000)), in_use(1, 600 * MIB)]
    assert outcome(judged(apart, [MAIN, worker], starting("vllm serve m -tp 2"))) == (
        Verdict.CLEAN,
        [("0", "leftover", 600 * MIB), ("1", "unattributed", 600 * MIB)],
    )


def test_a_pid_that_is_gone_is_in_the_way_with_the_unit_that_it_was_of() -> None:
    history = History(process_runs={ProcessId(501, 12000): RunId(unit=ME, invocation_id="old")})
    result = judged([in_use(0, 20 * GIB, held(501, 20 * GIB, 12000))], history=history)
    assert outcome(result) == (Verdict.RESIDENT, [("0", "gone", 20 * GIB)])
    assert isinstance(result, Ok)
    holder = result.value.obstacles[0].holder
    assert holder is not None
    assert holder.unit == ME


def test_an_orphan_is_in_the_way_once_it_is_known_to_be_one() -> None:
    core = process(502, Placement(Home.SESSION), start=2000, engine="vllm", role=Role.CORE, argv=("VLLM::EngineCore",))
    gpus = [in_use(0, 5 * GIB, held(502, 5 * GIB, 2000))]
    since = History(orphan_since={core.id: 900.0}, processes_since=0.0)  # at 1000 s it is one for 100 s
    assert outcome(judged(gpus, [MAIN, core], history=since)) == (Verdict.RESIDENT, [("0", "orphan", 5 * GIB)])
    assert outcome(judged(gpus, [MAIN, core])) == (Verdict.CLEAN, [("0", "session", 5 * GIB)])


@pytest.mark.parametrize(
    ("share", "notebook", "verdict"),
    [
        ("0.9", 7 * GIB, Verdict.CLEAN),  # 71.1 GiB of 79, and 72 are free
        ("0.92", 7 * GIB, Verdict.RESIDENT),  # 72.68 GiB
        ("0.9", 8 * GIB, Verdict.RESIDENT),  # 71 are free, as 1 is reserved
    ],
)
def test_a_persons_notebook_is_in_the_way_where_it_leaves_too_little(
    share: str, notebook: int, verdict: Verdict
) -> None:
    start = starting(f"vllm serve m --gpu-memory-utilization {share}")
    result = judged([in_use(0, notebook, held(7, notebook, 2000))], [MAIN, NOTEBOOK], start)
    assert outcome(result) == (verdict, [("0", "session", notebook)])


def test_what_is_free_is_what_was_free_at_the_start() -> None:
    start = starting("vllm serve m --gpu-memory-utilization 0.9")
    now = [in_use(0, 60 * GIB, held(7, 7 * GIB, 2000), held(900, 53 * GIB, 30001))]
    assert outcome(judged(now, [MAIN, NOTEBOOK], start, used={0: 7 * GIB})) == (
        Verdict.CLEAN,
        [("0", "session", 7 * GIB)],
    )


def test_a_small_notebook_is_not_what_leaves_too_little() -> None:
    tenant = unit("sglang.service", invocation_id="t")
    worker = process(600, in_service("sglang.service"), start=1000)
    gpus = [in_use(0, 40 * GIB, held(600, 40 * GIB - 500 * MIB), held(7, 500 * MIB, 2000))]
    result = judged(gpus, [MAIN, worker, NOTEBOOK], units=[tenant])
    assert outcome(result) == (Verdict.CLEAN, [("0", "session", 500 * MIB)])


def test_the_machines_own_programs_are_in_no_units_way() -> None:
    server = process(8, Placement(Home.SESSION), start=500, comm="Xorg")
    assert outcome(judged([in_use(0, 9 * GIB, held(8, 9 * GIB, 500))], [MAIN, server])) == (Verdict.CLEAN, [])


def test_what_its_own_new_process_has_allocated_by_now_is_not_in_its_way() -> None:
    worker = process(901, SERVICE, start=30050)
    now = [in_use(0, 2 * GIB, held(901, 2 * GIB, 30050))]
    assert outcome(judged(now, [MAIN, worker], used={0: 0})) == (Verdict.CLEAN, [])
    # nor does it explain away what nobody held at the start
    assert outcome(judged(now, [MAIN, worker], used={0: 2 * GIB})) == (
        Verdict.RESIDENT,
        [("0", "unattributed", 2 * GIB)],
    )


def test_memory_of_a_process_that_its_own_start_pre_left_is_not_in_its_way() -> None:
    before = process(890, SERVICE, start=30000)
    now = [in_use(0, 2 * GIB, held(890, 2 * GIB, 30000))]
    assert outcome(judged(now, [MAIN, before])) == (Verdict.CLEAN, [])


def test_without_a_main_process_its_own_processes_have_come_later() -> None:
    forking = replace(starting(), main_pid=0, exec_main_start_monotonic=None)
    now = [in_use(0, 2 * GIB, held(901, 2 * GIB, 30050))]
    assert outcome(judged(now, [process(901, SERVICE, start=30050)], forking, used={0: 3 * GIB})) == (
        Verdict.RESIDENT,
        [("0", "unattributed", 3 * GIB)],
    )


def test_a_process_younger_than_its_main_process_was_not_there() -> None:
    late = process(9, Placement(Home.SESSION), start=30002)
    now = [in_use(0, 70 * GIB, held(9, 60 * GIB, 30002), held(10, 10 * GIB, 30001))]  # 10 is gone again
    assert outcome(judged(now, [MAIN, late], used={0: 0})) == (Verdict.CLEAN, [])
    # also where the main process has ended by now: it began at 300.01 s
    assert outcome(judged(now, [late], used={0: 0})) == (Verdict.CLEAN, [])
    # in ticks since boot, of which the monotonic clock missed 200 s: that is tick 50001
    asleep = Ok(replace(HOST, boottime_ahead_seconds=200.0))
    earlier = [in_use(0, 10 * GIB, held(10, 10 * GIB, 40000))]
    assert outcome(judged(earlier, [], host=asleep)) == (Verdict.RESIDENT, [("0", "gone", 10 * GIB)])
    before = [in_use(0, 10 * GIB, held(10, 10 * GIB, 30000))]
    assert outcome(judged(before, [])) == (Verdict.RESIDENT, [("0", "gone", 10 * GIB)])


def test_a_planned_restart_finds_the_old_worker_that_lives_on_in_the_cgroup() -> None:
    old = process(500, SERVICE, start=28990)  # forked right before its run ended
    result = judged([in_use(0, 3 * GIB, held(500, 3 * GIB, 28990))], [MAIN, old])
    assert outcome(result) == (Verdict.RESIDENT, [("0", "leftover", 3 * GIB)])


def test_the_unit_counts_as_it_was_whatever_systemd_says_of_it_by_now() -> None:
    start = starting()
    failed = replace(start, active_state="failed", sub_state="failed", main_pid=0, inactive_enter_monotonic=305.0)
    worker = process(901, SERVICE, start=30050)
    now = [in_use(0, 2 * GIB, held(901, 2 * GIB, 30050))]
    read = snapshot(gpus=now, processes=[worker], units=[failed])
    assert outcome(judge(StartReadings.of(read, Config(), History()), start, {GpuUuid("GPU-0"): 0})) == (
        Verdict.CLEAN,
        [],
    )


def test_on_unified_memory_the_holders_alone_count() -> None:
    spark = gpu(memory=NotApplicable("unified"), unified_memory=True, holders=Ok((held(500, 30 * GIB, 12000),)))
    worker = process(500, SERVICE, start=12000)
    assert outcome(judged([spark], [MAIN, worker])) == (Verdict.RESIDENT, [("0", "leftover", 30 * GIB)])
    assert outcome(judged([replace(spark, holders=Ok(()))])) == (Verdict.CLEAN, [])
    assert outcome(judged([replace(spark, holders=Ok(()))], used={0: 90 * GIB})) == (Verdict.CLEAN, [])
    hidden = replace(spark, holders=Ok((held(8, None, 500),)))
    server = process(8, Placement(Home.SESSION), start=500, comm="Xorg")
    assert outcome(judged([hidden], [MAIN, server])) == (Verdict.CLEAN, [])
    # 0.8 of 128 GiB is 102.4 GiB; 100 are free
    notebook = replace(spark, holders=Ok((held(7, 2 * GIB, 2000),)))
    start = starting("vllm serve m --gpu-memory-utilization 0.8")
    assert outcome(judged([notebook], [MAIN, NOTEBOOK], start))[0] is Verdict.RESIDENT
    # and 103 were, before the unit's own process took 3
    own = replace(spark, holders=Ok((held(7, 2 * GIB, 2000), held(900, 3 * GIB, 30001))))
    assert outcome(judged([own], [MAIN, NOTEBOOK], start))[0] is Verdict.CLEAN


LOST = gpu(1, memory=Failed(Cause.LOST), holders=Failed(Cause.LOST, "fell off the bus"), fault=Cause.LOST)
CHANGING = Failed(Cause.CHANGING, "memory moved")


def test_a_lost_gpu_of_the_set_leaves_it_unknown_unless_another_is_full() -> None:
    two = starting("vllm serve m -tp 2")
    assert judged([in_use(0, 0), LOST], start=two) == Failed(Cause.LOST, "GPU 1: fell off the bus")
    assert outcome(judged([in_use(0, 70 * GIB), LOST], start=two)) == (
        Verdict.RESIDENT,
        [("0", "unattributed", 70 * GIB)],
    )
    assert outcome(judged([in_use(0, 0), LOST], start=starting("vllm serve m -tp 1"))) == (Verdict.CLEAN, [])
    unlisted = History(gpu_sets={ME: LearntGpus(invocation_id="a", uuids=(GpuUuid("GPU-0"), GpuUuid("GPU-9")))})
    assert judged([in_use(0, 0)], start=two, history=unlisted) == Failed(Cause.LOST, "GPU-9 is not listed")


def test_little_in_use_is_clean_without_lists_and_much_is_unknown_without() -> None:
    assert outcome(judged([gpu(memory=memory(used=GIB // 2), holders=CHANGING)])) == (Verdict.CLEAN, [])
    assert outcome(judged([gpu(memory=memory(used=1000 * MIB), holders=CHANGING)])) == (Verdict.CLEAN, [])
    full = gpu(memory=memory(used=2 * GIB), holders=CHANGING)
    assert judged([full]) == Failed(Cause.CHANGING, "GPU 0: memory moved")
    unread = Failed(Cause.TIMEOUT, "/proc")
    assert outcome(judged([in_use(0, GIB // 2)], processes=unread)) == (Verdict.CLEAN, [])
    assert judged([in_use(0, 2 * GIB)], processes=unread) == Failed(Cause.TIMEOUT, "GPU 0: /proc")


def test_memory_that_was_not_read_at_the_start_is_unknown_whatever_it_is_by_now() -> None:
    read = snapshot(gpus=[in_use(0, 0)], processes=[MAIN], units=[starting()])
    result = judge(StartReadings.of(read, Config(), History()), starting(), {})
    assert result == Failed(Cause.UNKNOWN, "GPU 0: its memory was not read as the unit started")


def test_without_the_driver_nothing_is_reported() -> None:
    failed = Failed(Cause.TIMEOUT, "hung")
    assert judged([], nvml=failed) == failed
    released = Failed(Cause.RELEASED, "until 12:00:00")
    assert judged([], nvml=released) == released
    assert judged([], nvml=NotApplicable("disabled by the config")) == Failed(Cause.UNKNOWN, "disabled by the config")


def test_a_holder_of_unknown_size_leaves_only_what_is_known_to_be_said() -> None:
    hidden = process(8, Placement(Home.SESSION), start=500, comm="Xorg")  # never in the way, but nobody's is unknown
    worker = process(500, SERVICE, start=12000)
    gpus = [in_use(0, 9 * GIB, held(8, None, 500), held(500, 3 * GIB, 12000))]
    assert outcome(judged(gpus, [MAIN, hidden, worker])) == (Verdict.RESIDENT, [("0", "leftover", 3 * GIB)])
    result = judged([in_use(0, 9 * GIB, held(8, None, 500))], [MAIN, hidden])
    assert result == Failed(Cause.NOT_SUPPORTED, "GPU 0: the driver does not say how much process 8 holds")
    # of its own new one it does not matter
    assert outcome(judged([in_use(0, 9 * GIB, held(900, None, 30001))], used={0: 2 * GIB})) == (
        Verdict.RESIDENT,
        [("0", "unattributed", 2 * GIB)],
    )


def test_a_unit_without_gpus_starts_clean_and_one_of_unknown_gpus_where_all_are() -> None:
    none = starting("vllm serve m", {"CUDA_VISIBLE_DEVICES": ""})
    assert outcome(judged([in_use(0, 70 * GIB)], start=none)) == (Verdict.CLEAN, [])
    unknown = starting("/usr/bin/vllm serve m --config c.yaml")
    assert outcome(judged([in_use(0, 0), in_use(1, GIB // 2)], start=unknown)) == (Verdict.CLEAN, [])
    why = Failed(Cause.UNKNOWN, "a config file of the engine may say how many GPUs it uses")
    assert judged([in_use(0, 0), in_use(1, 70 * GIB)], [], unknown) == why


def instance(number: int, used: int) -> Gpu:
    uuid, index = GpuUuid(f"MIG-{number}"), f"0:{number}"
    return gpu(uuid=uuid, index=index, parent_uuid=GpuUuid("GPU-0"), memory=memory(used=used, total=20 * GIB))


PARENT = gpu(memory=NotApplicable("its MIG instances have it"), holders=NotApplicable("its MIG instances have them"))


def test_a_mig_instance_is_a_gpu_of_its_own_and_its_parent_none() -> None:
    gpus = [PARENT, instance(0, 0), instance(1, 9 * GIB)]
    named = starting("vllm serve m", {"CUDA_VISIBLE_DEVICES": "MIG-0"})
    assert outcome(judged(gpus, start=named)) == (Verdict.CLEAN, [])
    other = starting("vllm serve m", {"CUDA_VISIBLE_DEVICES": "MIG-1"})
    assert outcome(judged(gpus, start=other)) == (Verdict.RESIDENT, [("0:1", "unattributed", 9 * GIB)])
    unnamed = Failed(Cause.UNKNOWN, "nobody knows which MIG instance of GPU-0 the unit uses")
    assert judged(gpus) == unnamed
    assert outcome(judged([PARENT, instance(0, 0), instance(1, 0)])) == (Verdict.CLEAN, [])


def test_a_machine_that_was_suspended_does_not_tell_of_its_own_processes_and_the_history_does() -> None:
    asleep = Ok(replace(HOST, boottime_ahead_seconds=200.0))
    start = replace(starting(), main_pid=0, exec_main_start_monotonic=None)
    worker = process(500, SERVICE, start=29900)  # at 299 s, or 200 s earlier
    gpus = [in_use(0, 3 * GIB, held(500, 3 * GIB, 29900))]
    result = judged(gpus, [worker], start, host=asleep)
    why = "GPU 0: the clocks do not tell of which activation of its unit process 500 is"
    assert result == Failed(Cause.UNKNOWN, why)
    history = History(process_runs={worker.id: RunId(unit=ME, invocation_id="old")})
    assert outcome(judged(gpus, [worker], start, history=history, host=asleep))[0] is Verdict.RESIDENT


def test_without_systemd_a_service_on_the_gpu_may_be_one_that_is_up() -> None:
    worker = process(600, in_service("sglang.service"), start=1000)
    gpus = [in_use(0, 40 * GIB, held(600, 40 * GIB))]
    read = replace(snapshot(gpus=gpus, processes=[MAIN, worker]), units=Failed(Cause.NO_BUS))
    assert judge(StartReadings.of(read, Config(), History()), starting(), {GpuUuid("GPU-0"): 40 * GIB}) == Failed(
        Cause.UNKNOWN, "GPU 0: systemd does not say which units are up"
    )


def test_a_process_that_is_not_in_the_table_because_it_is_younger_was_not_there() -> None:
    read = replace(table([MAIN]), read_from_ticks=30010)
    now = [in_use(0, 2 * GIB, held(901, 2 * GIB, 30020))]
    assert outcome(judged(now, used={0: 0}, processes=Ok(read))) == (Verdict.CLEAN, [])
