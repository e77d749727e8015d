"""Every finding of the doctor on values that have it, and on values that just have not."""

from dataclasses import replace
from typing import Any

import pytest
from tests.architecture.checkout import ROOT
from tests.fakes.doctor_cases import GUARD, RECORD, SERVE, VLLM, found, of, settings, view
from tests.fakes.values import (
    MIB,
    ended,
    gpu,
    in_service,
    process,
    report,
    shared_memory,
    started,
    unit,
)

from llmhost.decide.doctor.diagnose import COMPANIONS, diagnose, not_checked
from llmhost.decide.doctor.finding import Finding, Severity
from llmhost.decide.doctor.settings import ADVISED_BURST, ADVISED_INTERVAL_SECONDS
from llmhost.model.history.unit_history import Trigger, Verdict
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.sandbox import Sandbox
from llmhost.model.unit import Unit, UnitSettings


def test_a_restart_delay_below_the_measured_release_is_found() -> None:
    given = settings(restart="on-failure", restart_delay_seconds=10.0)
    (finding,) = of("restart-delay", given, record=replace(RECORD, last_release_seconds=34.0))
    assert finding.severity is Severity.WARNING
    assert "RestartSec=10s" in finding.what
    assert "34s" in finding.why
    assert finding.drop_in == ("[Service]", "RestartSec=45s")  # 34 s × 1.2 = 40.8 s, to the next 5 s


def test_a_restart_delay_that_was_seen_to_hurt_is_an_error() -> None:
    given = settings(restart="on-failure", restart_delay_seconds=10.0)
    record = replace(RECORD, last_release_seconds=34.0, starts_total={(Trigger.AUTO, Verdict.RESIDENT): 6})
    (finding,) = of("restart-delay", given, record=record)
    assert finding.severity is Severity.ERROR
    assert "6 times a restart found memory in the way" in finding.why


@pytest.mark.parametrize(
    ("given", "release"),
    [
        (settings(restart="on-failure", restart_delay_seconds=34.0), 34.0),
        (settings(restart="on-failure", restart_delay_seconds=10.0), None),  # never measured
        (settings(restart="no", restart_delay_seconds=10.0), 34.0),
        (settings(restart="on-failure", restart_delay_seconds=None), 34.0),  # infinite
        (settings(restart="on-failure", restart_delay_seconds=10.0, exec_start_pre=GUARD), 34.0),  # it waits
    ],
)
def test_a_restart_delay_that_is_long_enough_or_does_not_matter_is_none(
    given: UnitSettings, release: float | None
) -> None:
    assert of("restart-delay", given, record=replace(RECORD, last_release_seconds=release)) == ()


LIMITED = settings(
    restart="on-failure", restart_delay_seconds=10.0, start_limit_burst=5, start_limit_interval_seconds=300.0
)


def test_a_start_limit_that_can_never_trip_is_found_with_one_that_can() -> None:
    record = replace(RECORD, starts=(started("a", end=ended("exit-code", 60.0)),))
    (finding,) = of("start-limit", LIMITED, record=record)
    assert "never trip" in finding.what
    assert "5 restarts take at least 350s" in finding.why  # 5 × (10 s + 60 s) > 300 s
    assert finding.drop_in == ("[Unit]", "StartLimitIntervalSec=2h", "StartLimitBurst=5")


def test_the_advised_start_limit_fits_the_usual_failed_run_and_the_advised_delay() -> None:
    day = started("a", end=ended("signal", 86_400.0))
    runs = (day, *(started("b", end=ended("exit-code", 1800.0)) for _ in "12"))
    record = replace(RECORD, starts=runs, last_release_seconds=20.0)
    (finding,) = of("start-limit", LIMITED, record=record)
    assert finding.drop_in[1] == "StartLimitIntervalSec=4h"  # 5 × (25 s + 1800 s) × 1.5 = 13,687.5 s, to the next hour


def test_what_is_advised_is_what_the_drop_in_of_the_guard_sets_and_the_alerts_advise() -> None:
    hours, rest = divmod(ADVISED_INTERVAL_SECONDS, 3600)
    lines = [f"StartLimitIntervalSec={hours}h", f"StartLimitBurst={ADVISED_BURST}"]
    assert rest == 0
    assert [
        line for line in (ROOT / "systemd/guard.conf").read_text().splitlines() if line[:10] == "StartLimit"
    ] == lines
    assert f"`{lines[0]}` and `{lines[1]}`" in " ".join((ROOT / "alerts/README.md").read_text().split())


