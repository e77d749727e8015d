"""XID events, counted as they come: by GPU, once, whatever becomes of the GPU and of the child."""

import os
import select
import signal
import time
from pathlib import Path

import pytest
from tests.fakes.nvml_reader import Driver, Reader, calls_in, eventually

from llmhost.model.gpu import NvmlReport
from llmhost.model.reading import Cause

FOUR = [f"gpu {i} uuid=GPU-{i}" for i in range(4)]

Counts = dict[tuple[str, int], int]


def counts(report: NvmlReport) -> Counts:
    return {(gpu.uuid, xid.number): xid.count for gpu in report.gpus for xid in gpu.xids}


def counted_by_child(reader: Reader) -> Counts:
    """Return what the child has counted, without asking it."""
    assert reader.source._state.child is not None
    return {(key.gpu_uuid, key.number): xid.count for key, xid in reader.source._state.child.xids().items()}


class Host:
    def __init__(self, fake: Driver, reader: Reader, trace: Path) -> None:
        self.fake = fake
        self.reader = reader
        self.trace = trace
        self.first_line = f"system x trace={trace}"

    def begin(self, *lines: str, watched: int = 4) -> None:
        """Read once, and wait until this many GPUs are watched."""
        self.fake.write([self.first_line, *(lines or FOUR)])
        self.reader.read()
        self.wait_until_watched(watched)

    def wait_until_watched(self, gpus: int) -> None:
        registered = ("nvmlDeviceRegisterEvents", 0)
        eventually(lambda: sum((call, code) == registered for call, _, code in calls_in(self.trace)) >= gpus)

    def counted(self, expected: Counts) -> None:
        eventually(lambda: counts(self.reader.read()) == expected)


@pytest.fixture
def host(driver: Driver, tmp_path: Path) -> Host:
    reader = driver.reader(kill_after_seconds=120.0, hang_backoff=(5.0, 300.0), list_interval_seconds=0.0)
    return Host(driver, reader, tmp_path / "trace")


def test_events_are_counted_by_gpu_and_number(host: Host) -> None:
    host.begin()
    assert counts(host.reader.read()) == {}
    before = time.time()
    host.fake.add("event 1 gpu=2 xid=94", "event 2 gpu=0 xid=31", "event 3 gpu=2 xid=31", "event 4 gpu=2 xid=94")
    host.counted({("GPU-2", 94): 2, ("GPU-2", 31): 1, ("GPU-0", 31): 1})
    after = time.time()
    gpu = host.reader.read().gpus[2]
    assert [xid.number for xid in gpu.xids] == [31, 94]
    assert all(before <= xid.last_at <= after for xid in gpu.xids)


def test_an_event_between_two_reads_is_counted_once_by_reads_of_either_kind(host: Host) -> None:
    host.begin()
    host.fake.add("event 1 gpu=1 xid=31")
    eventually(lambda: counted_by_child(host.reader) == {("GPU-1", 31): 1})
    expected = {("GPU-1", 31): 1}
    for _ in range(2):
        assert counts(host.reader.read_memory()) == expected
        assert counts(host.reader.read()) == expected


def test_a_gpu_that_fell_off_the_bus_keeps_what_it_said(host: Host) -> None:
    host.begin()
    host.fake.write([host.first_line, *FOUR[:3], "event 1 gpu=3 xid=79"])
    host.counted({("GPU-3", 79): 1})
    assert host.reader.read().gpus[3].fault is Cause.LOST
    host.fake.write([host.first_line, *FOUR, "event 1 gpu=3 xid=79"])
    report = host.reader.read()
    assert (report.gpus[3].fault, counts(report)) == (None, {("GPU-3", 79): 1})


def test_a_gpu_that_is_listed_later_is_watched_from_then_on(host: Host) -> None:
    host.begin(*FOUR[:3], watched=3)
    host.fake.write([host.first_line, *FOUR])
    host.reader.read()
    host.wait_until_watched(4)
    host.fake.add("event 1 gpu=3 xid=31")
    host.counted({("GPU-3", 31): 1})


