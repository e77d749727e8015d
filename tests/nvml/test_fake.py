"""What the fake driver promises to the other tests, through real pynvml.

pynvml loads the library once per process and keeps it, so each test's calls run in a process of their own. The process
has the functions below and FakeNvml in its hands; a failed assertion in it fails the test.
"""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.nvml import FakeNvml, build, fake_nvml

__all__ = ["fake_nvml"]

PRELUDE = """
import os, subprocess, threading, time
from pathlib import Path
import pynvml as p

class fake:
    @staticmethod
    def write(lines):
        state = Path(os.environ["FAKE_NVML_STATE"])
        state.with_suffix(".new").write_text("\\n".join(lines))
        state.with_suffix(".new").replace(state)

four = [f'gpu {i} name="NVIDIA H100 80GB HBM3" reserved=551M total=81559M' for i in range(4)]

def code(call, *arguments):
    try:
        call(*arguments)
    except p.NVMLError as error:
        return error.value
    return 0

def begin(*lines):
    fake.write(lines)
    p.nvmlInit()
    return [p.nvmlDeviceGetHandleByIndex(i) for i in range(p.nvmlDeviceGetCount())]

def v2(device):
    return p.nvmlDeviceGetMemoryInfo(device, p.nvmlMemory_v2)
"""


@pytest.fixture
def through_pynvml(fake_nvml: FakeNvml) -> Callable[[str], None]:
    def run(program: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + inspect.cleandoc(program)],
            env={**os.environ, **fake_nvml.environment()},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    return run


Run = Callable[[str], None]


def test_init_tells_whether_the_driver_is_loaded_and_fits(through_pynvml: Run) -> None:
    through_pynvml("""
        assert code(p.nvmlInit) == 9
        assert code(p.nvmlDeviceGetCount) == 1
        for wanted in (18, 999, 9):
            fake.write([f"system x init={wanted}"])
            assert code(p.nvmlInit) == wanted
        begin(*four)
        assert p.nvmlDeviceGetCount() == 4
        p.nvmlShutdown()
        assert code(p.nvmlDeviceGetCount) == code(p.nvmlShutdown) == 1
    """)


def test_a_gpu_has_identity_memory_and_processes(through_pynvml: Run) -> None:
    through_pynvml("""
        h = begin(*four, "proc 0 4242 mem=12G", "proc 0 4243 type=G mem=64M", "proc 0 4244 type=M mem=na",
                  "proc 0 4242 type=G mem=12G")
        assert p.nvmlSystemGetDriverVersion() == "570.86.16"
        assert p.nvmlDeviceGetName(h[0]) == "NVIDIA H100 80GB HBM3"
        pci = p.nvmlDeviceGetPciInfo(h[1])
        assert (pci.busId, pci.bus) == ("00000000:11:00.0", 0x11)
        old, new = p.nvmlDeviceGetMemoryInfo(h[1]), v2(h[1])
        assert (old.used >> 20, new.used, new.reserved >> 20) == (551, 0, 551)
        assert old.total == old.used + old.free == new.used + new.free + new.reserved
        assert code(p.nvmlDeviceGetMemoryInfo, h[0], 0x03000028) == 25
        compute = p.nvmlDeviceGetComputeRunningProcesses(h[0])
        assert [(e.pid, e.usedGpuMemory, e.gpuInstanceId) for e in compute] == [
            (4242, 12 << 30, 0xFFFFFFFF), (4244, None, 0xFFFFFFFF)]
        assert [e.pid for e in p.nvmlDeviceGetGraphicsRunningProcesses(h[0])] == [4243, 4242]
        assert [e.pid for e in p.nvmlDeviceGetMPSComputeRunningProcesses(h[0])] == [4244]
        mode = (p.nvmlProcessDetailList_v1, p.NVML_PROCESS_MODE_GRAPHICS)
        assert [e.pid for e in p.nvmlDeviceGetRunningProcessDetailList(h[0], *mode)] == [4243, 4242]
        assert p.nvmlDeviceGetComputeRunningProcesses(h[1]) == []
        assert code(p.nvmlDeviceGetProcessUtilization, h[0], 0) == 6
    """)


def test_used_memory_is_that_of_the_processes(through_pynvml: Run) -> None:
    through_pynvml("""
        h = begin(*four, *(f"proc 2 {1000 + i} mem=10M" for i in range(500)))
        assert len(p.nvmlDeviceGetComputeRunningProcesses(h[2])) == 500
        assert v2(h[2]).used == 5000 << 20
    """)


