"""GPUs that are lost, sessions that break, drivers that are not there: what each costs, and how it comes back."""

from pathlib import Path

import pytest
from tests.fakes.nvml_reader import Driver, holders_of, memory_of

from llmhost.model.gpu import Gpu, NvmlReport
from llmhost.model.reading import Cause, Failed

FOUR = [f'gpu {i} uuid=GPU-{i} name="NVIDIA H200"' for i in range(4)]


def faults(report: NvmlReport) -> dict[str, Cause | None]:
    return {gpu.uuid: gpu.fault for gpu in report.gpus}


def assert_says_nothing(gpu: Gpu, cause: Cause) -> None:
    assert isinstance(gpu.memory, Failed)
    assert isinstance(gpu.holders, Failed)
    assert (gpu.memory.cause, gpu.holders.cause, gpu.fault, gpu.up) == (cause, cause, cause, False)
    assert (gpu.utilization_ratio, gpu.temperature_celsius, gpu.power_watts, gpu.fabric_ready) == (None,) * 4


@pytest.mark.parametrize(
    ("call", "code", "cause"),
    [
        ("nvmlDeviceGetHandleByIndex_v2", 15, Cause.LOST),
        ("nvmlDeviceGetUUID", 15, Cause.LOST),
        ("nvmlDeviceGetMigMode", 15, Cause.LOST),
        ("nvmlDeviceGetMemoryInfo_v2", 15, Cause.LOST),
        ("nvmlDeviceGetMemoryInfo_v2", 16, Cause.RESET_REQUIRED),
        ("nvmlDeviceGetComputeRunningProcesses_v3", 15, Cause.LOST),
        ("nvmlDeviceGetGraphicsRunningProcesses_v3", 15, Cause.LOST),
        ("nvmlDeviceGetPowerUsage", 15, Cause.LOST),
    ],
)
def test_a_lost_gpu_costs_that_gpu_whatever_call_says_so(call: str, code: int, cause: Cause, driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader()
    reader.read()
    reader.clock.advance(2)
    driver.add(f"fault {call} 2 {code}", "proc 3 77 mem=1G")
    report = reader.read()
    assert faults(report) == {"GPU-0": None, "GPU-1": None, "GPU-2": cause, "GPU-3": None}
    assert (report.listed, report.listed_most) == (4, 4)
    lost = report.gpus[2]
    assert (lost.name, lost.index, lost.pci_bus_id) == ("NVIDIA H200", "2", "00000000:12:00.0")
    assert call in lost.fault_detail
    assert f"({code})" in lost.fault_detail
    assert_says_nothing(lost, cause)
    assert memory_of(report.gpus[3]).used_bytes == 1 << 30
    assert list(holders_of(report.gpus[3])) == [77]
    driver.write(FOUR)
    reader.clock.advance(2)
    assert set(faults(reader.read()).values()) == {None}


def test_a_gpu_that_is_lost_between_lists_is_seen_at_once(driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader(list_interval_seconds=100.0)
    reader.read()
    driver.add("fault nvmlDevice* 1 15")
    assert faults(reader.read())["GPU-1"] is Cause.LOST


def test_a_gpu_that_never_gave_its_uuid_goes_by_its_index(driver: Driver) -> None:
    driver.write([*FOUR, "fault nvmlDeviceGetHandleByIndex_v2 2 15"])
    reader = driver.reader()
    assert faults(reader.read()) == {"GPU-0": None, "GPU-1": None, "INDEX-2": Cause.LOST, "GPU-3": None}
    driver.write(FOUR)
    reader.clock.advance(2)
    assert faults(reader.read()) == {"GPU-0": None, "GPU-1": None, "GPU-2": None, "GPU-3": None}


def test_a_gpu_that_is_no_longer_listed_stays_as_lost(driver: Driver) -> None:
    eight = [f"gpu {i} uuid=GPU-{i}" for i in range(8)]
    driver.write(eight)
    reader = driver.reader()
    reader.read()
    # As after a driver reload: the rest is numbered anew.
    driver.write(["system x epoch=1", *eight[:5], "gpu 5 uuid=GPU-6", "gpu 6 uuid=GPU-7"])
    report = reader.read()
    assert (report.listed, report.listed_most) == (7, 8)
    assert [gpu.uuid for gpu in report.gpus if not gpu.up] == ["GPU-5"]
    assert_says_nothing(next(gpu for gpu in report.gpus if not gpu.up), Cause.LOST)
    driver.write(["system x epoch=1", *eight])
    reader.clock.advance(2)
    report = reader.read()
    assert (report.listed, set(faults(report).values())) == (8, {None})


@pytest.mark.parametrize(
    ("code", "cause"),
    [*((code, Cause.UNKNOWN) for code in (3, 9, 12, 18, 999)), (4, Cause.NO_PERMISSION), (17, Cause.NO_PERMISSION)],
)
def test_a_gpu_is_down_for_one_of_five_causes_and_the_detail_keeps_the_code(
    code: int, cause: Cause, driver: Driver
) -> None:
    driver.write([*FOUR, f"fault nvmlDeviceGetHandleByIndex_v2 1 {code}"])
    gpu = driver.reader().gpu("1")
    assert gpu.fault is cause
    assert gpu.fault_detail.startswith("nvmlDeviceGetHandleByIndex_v2: ")
    assert gpu.fault_detail.endswith(f"({code})")


def test_a_gpu_that_answers_nothing_but_errors_is_down(driver: Driver) -> None:
    driver.write([*FOUR, "fault nvmlDeviceGet[!HU]* 1 999", "fault nvmlDeviceGetUtil* 1 999"])
    report = driver.reader().read()
    assert faults(report) == {"GPU-0": None, "GPU-1": Cause.UNKNOWN, "GPU-2": None, "GPU-3": None}


@pytest.mark.parametrize(
    "failing",
    [
        ["fault nvmlDeviceGetMigMode* 1 999"],
        ["fault nvmlDeviceGetTemperature* 1 999", "fault nvmlDeviceGetUtil* 1 999"],
        ["fault nvmlDeviceGetPowerUsage 1 999", "fault nvmlDeviceGetUtil* 1 999"],
    ],
)
@pytest.mark.parametrize("split", [False, True])
def test_a_sick_gpu_is_down_with_the_same_cause_at_each_look(failing: list[str], split: bool, driver: Driver) -> None:
    driver.write(["gpu 0", "gpu 1 mig=1" if split else "gpu 1", *(["mig 1 1 gi=2"] if split else []), *failing])
    reader = driver.reader()
    for _ in range(3):
        report = reader.read()
        assert [gpu.fault for gpu in report.gpus] == [None, Cause.UNKNOWN]
        assert report.gpus[1].fault_detail.endswith("(999)")
        assert isinstance(report.gpus[1].memory, Failed)
        reader.clock.advance(0.4)


def test_a_split_gpu_that_falls_sick_keeps_its_instances(driver: Driver) -> None:
    driver.write(["gpu 0 mig=1", "mig 0 1 gi=2"])
    reader = driver.reader()
    reader.read()
    driver.add("fault nvmlDeviceGetMigMode* 0 999")
    for _ in range(2):
        reader.clock.advance(2)
        assert [(gpu.index, gpu.fault) for gpu in reader.read().gpus] == [("0", Cause.UNKNOWN), ("0:1", Cause.UNKNOWN)]


def test_instances_of_a_lost_gpu_stay_with_it(driver: Driver) -> None:
    world = ["gpu 0 mig=1", "mig 0 1 gi=2", "gpu 1"]
    driver.write(world)
    reader = driver.reader()
    reader.read()
    driver.add("fault nvmlDeviceGetHandleByIndex_v2 0 15")
    reader.clock.advance(2)
    assert [(gpu.index, gpu.fault) for gpu in reader.read().gpus] == [
        ("0", Cause.LOST),
        ("0:1", Cause.LOST),
        ("1", None),
    ]


def test_a_reloaded_driver_is_met_by_a_new_session_in_the_same_read(driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader()
    reader.read()
    child = reader.child_pid
    driver.write(["system x epoch=1", *FOUR, "proc 0 77 mem=1G"])
    assert list(faults(reader.read()).values()) == [None] * 4
    assert reader.child_pid == child


@pytest.mark.parametrize("code", [1, 999])
def test_a_session_that_stays_broken_costs_the_report_and_the_child(code: int, driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader(failure_backoff=(1.0, 60.0))
    reader.read()
    child = reader.child_pid
    driver.add(f"fault nvmlDevice* * {code}")
    reader.clock.advance(2)
    error = reader.fail()
    assert error.cause is Cause.UNKNOWN
    assert f"({code})" in error.detail
    driver.write(FOUR)
    assert reader.fail().detail == error.detail  # too early for the next try
    reader.clock.advance(1)
    assert list(faults(reader.read()).values()) == [None] * 4
    assert reader.child_pid != child


@pytest.mark.parametrize("gpus", [FOUR, FOUR[:1]], ids=["four", "one"])
@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGet[!CH]*"])
def test_gpus_that_all_fail_in_a_new_session_too_are_down_and_come_back(
    call: str, gpus: list[str], driver: Driver, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    world = [f"system x trace={trace}", *gpus]
    driver.write(world)
    reader = driver.reader()
    reader.read()
    child = reader.child_pid
    driver.add(f"fault {call} * 999", "fault nvmlDeviceGetCompute* * 999")
    for _ in range(3):
        reader.clock.advance(2)
        report = reader.read()
        assert (report.listed, report.listed_most) == (len(gpus), len(gpus))
        assert faults(report) == {f"GPU-{i}": Cause.UNKNOWN for i in range(len(gpus))}
        assert_says_nothing(report.gpus[0], Cause.UNKNOWN)
        assert "UNKNOWN (999)" in report.gpus[0].fault_detail
    assert trace.read_text().count("nvmlInitWithFlags") == 2  # the new session was tried once
    driver.write(world)
    reader.clock.advance(2)
    assert set(faults(reader.read()).values()) == {None}
    assert reader.child_pid == child


def test_gpus_that_fail_from_the_start_are_there_and_down(driver: Driver) -> None:
    driver.write([*FOUR[:1], "fault nvmlDeviceGet[!C]* * 999"])
    (gpu,) = driver.reader().read().gpus
    assert (gpu.index, gpu.fault) == ("0", Cause.UNKNOWN)


def test_a_driver_without_gpus_is_no_report_and_its_first_gpu_is_found_later(driver: Driver) -> None:
    driver.write(["system x"])
    reader = driver.reader(failure_backoff=(100.0, 6000.0))
    for wait in (100, 200, 400):  # rarer each time
        error = reader.fail()
        assert (error.cause, error.detail) == (Cause.NO_GPU, "the driver 570.86.16 lists no GPU")
        assert reader.source._state.child is None
        reader.clock.advance(wait - 50)
        assert reader.fail().detail == error.detail
        assert reader.source._state.child is None
        reader.clock.advance(50)
    driver.write(FOUR)
    assert reader.read().listed == 4


def test_a_driver_that_lists_no_gpu_any_more_has_lost_them(driver: Driver) -> None:
    driver.write(FOUR[:2])
    reader = driver.reader()
    reader.read()
    driver.write(["system x"])
    reader.clock.advance(2)
    report = reader.read()
    assert (report.listed, report.listed_most) == (0, 2)
    assert faults(report) == {"GPU-0": Cause.LOST, "GPU-1": Cause.LOST}


@pytest.mark.parametrize(
    ("state", "cause", "detail"),
    [
        (None, Cause.NO_DRIVER, "nvmlInitWithFlags: DRIVER_NOT_LOADED (9); the library is 570.86.16"),
        (
            "system x init=18",
            Cause.DRIVER_MISMATCH,
            "nvmlInitWithFlags: LIB_RM_VERSION_MISMATCH (18); the library is 570.86.16",
        ),
        ("system x init=999", Cause.UNKNOWN, "nvmlInitWithFlags: UNKNOWN (999); the library is 570.86.16"),
        ("system x init=17", Cause.NO_PERMISSION, "nvmlInitWithFlags: OPERATING_SYSTEM (17); the library is 570.86.16"),
    ],
)
def test_a_driver_that_cannot_be_had_has_a_cause_and_is_found_later(
    state: str | None, cause: Cause, detail: str, driver: Driver
) -> None:
    if state is not None:
        driver.write([state])
    reader = driver.reader(failure_backoff=(1.0, 60.0))
    error = reader.fail()
    assert (error.cause, error.detail) == (cause, detail)
    driver.write(FOUR)
    assert reader.fail().cause is cause
    reader.clock.advance(1)
    assert reader.read().listed == 4


def test_without_the_library_there_is_no_library(driver: Driver) -> None:
    error = driver.reader(environment={"LD_LIBRARY_PATH": ""}).fail()
    assert error.cause is Cause.NO_LIBRARY
    assert error.detail.startswith("libnvidia-ml.so.1: cannot open shared object file: ")
    assert error.detail.endswith(": LIBRARY_NOT_FOUND (12)")


def test_a_broken_library_is_distinguished_from_a_missing_one(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no library\n")
    error = driver.reader(environment={"LD_LIBRARY_PATH": str(tmp_path)}).fail()
    assert error.cause is Cause.NO_LIBRARY
    assert str(tmp_path / "libnvidia-ml.so.1") in error.detail
    assert "file too short" in error.detail or "invalid ELF header" in error.detail


def test_an_upgraded_library_on_disk_is_a_mismatch_before_anything_fails(driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader()
    report = reader.read()
    assert (report.driver_mismatch, report.library_on_disk_version) == (False, "570.86.16")
    driver.install_library("580.95.05")
    report = reader.read()
    assert (report.driver_mismatch, report.library_on_disk_version, report.driver_version) == (
        True,
        "580.95.05",
        "570.86.16",
    )
    assert report.listed == 4
    driver.install_library("570.86.16")
    assert reader.read().driver_mismatch is False


def test_without_the_version_of_the_library_on_disk_a_mismatch_is_unknown(driver: Driver) -> None:
    driver.write(FOUR)
    link = driver.directory / "libnvidia-ml.so.1"
    library = link.resolve()
    link.unlink()
    library.rename(link)  # as under WSL
    reader = driver.reader()
    report = reader.read()
    assert (report.library_on_disk_version, report.driver_mismatch) == (None, None)
    link.unlink()  # as in the middle of an upgrade
    assert reader.read().driver_mismatch is None


def test_without_the_version_of_the_driver_a_mismatch_is_unknown(driver: Driver) -> None:
    driver.write([*FOUR, "fault nvmlSystemGetDriverVersion * 999"])
    report = driver.reader().read()
    assert (report.library_on_disk_version, report.driver_mismatch) == ("570.86.16", None)


def test_after_an_upgrade_the_next_child_loads_the_new_library(driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader(failure_backoff=(1.0, 60.0))
    reader.read()
    driver.install_library("580.95.05")
    driver.write(["system x init=18 epoch=1 driver=580.95.05", *FOUR])  # the old library meets the new module
    assert reader.fail().cause is Cause.DRIVER_MISMATCH
    driver.write(["system x epoch=1 driver=580.95.05", *FOUR])
    reader.clock.advance(1)
    report = reader.read()
    assert (report.driver_version, report.driver_mismatch) == ("580.95.05", False)