def test_an_event_of_a_mig_instance_is_its_gpus(host: Host) -> None:
    host.begin("gpu 0 uuid=GPU-0 mig=1", "mig 0 0 gi=1 ci=0", watched=1)
    host.fake.add("event 1 gpu=0 xid=43 gi=1 ci=0")
    host.counted({("GPU-0", 43): 1})


def test_what_a_killed_child_saw_is_neither_lost_nor_counted_twice(host: Host) -> None:
    host.begin()
    host.fake.add("event 1 gpu=1 xid=31")
    host.counted({("GPU-1", 31): 1})
    host.fake.add("event 2 gpu=1 xid=31")
    eventually(lambda: counted_by_child(host.reader) == {("GPU-1", 31): 2})  # and nobody has read it
    host.trace.unlink()
    child = host.reader.child_pid
    os.kill(child, signal.SIGKILL)
    eventually(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
    assert counts(host.reader.read()) == {("GPU-1", 31): 2}
    assert host.reader.child_pid != child
    host.wait_until_watched(4)
    host.fake.add("event 3 gpu=1 xid=31", "event 4 gpu=0 xid=31")
    host.counted({("GPU-1", 31): 3, ("GPU-0", 31): 1})


def test_events_are_counted_while_a_call_hangs(host: Host) -> None:
    host.begin()
    hang = "delay nvmlDeviceGetMemoryInfo_v2 3 hang"
    host.fake.add(hang)
    host.reader.fail(0.1)
    host.fake.add("event 1 gpu=3 xid=119")
    eventually(lambda: counted_by_child(host.reader) == {("GPU-3", 119): 1})
    assert "nvmlDeviceGetMemoryInfo_v2 on GPU 3" in host.reader.source.doing()
    host.fake.remove(hang)
    host.counted({("GPU-3", 119): 1})


def test_a_gpu_is_watched_before_it_hangs_the_first_read(host: Host) -> None:
    host.fake.write([host.first_line, *FOUR, "delay nvmlDeviceGetMemoryInfo_v2 1 hang"])
    host.reader.fail(0.0)
    host.wait_until_watched(2)
    host.fake.add("event 1 gpu=1 xid=119")
    eventually(lambda: counted_by_child(host.reader) == {("GPU-1", 119): 1})


def test_a_session_that_is_begun_anew_watches_anew(host: Host) -> None:
    host.begin()
    host.fake.add("event 1 gpu=1 xid=31")
    host.counted({("GPU-1", 31): 1})
    child = host.reader.child_pid
    host.trace.unlink()
    host.fake.write([f"{host.first_line} epoch=1", *FOUR, "event 1 gpu=1 xid=31"])
    host.reader.read()
    host.wait_until_watched(4)
    host.fake.add("event 2 gpu=1 xid=31")
    host.counted({("GPU-1", 31): 2})
    assert host.reader.child_pid == child


def test_a_session_is_not_shut_down_under_a_wait_that_hangs(host: Host) -> None:
    host.begin()
    child = host.reader.child_pid
    host.fake.write([f"{host.first_line} epoch=1", *FOUR, "delay nvmlEventSetWait_v2 * hang"])
    assert host.reader.fail().cause is Cause.UNKNOWN
    assert "nvmlShutdown" not in [call for call, _, _ in calls_in(host.trace)]
    host.reader.clock.advance(1)
    assert host.reader.read().listed == 4
    assert host.reader.child_pid != child


@pytest.mark.parametrize("call", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"])
def test_a_call_of_the_watch_that_hangs_delays_no_answer_and_is_not_reported_as_the_childs(
    call: str, host: Host
) -> None:
    host.fake.write([host.first_line, *FOUR, f"delay {call} * hang"])
    for _ in range(3):
        assert host.reader.read(2.0).listed == 4
    assert host.reader.source.doing() == "the NVML child is in no call: starting, stopped, or idle"


def test_gpus_that_may_not_be_watched_cost_the_others_nothing(host: Host) -> None:
    refusals = [f"fault nvmlDeviceRegisterEvents {gpu} {code}" for gpu, code in enumerate((3, 4, 15))]
    host.begin(*FOUR, *refusals, watched=1)
    host.fake.add("event 1 gpu=3 xid=31", "event 2 gpu=0 xid=31")
    host.counted({("GPU-3", 31): 1})
    registrations = [gpu for call, gpu, _ in calls_in(host.trace) if call == "nvmlDeviceRegisterEvents"]
    assert sorted(registrations) == [0, 1, 2, 3]  # nobody is asked again at once


def test_a_set_that_no_gpu_is_in_is_not_waited_for(host: Host) -> None:
    host.fake.write([host.first_line, *FOUR, "fault nvmlDeviceRegisterEvents * 3", "fault nvmlEventSetWait* * 15"])
    host.reader.read()
    eventually(lambda: ("nvmlDeviceRegisterEvents", 3, 3) in calls_in(host.trace))
    for _ in range(20):
        host.reader.read()
    assert "nvmlEventSetWait_v2" not in [call for call, _, _ in calls_in(host.trace)]


def test_a_gpu_that_spoils_the_event_set_costs_the_others_nothing(host: Host) -> None:
    """999 leaves the set in an undefined state (nvml.h)."""
    host.begin(*FOUR, "fault nvmlDeviceRegisterEvents 1 999", watched=3)
    host.fake.add("event 1 gpu=3 xid=31", "event 2 gpu=0 xid=31")
    host.counted({("GPU-3", 31): 1, ("GPU-0", 31): 1})


def test_a_wait_that_fails_at_once_is_not_repeated_at_once_and_forgets_nothing(host: Host) -> None:
    host.begin()
    failing = "fault nvmlEventSetWait_v2 * 15"
    host.fake.add(failing, "event 1 gpu=2 xid=31")
    eventually(lambda: ("nvmlEventSetWait_v2", -1, 15) in calls_in(host.trace))
    for _ in range(20):
        assert counts(host.reader.read()) == {}
    host.fake.remove(failing)
    host.counted({("GPU-2", 31): 1})
    assert [code for _, _, code in calls_in(host.trace)].count(15) == 1


def test_an_old_library_without_events_works_as_before(host: Host) -> None:
    host.fake.write([host.first_line, *FOUR, "fault nvmlEvent* * 13"])
    assert host.reader.read().listed == 4
    eventually(lambda: ("nvmlEventSetCreate", -1, 13) in calls_in(host.trace))
    assert host.reader.read().listed == 4
    events = [call for call, _, _ in calls_in(host.trace) if "Event" in call]
    assert events == ["nvmlEventSetCreate"]


def test_a_library_that_has_only_the_older_wait_is_asked_by_that(host: Host) -> None:
    host.begin(*FOUR, "fault nvmlEventSetWait_v2 * 13")
    host.fake.add("event 1 gpu=2 xid=31")
    host.counted({("GPU-2", 31): 1})


def test_a_waiting_thread_does_not_delay_the_childs_end(host: Host) -> None:
    host.begin()
    host.fake.add("delay nvmlEventSetWait_v2 * hang")
    child = host.reader.source._state.child
    assert child is not None
    end = os.pidfd_open(child.pid)
    child._process._questions.close()
    assert select.select([end], [], [], 5.0)[0] == [end]
    os.close(end)


def test_an_idle_child_costs_no_processor_time(host: Host) -> None:
    host.begin()
    nothing_came = ("nvmlEventSetWait_v2", -1, 10)
    eventually(lambda: calls_in(host.trace).count(nothing_came) >= 4)  # 0.05 + 0.1 + 0.2 + 0.4 s

    def spent_seconds() -> float:
        """Give what the thread that answers has used: the one that waits for events is in the fake, which polls."""
        pid = host.reader.child_pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9

    waits = calls_in(host.trace).count(nothing_came)
    before = spent_seconds()
    time.sleep(0.5)  # it is time itself that is measured
    assert spent_seconds() == before
    assert calls_in(host.trace).count(nothing_came) <= waits + 1
