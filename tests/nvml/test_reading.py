"""Readings of a pass, through real pynvml, from a driver that behaves in one of the known ways."""

import os
from pathlib import Path

import pytest
from tests.fakes.nvml_reader import Driver, holders_of, memory_of

from llmhost.model.gpu import MemoryApi
from llmhost.model.ids import GpuUuid, ProcessId
from llmhost.model.reading import Cause, Failed, NotApplicable

MIB = 1 << 20
GIB = 1 << 30
UNUSED_PID = 4_194_305  # above the largest pid that Linux gives (2²²)
H100 = 'name="NVIDIA H100 80GB HBM3" total=81559M reserved=551M'


def own_start_ticks() -> int:
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


def test_a_healthy_gpu_gives_every_value(driver: Driver) -> None:
    me = os.getpid()
    driver.write([f"gpu 0 {H100} util=37 temp=64 power=412345 fabric=3:0", f"proc 0 {me} mem=30G"])
    report = driver.reader().read()
    assert (report.driver_version, report.nvml_version) == ("570.86.16", "12.570.86.16")
    assert (report.listed, report.listed_most) == (1, 1)
    (gpu,) = report.gpus
    assert gpu.uuid == "GPU-fa4e0000-0000-4000-8000-000000000000"
    assert (gpu.index, gpu.name, gpu.pci_bus_id) == ("0", "NVIDIA H100 80GB HBM3", "00000000:10:00.0")
    assert (gpu.up, gpu.fault, gpu.parent_uuid, gpu.unified_memory) == (True, None, None, False)
    memory = memory_of(gpu)
    assert (memory.api, memory.total_bytes, memory.reserved_bytes) == (MemoryApi.V2, 81559 * MIB, 551 * MIB)
    assert (memory.used_bytes, memory.free_bytes) == (30 * GIB, (81559 - 551) * MIB - 30 * GIB)
    assert holders_of(gpu)[me].process == ProcessId(me, own_start_ticks())
    assert holders_of(gpu)[me].used_bytes == 30 * GIB
    assert (gpu.utilization_ratio, gpu.temperature_celsius, gpu.power_watts) == (0.37, 64.0, 412.345)
    assert gpu.fabric_ready is True


@pytest.mark.parametrize(
    "code", [13, 25, 3], ids=["no such symbol", "the version is not known", "the call is not supported"]
)
def test_without_the_v2_memory_call_used_includes_reserved_and_says_so(code: int, driver: Driver) -> None:
    driver.write([f"gpu 0 {H100}", f"proc 0 {os.getpid()} mem=1G", f"fault nvmlDeviceGetMemoryInfo_v2 * {code}"])
    memory = memory_of(driver.reader().gpu())
    assert memory.api is MemoryApi.V1
    assert memory.reserved_bytes is None
    assert memory.used_bytes == (551 + 1024) * MIB
    assert memory.used_bytes + memory.free_bytes == memory.total_bytes


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("nvmlDeviceGetUtilizationRates", "utilization_ratio"),
        ("nvmlDeviceGetTemperature", "temperature_celsius"),
        ("nvmlDeviceGetPowerUsage", "power_watts"),
        ("nvmlDeviceGetGpuFabricInfo*", "fabric_ready"),
    ],
)
@pytest.mark.parametrize("code", [3, 999])
def test_an_error_in_one_call_costs_one_field(call: str, field: str, code: int, driver: Driver) -> None:
    driver.write(["gpu 0 fabric=3:0", f"fault {call} * {code}"])
    gpu = driver.reader().gpu()
    fields = ("utilization_ratio", "temperature_celsius", "power_watts", "fabric_ready")
    assert gpu.up
    assert memory_of(gpu).used_bytes == 0
    assert {name for name in fields if getattr(gpu, name) is None} == {field}


@pytest.mark.parametrize(
    ("code", "cause"),
    [(3, Cause.NOT_SUPPORTED), (4, Cause.NO_PERMISSION), (17, Cause.NO_PERMISSION), (37, Cause.UNKNOWN)],
)
def test_memory_that_cannot_be_read_says_why(code: int, cause: Cause, driver: Driver) -> None:
    driver.write(["gpu 0", f"fault nvmlDeviceGetMemoryInfo* * {code}"])
    gpu = driver.reader().gpu()
    assert gpu.up
    assert isinstance(gpu.memory, Failed)
    assert gpu.memory.cause is cause
    assert f"({code})" in gpu.memory.detail
    assert holders_of(gpu) == {}


