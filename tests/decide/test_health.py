"""Everything that makes a host unhealthy, on values that have it and on values that just have not."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.values import (
    GIB,
    MIB,
    ended,
    gpu,
    held,
    in_service,
    memory,
    process,
    report,
    segment,
    shared_memory,
    snapshot,
    started,
    table,
    unit,
)

from llmhost.config.schema import Config
from llmhost.decide.health import Health, Level, health_of
from llmhost.derive.host_view import host_view
from llmhost.model.engine import EngineAnswer, EngineSample, EnginesReport
from llmhost.model.guard_run import GuardRun, GuardVerdict
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.ids import ProcessId, RunId, UnitId
from llmhost.model.process import Role
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, StuckCall
from llmhost.model.segment import SegmentId, SegmentKind
from llmhost.model.unit import UnitSettings

VLLM = UnitId("vllm.service")
SERVE = UnitSettings(exec_start=(("/usr/bin/vllm", "serve", "m"),))


def health(*, history: History | None = None, expected: int | None = None, **given: Any) -> Health:  # noqa: ANN401
    """Judge a host with one GPU and one unit that is up, but for what is given: values, or readings as a whole."""
    readings: dict[str, Any] = {
        name: value for name, value in given.items() if isinstance(value, Ok | Failed | NotApplicable)
    }
    values = {name: value for name, value in given.items() if name not in readings}
    usual: dict[str, Any] = {"gpus": [gpu(0)], "processes": [], "units": [unit(settings=SERVE)]}
    at = replace(snapshot(**(usual | values)), **readings)
    remembered = history if history is not None else History()
    return health_of(replace(host_view(at, remembered, Config()), gpus_expected=expected))


def found(**given: Any) -> list[tuple[str, str, str]]:  # noqa: ANN401
    return [(finding.kind, finding.subject, finding.what) for finding in health(**given).findings]


def test_a_host_on_which_all_is_well_is_healthy() -> None:
    assert health().level is Level.HEALTHY
    assert found() == []


@pytest.mark.parametrize(
    ("given", "kind", "what"),
    [
        (unit(load_state="not-found", active="inactive", sub="dead", settings=None), "unit_missing", "no such unit"),
        (unit(load_state="bad-setting", active="inactive", sub="dead", settings=None), "unit_missing", "bad-setting"),
        (unit(active="failed", sub="failed", result="exit-code"), "unit_failed", "has failed (exit-code)"),
        (unit(active="activating", sub="auto-restart"), "unit_restarting", "waits to be restarted"),
        (
            unit(active="inactive", sub="dead", inactive_enter_monotonic=None),
            "unit_down",
            "should run and does not",
        ),
    ],
)
def test_a_unit_that_should_run_and_does_not_is_found(given: Any, kind: str, what: str) -> None:  # noqa: ANN401
    ((topic, subject, said),) = found(units=[given])
    assert (topic, subject) == (kind, "vllm.service")
    assert what in said


@pytest.mark.parametrize(
    "given",
    [
        unit(active="inactive", sub="dead", unit_file_state="disabled"),
        unit(active="activating", sub="start-pre"),
        unit(active="deactivating", sub="stop-sigterm"),
        unit(load_state="masked", active="inactive", sub="dead", unit_file_state="masked", settings=None),
    ],
)
def test_a_unit_that_is_up_or_not_meant_to_run_is_none(given: Any) -> None:  # noqa: ANN401
    assert found(units=[given]) == []


def test_a_stopped_unit_is_none() -> None:
    stopped = UnitHistory(last_seen_at=0.0, invocation_id="a", stopped=True)
    assert found(units=[unit(active="inactive", sub="dead")], history=History(units={VLLM: stopped})) == []


def test_that_a_start_now_would_fail_is_said_unless_a_guard_waits() -> None:
    full = gpu(0, memory=memory(40 * GIB), holders=Ok(()))  # 39 GiB are free of 72.68 needed
    waits = unit(active="activating", sub="auto-restart", settings=SERVE)
    ((_, _, what),) = found(units=[waits], gpus=[full])
    assert what == "waits to be restarted; a start now would fail"
    pre = (("/opt/llmhost/bin/python3", "-I", "-m", "llmhost", "guard"),)
    guarded = replace(waits, settings=replace(SERVE, exec_start_pre=pre))
    ((_, _, what),) = found(units=[guarded], gpus=[full])
    assert what == "waits to be restarted; what it needs is not free now, and its guard waits for it"
    in_shell, around = (
        ("/bin/sh", "-c", "llmhost guard && exec vllm serve m"),
        ("llmhost", "guard", "--", "vllm", "serve", "m"),
    )
    for within in (in_shell, around):
        in_start = replace(waits, settings=replace(SERVE, exec_start=(within,)))
        assert found(units=[in_start], gpus=[full]) == [("unit_restarting", "vllm.service", what)]
    ((_, _, _), (_, _, what)) = found(units=[guarded], gpus=[gpu(0, fabric_ready=False)])
    assert what == "waits to be restarted; what it needs is not free now, and its guard waits for it"
    # no guard brings back a GPU
    lost = gpu(0, fault=Cause.LOST, memory=Failed(Cause.LOST), holders=Failed(Cause.LOST))
    assert [what for _, _, what in found(units=[guarded], gpus=[lost])] == [
        "lost",
        "waits to be restarted; a start now would fail",
    ]


@pytest.mark.parametrize(
    ("gone_gib", "ended_ago", "due"),
    [
        (60, 13.0, "; memory came back 35 s after an end before: due in 22 s"),
        (60, 35.0, ""),  # later than ever before
        (10, 13.0, ""),  # 50 GiB are another tenant's
    ],
)
def test_memory_that_usually_comes_back_is_told_when_it_is_due(gone_gib: int, ended_ago: float, due: str) -> None:
    holders = Ok((held(99, gone_gib * GIB), held(50, (60 - gone_gib) * GIB)))
    full = gpu(0, memory=memory(60 * GIB), holders=holders)
    at = 1_767_225_600.0
    end = replace(ended("exit-code", 20.0), at=at - ended_ago)
    record = UnitHistory(
        last_seen_at=at, starts=(started("a", at=at - ended_ago - 20, end=end),), last_release_seconds=35.0
    )
    waits = unit(active="activating", sub="auto-restart", settings=SERVE)
    tenant = process(50, in_service("other.service"))
    known = found(units=[waits], gpus=[full], processes=[tenant], history=History(units={VLLM: record}))
    assert known[0] == ("unit_restarting", "vllm.service", f"waits to be restarted; a start now would fail{due}")


def test_processes_of_ended_runs_are_found() -> None:
    worker = process(20, in_service("vllm.service"), start=100)  # 1 s after boot; the present activation began at 9 s
    main = process(10, in_service("vllm.service"), start=1000)
    running = unit(main_pid=10, settings=SERVE)
    assert found(units=[running], processes=[main, worker]) == [
        ("leftovers", "vllm.service", "a process of an ended run is still alive")
    ]
    assert found(units=[running], processes=[main, replace(worker, id=ProcessId(20, 1001))]) == []


def test_each_process_is_told_once_with_the_memory_that_it_holds() -> None:
    shell = process(1, None, ppid=0, comm="systemd", argv=("/sbin/init",), pipes={})
    main = process(10, in_service("vllm.service"), start=1000)
    core = {"engine": "vllm", "role": Role.CORE, "argv": ("VLLM::EngineCore",), "pipes": {}}
    worker = process(20, in_service("vllm.service"), start=100, **core)
    another = process(21, in_service("vllm.service"), start=100, **core)
    stray = process(30, None, start=100, **core)
    watched = History(processes_since=0.0, orphan_since={worker.id: 900.0, another.id: 900.0, stray.id: 900.0})
    gpus = [
        gpu(0, memory=memory(20 * GIB), holders=Ok((held(20, 10 * GIB, 100), held(21, 10 * GIB, 100)))),
        gpu(1, memory=memory(12 * GIB), holders=Ok((held(20, 10 * GIB, 100), held(30, 3 * GIB // 2, 100)))),
    ]
    running = unit(main_pid=10, settings=SERVE)
    assert found(gpus=gpus, units=[running], processes=[shell, main, worker, another, stray], history=watched) == [
        (
            "leftovers",
            "vllm.service",
            "2 processes of ended runs are still alive and hold 30.0 GiB on GPUs 0, 1",
        ),
        ("orphans", "processes", "an orphan process holds 1.5 GiB on GPU 1"),
    ]
    # the driver does not say how much one of them holds
    unsaid = [gpu(0, memory=memory(20 * GIB), holders=Ok((held(20, None, 100), held(21, 10 * GIB, 100))))]
    ((_, _, what),) = found(gpus=unsaid, units=[running], processes=[shell, main, worker, another], history=watched)
    assert what == "2 processes of ended runs are still alive and hold at least 10.0 GiB on GPU 0"


def test_a_dead_part_of_an_engine_in_a_unit_that_systemd_calls_active_is_found() -> None:
    dead = process(11, in_service("vllm.service"), state="Z", role=Role.CORE, engine="vllm", ppid=10)
    main = process(10, in_service("vllm.service"), role=Role.API_SERVER, engine="vllm")
    running = unit(main_pid=10, settings=SERVE)
    assert [kind for kind, _, _ in found(units=[running], processes=[main, dead])] == ["engine_dead"]
    stopping = replace(running, active_state="deactivating", sub_state="stop-sigterm")
    assert found(units=[stopping], processes=[main, dead]) == []
    # processes were read before the present run began, at 9 s
    read = replace(table([main, dead]), read_at_monotonic=8.9)
    assert found(units=[running], processes=Ok(read)) == []
    assert found(units=[running], processes=[main, replace(dead, role=Role.OTHER)]) == []


def test_a_driver_that_does_not_work_is_found() -> None:
    hung = Failed(Cause.TIMEOUT, "late", StuckCall("nvmlDeviceGetMemoryInfo_v2", "3", 2.0))
    ((kind, _, what),) = found(nvml=hung)
    assert (kind, what) == ("driver", "the driver hangs in nvmlDeviceGetMemoryInfo_v2 about GPU 3")
    for cause in (Cause.NO_DRIVER, Cause.DRIVER_MISMATCH, Cause.LOST, Cause.RESET_REQUIRED):
        assert [kind for kind, _, _ in found(nvml=Failed(cause))] == ["driver"]
    upgraded = replace(report([gpu(0)]), driver_mismatch=True, library_on_disk_version="575.57.08")
    ((kind, _, what),) = found(nvml=Ok(upgraded))
    assert "575.57.08" in what
    assert found(nvml=NotApplicable("disabled by the config")) == []


def test_gpus_that_are_lost_missing_or_without_fabric_are_found() -> None:
    assert found(gpus=[gpu(0), gpu(1, fault=Cause.LOST)]) == [("gpu", "GPU 1", "lost")]
    assert found(gpus=[gpu(0, fabric_ready=False)]) == [("fabric", "GPU 0", "its NVLink fabric is not ready")]
    assert found(gpus=[gpu(0, fabric_ready=True)]) == []
    assert found(expected=2) == [("gpu", "GPUs", "the driver lists 1, expected are 2")]
    assert found(expected=1) == []
    assert found(nvml=Ok(replace(report([gpu(0)]), listed_most=8))) == [
        ("gpu", "GPUs", "the driver lists 1, expected are 8")
    ]


def test_memory_that_is_held_for_the_dead_is_found_above_the_policy() -> None:
    def with_memory_of_gone(mib: int) -> list[tuple[str, str, str]]:
        return found(gpus=[gpu(0, memory=memory(mib * MIB), holders=Ok((held(99, mib * MIB),)))])

    assert with_memory_of_gone(1001) == [("gone", "GPU 0", "1.0 GiB are held for processes that are gone")]
    assert with_memory_of_gone(1000) == []
    # where the driver does not say how much a process holds, no sum is told
    left = process(20, in_service("vllm.service"), start=100)
    gpus = [gpu(0, memory=memory(9 * GIB), holders=Ok((held(20, None, 100),)))]
    main = process(10, in_service("vllm.service"))
    assert found(gpus=gpus, units=[unit(main_pid=10, settings=SERVE)], processes=[main, left]) == [
        ("leftovers", "vllm.service", "a process of an ended run is still alive and holds GPU memory on GPU 0")
    ]
    # of several GPUs together, and whose it is where that is known
    runs = {ProcessId(pid, 1000): RunId(unit=VLLM, invocation_id="a") for pid in (98, 99)}
    gpus = [gpu(index, memory=memory(9 * GIB), holders=Ok((held(98 + index, 9 * GIB),))) for index in (0, 1)]
    assert found(gpus=gpus, history=History(process_runs=runs)) == [
        ("gone", "GPUs 0, 1", "18.0 GiB are held for processes of vllm.service that are gone")
    ]


def answer(cause: Cause | None) -> Ok[EnginesReport]:
    engine_samples: tuple[EngineSample, ...] = (EngineSample(model="m", engine_index="0"),)
    samples = Ok(engine_samples) if cause is None else Failed(cause)
    return Ok(EnginesReport(answers=(EngineAnswer(unit=VLLM, engine="vllm", endpoint="http://h:1", samples=samples),)))


def test_a_server_that_does_not_answer_is_found_once_it_had_the_time_to_load() -> None:
    old = unit(settings=SERVE, active_enter_monotonic=1000.0 - 1801)  # policy.ready is 1800 s
    young = replace(old, active_enter_monotonic=1000.0 - 1799)
    ((kind, _, what),) = found(units=[young], engines=answer(Cause.REFUSED))
    assert (kind, what) == ("server", "its server at http://h:1 does not answer (refused)")
    assert [kind for kind, _, _ in found(units=[old], engines=answer(Cause.TIMEOUT))] == ["server"]
    assert found(units=[young], engines=answer(Cause.TIMEOUT)) == []
    assert found(units=[old], engines=answer(Cause.STARTING)) == []
    assert found(units=[old], engines=answer(None)) == []


def test_a_server_without_metrics_is_unknown_and_no_finding() -> None:
    result = health(engines=answer(Cause.NO_METRICS))
    assert result.level is Level.HEALTHY
    unknowns = [(unknown.subject, unknown.cause) for unknown in result.unknowns]
    assert ("vllm.service at http://h:1", "no_metrics") in unknowns


def test_a_guard_that_could_not_work_is_found() -> None:
    def with_guard(verdict: GuardVerdict) -> list[tuple[str, str, str]]:
        run = GuardRun(unit=VLLM, at=0.0, wait_seconds=34.0, verdict=verdict, runs_total={verdict: 1})
        return found(guard_runs=Ok((run,)))

    assert with_guard(GuardVerdict.FAULT) == [("guard", "vllm.service", "its guard could not work at its last start")]
    assert with_guard(GuardVerdict.FREE) == []
    result = health(guard_runs=Failed(Cause.NO_PERMISSION, "not root's"))
    assert [(unknown.subject, unknown.matters) for unknown in result.unknowns if unknown.detail == "not root's"] == [
        ("runs of guards", False)
    ]


def test_orphans_trackers_and_stale_files_are_found() -> None:
    core = process(30, None, ppid=1, engine="vllm", role=Role.CORE, argv=("VLLM::EngineCore",), pipes={})
    shell = process(1, None, ppid=0, comm="systemd", argv=("/sbin/init",), pipes={})
    argv = ("python3", "-c", "from multiprocessing.resource_tracker import main;main(5)")
    tracker = process(31, None, ppid=1, role=Role.TRACKER, argv=argv, pipes={5: 77})
    watched = History(processes_since=0.0, orphan_since={core.id: 985.0})
    orphaned = found(processes=[shell, core], history=watched)
    assert orphaned == [("orphans", "processes", "an orphan process")]
    assert found(processes=[shell, core], history=replace(watched, orphan_since={core.id: 985.5})) == []
    assert [kind for kind, _, _ in found(processes=[shell, tracker], history=watched)] == ["trackers"]
    stale = Ok(shared_memory(segment(1), segment(2)))
    since = History(unheld_since={SegmentId(27, 1): 970.0, SegmentId(27, 2): 970.5})
    assert found(shm=stale, history=since) == [("segments", "shared memory", "a stale file")]


def test_of_stale_files_those_that_clean_could_remove_are_found() -> None:
    """Leave out files of unknown names, and CUDA's, which are never removed, as LlmhostStaleSegments does."""
    files = [
        segment(1, allocated_bytes=96 * MIB),
        segment(2, kind=SegmentKind.SEMAPHORE, allocated_bytes=5 * MIB),
        segment(3, kind=SegmentKind.OTHER, allocated_bytes=GIB),
        segment(4, kind=SegmentKind.CUDA, allocated_bytes=GIB),
    ]
    since = History(unheld_since={SegmentId(27, inode): 900.0 for inode in (1, 2, 3, 4)})
    assert found(shm=Ok(shared_memory(*files)), history=since) == [
        ("segments", "shared memory", "2 stale files, 101 MiB")
    ]
    assert found(shm=Ok(shared_memory(*files[2:])), history=since) == []