def test_faults_are_by_call_and_gpu_and_may_pass(through_pynvml: Run) -> None:
    through_pynvml("""
        h = begin(*four, "fault nvmlDeviceGetMemoryInfo* 3 15", "fault nvmlDeviceGetPowerUsage * 3",
                  "fault nvmlDeviceGetTemperature 1 999 after=1 times=1", "proc 1 9 mem=1M",
                  "fault nvmlDeviceGetComputeRunningProcesses_v3 1 7 after=1 times=1")
        assert [code(p.nvmlDeviceGetMemoryInfo, x) for x in h] == [0, 0, 0, 15]
        assert code(p.nvmlDeviceGetPowerUsage, h[0]) == 3
        assert [code(p.nvmlDeviceGetTemperature, h[1], 0) for _ in range(3)] == [0, 999, 0]
        # pynvml asks twice and does not try again when the list grew in between.
        assert [code(p.nvmlDeviceGetComputeRunningProcesses, h[1]) for _ in range(2)] == [7, 0]
        fake.write([*four, "fault nvmlDeviceGetHandleByIndex_v2 2 15"])
        assert [code(p.nvmlDeviceGetHandleByIndex, i) for i in (1, 2)] == [0, 15]
    """)


def test_a_gpu_that_is_taken_away_is_lost(through_pynvml: Run) -> None:
    through_pynvml("""
        h = begin(*four)
        fake.write(line for line in four if not line.startswith("gpu 2"))
        assert (code(p.nvmlDeviceGetMemoryInfo, h[2]), p.nvmlDeviceGetCount()) == (15, 3)
        assert code(p.nvmlDeviceGetHandleByIndex, 2) == 2
    """)


def test_an_integrated_gpu_has_processes_and_no_memory(through_pynvml: Run) -> None:
    through_pynvml("""
        (h,) = begin('gpu 0 total=na name="NVIDIA GB10"', "proc 0 77 mem=4G")
        assert code(p.nvmlDeviceGetMemoryInfo, h) == code(v2, h) == 3
        assert p.nvmlDeviceGetComputeRunningProcesses(h)[0].usedGpuMemory == 4 << 30
    """)


def test_a_hung_call_holds_up_its_thread_alone_and_ends_with_its_line(through_pynvml: Run) -> None:
    through_pynvml("""
        h = begin(*four, "delay nvmlDeviceGetMemoryInfo 1 100", "delay nvmlDeviceGetMemoryInfo 3 hang")
        began = time.monotonic()
        p.nvmlDeviceGetMemoryInfo(h[1])
        assert time.monotonic() - began >= 0.1
        done = threading.Event()
        thread = threading.Thread(target=lambda: (p.nvmlDeviceGetMemoryInfo(h[3]), done.set()))
        thread.start()
        for _ in range(100):
            p.nvmlDeviceGetMemoryInfo(h[0])
        assert not done.wait(0.05)
        fake.write(four)
        assert done.wait(5)
        thread.join()
    """)


def test_a_call_that_keeps_the_lock_holds_up_all(through_pynvml: Run) -> None:
    through_pynvml("""
        h = begin(*four, "delay nvmlDeviceGetComputeRunningProcesses_v3 3 hang lock=1")
        thread = threading.Thread(target=p.nvmlDeviceGetComputeRunningProcesses, args=(h[3],))
        other = threading.Thread(target=p.nvmlDeviceGetMemoryInfo, args=(h[0],))
        thread.start()
        time.sleep(0.05)  # nothing tells from outside that the lock is taken
        other.start()
        other.join(0.1)
        assert other.is_alive()
        fake.write(four)
        thread.join(5)
        other.join(5)
        assert not other.is_alive()
    """)


def test_an_entry_bound_to_a_process_goes_with_it_after_its_time(through_pynvml: Run) -> None:
    through_pynvml("""
        child = subprocess.Popen(["sleep", "60"])
        h = begin(*four, f"proc 0 {child.pid} mem=40G alive=1 linger=150")
        assert v2(h[0]).used == 40 << 30
        child.kill()
        assert len(p.nvmlDeviceGetComputeRunningProcesses(h[0])) == 1
        began = time.monotonic()
        while p.nvmlDeviceGetComputeRunningProcesses(h[0]):  # the child is a zombie: not reaped yet
            assert time.monotonic() < began + 5
        assert time.monotonic() - began > 0.1
        assert v2(h[0]).used == 0
        child.wait()
    """)