@pytest.mark.parametrize(
    ("fabric", "ready"), [("", None), ("fabric=0:0", None), ("fabric=2:0", False), ("fabric=3:999", False)]
)
def test_a_fabric_is_ready_only_when_registered_with_success(fabric: str, ready: bool | None, driver: Driver) -> None:
    driver.write([f"gpu 0 {fabric}"])
    assert driver.reader().gpu().fabric_ready is ready


def test_an_old_driver_reports_the_fabric_by_its_old_call(driver: Driver) -> None:
    driver.write(["gpu 0 fabric=3:0", "fault nvmlDeviceGetGpuFabricInfoV * 13"])
    assert driver.reader().gpu().fabric_ready is True


@pytest.mark.parametrize("name", ["NVIDIA GB10", "NVIDIA Thor", "Orin (nvgpu)"])
@pytest.mark.parametrize("memory", ["total=na", "total=119G", "total=0 reserved=0"])
def test_an_integrated_gpu_has_no_memory_of_its_own_whatever_its_driver_says(
    name: str, memory: str, driver: Driver
) -> None:
    driver.write([f'gpu 0 name="{name}" {memory}', f"proc 0 {os.getpid()} mem=4G"])
    gpu = driver.reader().gpu()
    assert gpu.up
    assert gpu.unified_memory
    assert isinstance(gpu.memory, NotApplicable)
    assert holders_of(gpu)[os.getpid()].used_bytes == 4 * GIB


def test_unsupported_memory_of_any_other_gpu_is_not_unified(driver: Driver) -> None:
    driver.write(['gpu 0 name="NVIDIA GB100" total=na', "gpu 1 name=GB10", "fault nvmlDeviceGetMemoryInfo* 1 4"])
    plain, unreadable = driver.reader().read().gpus
    assert not plain.unified_memory
    assert not unreadable.unified_memory
    assert isinstance(plain.memory, Failed)
    assert isinstance(unreadable.memory, Failed)
    assert (plain.memory.cause, unreadable.memory.cause) == (Cause.NOT_SUPPORTED, Cause.NO_PERMISSION)


def test_bytes_that_the_driver_does_not_report_are_unknown_and_not_zero(driver: Driver) -> None:
    driver.write(["gpu 0 total=16376M reserved=0 used=14360M", f"proc 0 {os.getpid()} mem=na", "proc 0 1 mem=0"])
    gpu = driver.reader().gpu()
    assert {pid: holder.used_bytes for pid, holder in holders_of(gpu).items()} == {os.getpid(): None, 1: 0}
    assert memory_of(gpu).used_bytes == 14360 * MIB


def test_a_process_in_several_lists_counts_once_with_the_larger_size(driver: Driver) -> None:
    driver.write(
        [
            "gpu 0",
            *("proc 0 4242 mem=12G", "proc 0 4242 type=G mem=13G"),
            *("proc 0 4243 type=G mem=64M", "proc 0 4243 mem=na"),
            "proc 0 4244 type=M mem=2G",  # in the compute and in the MPS list
        ]
    )
    holders = holders_of(driver.reader().gpu())
    assert {pid: holder.used_bytes for pid, holder in holders.items()} == {
        4242: 13 * GIB,
        4243: 64 * MIB,
        4244: 2 * GIB,
    }


def test_five_hundred_processes_are_all_there(driver: Driver) -> None:
    driver.write(["gpu 0", *(f"proc 0 {UNUSED_PID + i} mem={i + 1}M" for i in range(500))])
    holders = holders_of(driver.reader().gpu())
    assert sorted(holders) == [UNUSED_PID + i for i in range(500)]
    assert sum(holder.used_bytes or 0 for holder in holders.values()) == sum(range(1, 501)) * MIB


@pytest.mark.parametrize("races", [1, 2])
def test_a_list_that_grows_while_it_is_read_is_read_again(races: int, driver: Driver) -> None:
    driver.write(["gpu 0", "proc 0 77 mem=1G", f"fault nvmlDeviceGetComputeRunningProcesses_v3 0 7 times={races}"])
    assert list(holders_of(driver.reader().gpu())) == [77]