def test_without_history_the_time_in_an_orphans_condition_is_unknown() -> None:
    core = process(30, None, ppid=1, engine="vllm", role=Role.CORE, argv=("VLLM::EngineCore",), pipes={})
    result = health(processes=[process(1, None, ppid=0, comm="systemd", argv=("/sbin/init",), pipes={}), core])
    assert result.level is Level.CANNOT_TELL
    assert [unknown.subject for unknown in result.unknowns if unknown.matters] == ["orphans"]


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({"units": Failed(Cause.NO_BUS)}, Level.CANNOT_TELL),
        ({"processes": Failed(Cause.PID_NAMESPACE)}, Level.CANNOT_TELL),
        ({"nvml": Failed(Cause.NO_PERMISSION)}, Level.CANNOT_TELL),
        ({"nvml": Failed(Cause.NO_LIBRARY)}, Level.CANNOT_TELL),  # there is an engine that needs one
        ({"nvml": Failed(Cause.NO_LIBRARY), "units": []}, Level.HEALTHY),  # a host without GPUs
        ({"nvml": Failed(Cause.NO_LIBRARY), "units": [], "expected": 8}, Level.CANNOT_TELL),
        ({"nvml": Failed(Cause.NO_DEVICE)}, Level.HEALTHY),  # its engines use no NVIDIA GPU
        ({"units": NotApplicable("disabled by the config")}, Level.HEALTHY),
        ({"shm": Failed(Cause.NO_SHM)}, Level.HEALTHY),
        ({"engines": Failed(Cause.TIMEOUT)}, Level.HEALTHY),
    ],
)
def test_what_cannot_be_seen_leaves_the_question_open_where_it_matters(given: dict[str, Any], level: Level) -> None:
    result = health(**given)
    assert result.level is level


def test_a_finding_outweighs_what_cannot_be_seen() -> None:
    assert health(units=[unit(active="failed", sub="failed")], nvml=Failed(Cause.NO_PERMISSION)).level is Level.FINDINGS


def test_hidden_processes_are_reported() -> None:
    result = health(processes=Ok(replace(table([]), unreadable=7)))
    assert [(unknown.subject, unknown.detail) for unknown in result.unknowns if unknown.cause == "no_permission"] == [
        ("processes", "processes of which not all could be read: 7; root can")
    ]