def test_delays_that_grow_are_in_what_a_start_limit_is_said_to_take() -> None:
    growing = replace(LIMITED, restart_steps=4, restart_longest_delay_seconds=160.0)
    (finding,) = of("start-limit", growing)
    # 10, 20, 40, 80 and 160 s
    assert "with RestartSec=10s growing to 160s, 5 restarts take at least 310s" in finding.why


@pytest.mark.parametrize("off", [{"start_limit_burst": 0}, {"start_limit_interval_seconds": 0.0}])
def test_no_start_limit_at_all_is_found(off: dict[str, Any]) -> None:
    (finding,) = of("start-limit", replace(LIMITED, **off))
    assert "has no start limit" in finding.what
    assert finding.drop_in[-1] == "StartLimitBurst=5"
    assert "300s" in finding.remedy  # what was assumed, as nobody has seen a run fail


def test_a_start_limit_is_an_error_while_its_unit_loops() -> None:
    looping = unit(active="activating", sub="auto-restart", settings=replace(LIMITED, start_limit_burst=0))
    (finding,) = found("start-limit", looping)
    assert finding.severity is Severity.ERROR


def test_a_start_limit_that_trips_or_is_unknown_is_no_finding() -> None:
    record = replace(RECORD, starts=(started("a", end=ended("exit-code", 50.0)),))
    assert of("start-limit", LIMITED, record=record) == ()  # 5 × (10 s + 50 s) = 300 s
    assert of("start-limit", LIMITED) == ()
    assert of("start-limit", replace(LIMITED, restart="no", start_limit_burst=0)) == ()


def test_restart_on_failure_is_found_where_runs_ended_with_success() -> None:
    record = replace(RECORD, unexpected_stops_total=2)
    (finding,) = of("restart-on-failure", settings(restart="on-failure"), record=record)
    assert "2 times" in finding.why
    assert finding.drop_in == ("[Service]", "Restart=always")
    for restart in ("always", "no", "on-success"):
        assert of("restart-on-failure", settings(restart=restart), record=record) == ()
    assert of("restart-on-failure", settings(restart="on-failure")) == ()


def test_a_start_timeout_below_the_measured_load_is_found() -> None:
    given = settings(service_type="notify", start_timeout_seconds=90.0)
    (finding,) = of("start-timeout", given, loads=(70.0, 120.0, 80.0))
    assert finding.severity is Severity.ERROR
    assert "the longest of its last 3 loads took 120s" in finding.why
    assert finding.drop_in == ("[Service]", "TimeoutStartSec=240s")
    (close,) = of("start-timeout", given, loads=(80.0,))  # × 1.2 is 96 s
    assert close.severity is Severity.WARNING


def test_a_start_timeout_that_spans_no_load_or_is_long_enough_is_none() -> None:
    timely = settings(service_type="notify", start_timeout_seconds=90.0)
    assert of("start-timeout", timely, loads=(75.0,)) == ()  # × 1.2 is 90 s
    assert of("start-timeout", replace(timely, service_type="exec"), loads=(120.0,)) == ()
    assert of("start-timeout", replace(timely, start_timeout_seconds=None), loads=(120.0,)) == ()
    assert of("start-timeout", timely) == ()


def test_a_start_timeout_that_let_no_load_finish_is_found() -> None:
    given = settings(service_type="notify", start_timeout_seconds=90.0)
    (finding,) = of("start-timeout", given, record=replace(RECORD, failures_total={"timeout": 4}))
    assert finding.severity is Severity.WARNING, "a stop that took too long ends a run so as well"
    assert "4 times a time-out ended a run" in finding.why
    assert finding.drop_in == ("[Service]", "TimeoutStartSec=1800s")


def test_a_guard_that_may_not_wait_for_as_long_as_memory_takes_is_found() -> None:
    given = settings(service_type="exec", start_timeout_seconds=30.0, exec_start_pre=GUARD)
    (finding,) = of("guard-timeout", given, record=replace(RECORD, last_release_seconds=34.0))
    assert finding.severity is Severity.ERROR
    assert finding.drop_in == ("[Service]", "TimeoutStartSec=120s")  # 68 s, to the next minute
    assert of("guard-timeout", given, record=replace(RECORD, last_release_seconds=25.0)) == ()
    unguarded = replace(given, exec_start_pre=())
    assert of("guard-timeout", unguarded, record=replace(RECORD, last_release_seconds=34.0)) == ()