def test_a_list_that_never_fits_is_no_list(driver: Driver) -> None:
    driver.write(["gpu 0", "proc 0 77 mem=1G", "fault nvmlDeviceGetComputeRunningProcesses_v3 0 7"])
    gpu = driver.reader().gpu()
    assert gpu.holders == Failed(Cause.UNKNOWN, "nvmlDeviceGetComputeRunningProcesses_v3: INSUFFICIENT_SIZE (7)")
    assert memory_of(gpu).used_bytes == GIB


def test_a_list_in_the_usual_case_takes_one_call(driver: Driver, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    driver.write([f"system x trace={trace}", "gpu 0", *(f"proc 0 {UNUSED_PID + i} mem=1M" for i in range(128))])
    assert len(holders_of(driver.reader().gpu())) == 128
    calls = [line.split()[2] for line in trace.read_text().splitlines()]
    assert [call for call in calls if "RunningProcesses" in call] == [
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    ]


@pytest.mark.parametrize("entries", [3, 120])
def test_drivers_that_write_wide_entries_are_read_by_the_older_call(entries: int, driver: Driver) -> None:
    driver.write(
        ["system x procstride=32", "gpu 0", *(f"proc 0 {UNUSED_PID + i} mem={i + 1}M" for i in range(entries))]
    )
    holders = holders_of(driver.reader().gpu())
    assert {pid: holder.used_bytes for pid, holder in holders.items()} == {
        UNUSED_PID + i: (i + 1) * MIB for i in range(entries)
    }


def test_garbled_lists_without_an_older_call_are_no_list(driver: Driver) -> None:
    lines = ["system x procstride=32", "gpu 0", *(f"proc 0 {100 + i} mem=1M" for i in range(3))]
    driver.write([*lines, "fault nvmlDeviceGetComputeRunningProcesses_v2 * 13"])
    holders = driver.reader().gpu().holders
    assert isinstance(holders, Failed)
    assert "cannot be true" in holders.detail


def test_a_driver_without_the_v3_lists_is_read_by_v2(driver: Driver) -> None:
    driver.write(["gpu 0", "proc 0 77 mem=1G", "fault nvmlDeviceGet*RunningProcesses_v3 * 13"])
    assert holders_of(driver.reader().gpu())[77].used_bytes == GIB


def test_lists_of_graphics_and_mps_may_be_missing_but_not_broken(driver: Driver) -> None:
    calls = ("nvmlDeviceGetGraphics*", "nvmlDeviceGetMPS*")
    driver.write(
        ["gpu 0", "gpu 1", "proc 0 77 mem=1G", *(f"fault {call} 0 3" for call in calls), f"fault {calls[0]} 1 999"]
    )
    fine, broken = driver.reader().read().gpus
    assert list(holders_of(fine)) == [77]
    assert isinstance(broken.holders, Failed)


def test_names_may_be_any_bytes(driver: Driver) -> None:
    name = b'gpu 0 name="NVIDIA \xff\xfe GPU"'.decode(errors="surrogateescape")
    driver.write([name])
    assert driver.reader().gpu().name == "NVIDIA �� GPU"


def test_what_the_library_prints_does_not_get_into_the_answers(driver: Driver) -> None:
    driver.write(["system x say=noise", "gpu 0"])
    assert driver.reader().read().listed == 1


def test_a_device_without_a_uuid_goes_by_its_pci_address_or_index(driver: Driver) -> None:
    driver.write(["gpu 0", "gpu 1", "fault nvmlDeviceGetUUID * 3", "fault nvmlDeviceGetPciInfo_v3 1 3"])
    report = driver.reader().read()
    assert [(gpu.uuid, gpu.up) for gpu in report.gpus] == [("PCI-00000000:10:00.0", True), ("INDEX-1", True)]


def test_what_is_not_supported_is_not_asked_at_each_pass(driver: Driver, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    driver.write([f"system x trace={trace}", "gpu 0 temp=-1 power=-1"])
    reader = driver.reader()
    for _ in range(3):
        reader.read()
        reader.clock.advance(2)
    calls = [line.split()[2] for line in trace.read_text().splitlines()]
    assert calls.count("nvmlDeviceGetTemperature") == calls.count("nvmlDeviceGetPowerUsage") == 1
    assert calls.count("nvmlDeviceGetUtilizationRates") == 3


def test_mig_instances_have_the_memory_and_the_holders(driver: Driver) -> None:
    driver.write(
        [
            "gpu 0 mig=1 total=80G util=50",
            *("mig 0 0 gi=3 ci=0 total=20G", "mig 0 2 gi=5 total=40G"),
            *("proc 0 50 mem=3G gi=3 ci=0", "proc 0 51 mem=5G gi=5 ci=0", "proc 0 51 mem=1G gi=3 ci=0"),
            "gpu 1",
        ]
    )
    report = driver.reader().read()
    assert (report.listed, [gpu.index for gpu in report.gpus]) == (2, ["0", "0:0", "0:2", "1"])
    parent, first, second, _ = report.gpus
    assert (parent.utilization_ratio, parent.temperature_celsius) == (None, 40.0)
    assert isinstance(parent.memory, NotApplicable)
    assert isinstance(parent.holders, NotApplicable)
    assert (first.uuid, first.parent_uuid) == ("MIG-fa4e0000-0000-4000-8000-000000000000", parent.uuid)
    assert (memory_of(first).used_bytes, memory_of(first).total_bytes) == (4 * GIB, 20 * GIB)
    assert {pid: holder.used_bytes for pid, holder in holders_of(first).items()} == {50: 3 * GIB, 51: GIB}
    assert {pid: holder.used_bytes for pid, holder in holders_of(second).items()} == {51: 5 * GIB}


def test_without_privilege_over_the_parent_the_instances_are_asked(driver: Driver) -> None:
    world = [
        "gpu 0 mig=1",
        "mig 0 0 gi=3 ci=0 total=19968M",
        "mig 0 1 gi=5",
        "proc 0 50 mem=3G gi=3 ci=0",
        "proc 0 51 mem=5G gi=5 ci=0",
    ]
    # The fake's faults are by GPU: the first list call is the parent's, those of the instances come after it.
    driver.write([*world, "fault nvmlDeviceGetComputeRunningProcesses_v3 0 4 times=1"])
    report = driver.reader().read()
    parent, first, second = report.gpus
    assert parent.up
    assert (list(holders_of(first)), list(holders_of(second))) == ([50], [51])


def test_instances_that_may_not_be_listed_either_say_no_permission(driver: Driver) -> None:
    driver.write(
        [
            "gpu 0 mig=1",
            "mig 0 0 gi=3 ci=0",
            "fault nvmlDeviceGet*RunningProcesses* 0 4",
            "fault nvmlDeviceGetMemoryInfo* 0 4",
        ]
    )
    parent, instance = driver.reader().read().gpus
    assert (parent.up, instance.up) == (True, True)
    assert isinstance(instance.memory, Failed)
    assert isinstance(instance.holders, Failed)
    assert (instance.memory.cause, instance.holders.cause) == (Cause.NO_PERMISSION, Cause.NO_PERMISSION)


def test_a_destroyed_instance_is_dropped_at_the_next_pass(driver: Driver) -> None:
    driver.write(["gpu 0 mig=1", "mig 0 0 gi=3", "mig 0 1 gi=4"])
    reader = driver.reader(list_interval_seconds=100.0)
    assert [gpu.index for gpu in reader.read().gpus] == ["0", "0:0", "0:1"]
    driver.write(["gpu 0 mig=1", "mig 0 1 gi=4"])
    assert [gpu.index for gpu in reader.read().gpus] == ["0", "0:1"]
    driver.write(["gpu 0"])
    reader.clock.advance(100)
    (gpu,) = reader.read().gpus
    assert memory_of(gpu).used_bytes == 0
    assert gpu.utilization_ratio == 0.0


def test_the_uuid_is_what_stays_when_indexes_move(driver: Driver) -> None:
    driver.write(["gpu 0 uuid=GPU-a", "gpu 1 uuid=GPU-b", "proc 1 77 mem=1G"])
    reader = driver.reader()
    reader.read()
    driver.write(["gpu 0 uuid=GPU-b", "gpu 1 uuid=GPU-a", "proc 0 77 mem=1G"])
    reader.clock.advance(2)
    gpus = {gpu.uuid: gpu for gpu in reader.read().gpus}
    assert (gpus[GpuUuid("GPU-b")].index, list(holders_of(gpus[GpuUuid("GPU-b")]))) == ("0", [77])