def test_mig_instances_have_handles_with_gaps(through_pynvml: Run) -> None:
    through_pynvml("""
        (h,) = begin("gpu 0 mig=1 total=80G", "mig 0 0 gi=3 ci=0 total=20G", "mig 0 2 gi=5 total=40G",
                     "proc 0 50 mem=3G gi=3 ci=0", "proc 0 51 mem=5G gi=5 ci=0")
        assert (p.nvmlDeviceGetMigMode(h), p.nvmlDeviceGetMaxMigDeviceCount(h)) == ([1, 1], 7)
        assert [code(p.nvmlDeviceGetMigDeviceHandleByIndex, h, i) for i in range(4)] == [0, 6, 0, 6]
        first, second = (p.nvmlDeviceGetMigDeviceHandleByIndex(h, i) for i in (0, 2))
        assert [p.nvmlDeviceGetGpuInstanceId(m) for m in (first, second)] == [3, 5]
        assert p.nvmlDeviceGetUUID(first).startswith("MIG-")
        assert [v2(m).used >> 30 for m in (first, second, h)] == [3, 5, 8]
        assert [[e.pid for e in p.nvmlDeviceGetComputeRunningProcesses(m)] for m in (first, second)] == [[50], [51]]
        both = p.nvmlDeviceGetComputeRunningProcesses(h)
        assert [(e.pid, e.gpuInstanceId) for e in both] == [(50, 3), (51, 5)]
        assert code(p.nvmlDeviceGetUtilizationRates, h) == code(p.nvmlDeviceGetUtilizationRates, first) == 3
        fake.write(["gpu 0 mig=1 total=80G"])
        assert code(p.nvmlDeviceGetMemoryInfo, first) == 2
    """)


def test_each_event_is_delivered_once(through_pynvml: Run) -> None:
    through_pynvml("""
        h = begin(*four)
        events = p.nvmlEventSetCreate()
        for device in h:
            p.nvmlDeviceRegisterEvents(device, p.nvmlEventTypeXidCriticalError, events)
        assert code(p.nvmlEventSetWait_v2, events, 20) == 10
        fake.write([*four, "event 1 gpu=2 xid=79", "event 2 gpu=0 xid=94"])
        first = p.nvmlEventSetWait_v2(events, 500)
        assert (first.eventData, p.nvmlDeviceGetUUID(first.device)) == (79, p.nvmlDeviceGetUUID(h[2]))
        assert p.nvmlEventSetWait_v2(events, 500).eventData == 94
        assert code(p.nvmlEventSetWait_v2, events, 20) == 10
        p.nvmlEventSetFree(events)
    """)


def test_after_a_reload_only_a_new_session_works(through_pynvml: Run) -> None:
    through_pynvml("""
        h = begin(*four)
        fake.write(["system x epoch=1", *four])
        assert code(p.nvmlDeviceGetMemoryInfo, h[0]) == code(p.nvmlDeviceGetCount) == 999
        p.nvmlShutdown()
        p.nvmlInit()
        assert code(p.nvmlDeviceGetMemoryInfo, p.nvmlDeviceGetHandleByIndex(0)) == 0
    """)


def test_wide_entries_garble_what_follows_the_first(through_pynvml: Run) -> None:
    through_pynvml("""
        h = begin("system x procstride=32", *four, *(f"proc 0 {100 + i} mem={i + 1}M" for i in range(3)))
        listed = [(e.pid, e.usedGpuMemory) for e in p.nvmlDeviceGetComputeRunningProcesses(h[0])]
        assert listed == [(100, 1 << 20), (0, 101), (0xFFFFFFFF, 0)]
    """)


def test_the_fabric_is_there_only_where_it_is_given(through_pynvml: Run) -> None:
    through_pynvml("""
        h = begin("gpu 0", "gpu 1 fabric=2:0")
        info = p.c_nvmlGpuFabricInfo_v2_t()
        assert code(p.nvmlDeviceGetGpuFabricInfoV, h[0], p.byref(info)) == 3
        p.nvmlDeviceGetGpuFabricInfoV(h[1], p.byref(info))
        assert (info.state, info.status) == (p.NVML_GPU_FABRIC_STATE_IN_PROGRESS, 0)
        info.version = 0x09000024
        assert code(p.nvmlDeviceGetGpuFabricInfoV, h[1], p.byref(info)) == 25
    """)


def test_each_call_is_traced(through_pynvml: Run, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    through_pynvml(f"h = begin('system x trace={trace}', *four); p.nvmlDeviceGetMemoryInfo(h[1])")
    assert trace.read_text().splitlines()[-1].split()[2:5] == ["nvmlDeviceGetMemoryInfo", "1", "0"]


def test_building_again_gives_the_same_file() -> None:
    before = build().stat()
    after = build().stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