@pytest.mark.parametrize("mode", ["process", "none"])
def test_a_kill_mode_that_spares_workers_is_found(mode: str) -> None:
    (finding,) = of("kill-mode", settings(kill_mode=mode))
    assert finding.severity is Severity.WARNING
    assert finding.drop_in == ("[Service]", "KillMode=mixed")


def test_a_kill_mode_with_processes_left_over_is_an_error() -> None:
    worker = process(20, in_service("vllm.service"), start=100)
    down = unit(active="failed", sub="failed", settings=settings(kill_mode="process"))
    (finding,) = found("kill-mode", down, processes=[worker])
    assert finding.severity is Severity.ERROR
    assert "1 is there now" in finding.why


def test_other_kill_modes_are_none() -> None:
    for mode in ("control-group", "mixed", ""):
        assert of("kill-mode", settings(kill_mode=mode)) == ()


def test_sigkill_switched_off_is_found() -> None:
    (finding,) = of("no-sigkill", settings(send_sigkill=False))
    assert finding.drop_in == ("[Service]", "SendSIGKILL=yes")
    assert of("no-sigkill", settings(send_sigkill=True)) == ()
    assert of("no-sigkill", settings(send_sigkill=None)) == ()


def test_a_stop_timeout_within_the_drain_is_found() -> None:
    draining = f"{SERVE} --shutdown-timeout 120"
    (finding,) = of("stop-timeout", settings(draining, stop_timeout_seconds=90.0))
    assert finding.drop_in == ("[Service]", "TimeoutStopSec=150s")
    assert of("stop-timeout", settings(draining, stop_timeout_seconds=121.0)) == ()
    assert of("stop-timeout", settings(draining, stop_timeout_seconds=None)) == ()
    assert of("stop-timeout", settings(SERVE, stop_timeout_seconds=90.0)) == ()
    assert of("stop-timeout", settings(f"{SERVE} --shutdown-timeout nan", stop_timeout_seconds=90.0)) == ()
    assert of("stop-timeout", settings(f"{SERVE} --shutdown-timeout $T", stop_timeout_seconds=90.0)) == ()


def test_plain_numbers_on_gpus_that_differ_are_found() -> None:
    mixed = [gpu(0, name="NVIDIA A100"), gpu(1, name="NVIDIA L4")]
    numbered = settings(environment=(("CUDA_VISIBLE_DEVICES", "0, 1"),))
    (finding,) = of("plain-numbers", numbered, gpus=mixed)
    assert finding.drop_in == ("[Service]", "Environment=CUDA_DEVICE_ORDER=PCI_BUS_ID")
    assert of("plain-numbers", numbered, gpus=[gpu(0), gpu(1)]) == ()
    ordered = settings(environment=(*numbered.environment, ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")))
    assert of("plain-numbers", ordered, gpus=mixed) == ()
    named = settings(environment=(("CUDA_VISIBLE_DEVICES", "GPU-0"),))
    assert of("plain-numbers", named, gpus=mixed) == ()


def test_shared_memory_below_what_the_workers_rings_may_take_is_found() -> None:
    def with_shm(mib: int, command: str) -> tuple[Finding, ...]:
        return of("small-shm", settings(command), shm=Ok(replace(shared_memory(), size_bytes=mib * MIB)))

    (finding,) = with_shm(64, SERVE)
    assert "64 MiB" in finding.what
    assert "400 MiB" in finding.why  # 160 for requests, 240 for the worker's answers
    assert with_shm(400, SERVE) == ()
    (finding,) = with_shm(2103, f"{SERVE} --tensor-parallel-size 8")
    assert "2104 MiB" in finding.why  # 160 + 8 × 240 + 24
    assert "size=5G" in finding.remedy
    assert with_shm(2104, f"{SERVE} --tensor-parallel-size 8") == ()
    assert with_shm(64, "/usr/bin/other") == ()
    assert of("small-shm", settings(), shm=Ok(shared_memory())) == ()  # a tmpfs without bound


def test_the_hosts_shared_memory_is_no_concern_of_a_unit_that_has_its_own() -> None:
    small = Ok(replace(shared_memory(), size_bytes=64 * MIB))
    assert len(of("small-shm", settings(), shm=small)) == 1
    assert of("small-shm", settings(sandbox=Sandbox(hidden_paths=("/dev/shm",))), shm=small) == ()


@pytest.mark.parametrize("where", ["told by NVML", "read from disk"])
def test_a_library_that_does_not_fit_the_driver_is_found(where: str) -> None:
    refused = Failed(Cause.DRIVER_MISMATCH, "the library is 575.57.08")
    upgraded = Ok(replace(report([gpu(0)]), driver_mismatch=True, library_on_disk_version="575.57.08"))
    (finding,) = found("driver-mismatch", nvml=refused if where == "told by NVML" else upgraded)
    assert finding.unit == ""
    assert "575.57.08" in finding.why
    assert found("driver-mismatch", gpus=[gpu(0)]) == ()


def asking(name: str, share: float, **given: Any) -> Unit:  # noqa: ANN401
    return unit(name, settings=settings(f"{SERVE} --gpu-memory-utilization {share}"), **given)


def test_units_that_ask_for_more_together_than_a_gpu_has_are_found_once() -> None:
    a, b = asking("a.service", 0.6), asking("b.service", 0.5)
    (finding,) = found("overcommitted", a, b)
    assert finding.unit == "a.service"
    assert finding.what == "cannot run beside b.service on GPU 0"
    assert "86.9 of 79.0 GiB" in finding.why  # (0.6 + 0.5) × (80 − 1) GiB
    assert finding.drop_in == ()


def test_units_that_fit_or_are_not_meant_to_run_are_none() -> None:
    assert found("overcommitted", asking("a.service", 0.5), asking("b.service", 0.5)) == ()
    spare = asking("b.service", 0.5, active="inactive", sub="dead", unit_file_state="disabled")
    assert found("overcommitted", asking("a.service", 0.6), spare) == ()


def test_only_the_requested_units_are_reported() -> None:
    both = view(asking("a.service", 0.6), asking("b.service", 0.5))
    assert {finding.unit for finding in diagnose(both, [UnitId("b.service")]) if finding.check == "guard"} == {
        "b.service"
    }
    assert [finding.unit for finding in diagnose(both, [UnitId("b.service")]) if finding.check == "overcommitted"] == [
        "a.service"
    ]


def test_the_worst_is_shown_first() -> None:
    given = settings(kill_mode="process", send_sigkill=False, restart="on-failure", start_limit_burst=0)
    record = replace(RECORD, unexpected_stops_total=1)
    checks = [(finding.severity, finding.check) for finding in diagnose(view(unit(settings=given), record=record))]
    assert checks == [
        (Severity.ERROR, "restart-on-failure"),
        (Severity.WARNING, "start-limit"),
        (Severity.WARNING, "kill-mode"),
        (Severity.WARNING, "no-sigkill"),
        (Severity.NOTE, "guard"),
    ]


def test_a_unit_that_systemd_has_not_loaded_has_no_settings_to_find_fault_with() -> None:
    stub = view(unit(load_state="stub", settings=None), unit("a.service", load_state="masked", settings=None))
    assert diagnose(stub) == ()
    assert tuple(not_checked(stub))[:2] == (
        "the settings of vllm.service: systemd has not loaded it",
        "the settings of a.service: systemd says masked",
    )
    assert "a.service" not in " ".join(not_checked(stub, [VLLM]))


def test_a_unit_that_is_only_read_for_others_is_not_examined_unless_requested() -> None:
    (companion,) = COMPANIONS
    beside = view(unit(companion.name, settings=settings("/usr/bin/other", kill_mode="none")))
    assert diagnose(beside) == ()
    assert [finding.check for finding in diagnose(beside, [companion])] == ["kill-mode"]
    missing = view(unit(companion.name, load_state="not-found", settings=None))
    assert "fabric" not in " ".join(not_checked(missing))


def test_what_could_not_be_read_is_reported() -> None:
    nothing = replace(
        view().snapshot,
        units=Failed(Cause.NO_BUS, "not there"),
        nvml=Failed(Cause.NO_LIBRARY),
        shm=Failed(Cause.NO_SHM),
    )
    unchecked = tuple(not_checked(replace(view(), snapshot=nothing)))
    assert len(unchecked) == 4
    assert unchecked[0] == "the units' settings: systemd cannot be read (no bus: not there)"
    assert unchecked[2] == "the size of shared memory (no shm)"
    seeing = view(
        unit(), shm=Ok(shared_memory()), record=replace(RECORD, starts=(started("a"),)), nvml=Ok(report([gpu(0)]))
    )
    assert tuple(not_checked(seeing)) == ()
    assert tuple(not_checked(replace(seeing, history_fault="not ours"))) == ("times and ends of runs: not ours",)
