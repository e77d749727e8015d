"""Workers and the observer: deadlines, single flight, isolation, with sources that misbehave on purpose."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
from tests.fakes.sources import ScriptedSource
from tests.fakes.values import GIB, HOST, gpu, held, in_service, process, report, snapshot, table

from llmhost.collect.clock import SystemClock
from llmhost.collect.history_keeper import HistoryKeeper
from llmhost.collect.observer import Observation, Observer
from llmhost.collect.worker import DisabledWorker, Worker
from llmhost.config.schema import Policy
from llmhost.derive.units_of_interest import units_of_interest
from llmhost.model.gpu import NvmlReport
from llmhost.model.history.history import History
from llmhost.model.host import Host
from llmhost.model.process import ProcessTable, Role
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, StuckCall
from llmhost.model.unit import UnitsReport
from llmhost.sources.base import SourceError

T = TypeVar("T")


def started(name: str, read: Callable[[], T]) -> tuple[Worker[T], ScriptedSource[T]]:
    source = ScriptedSource(read)
    worker = Worker(name, source, SystemClock())
    worker.start()
    return worker, source


def fail(cause: Cause) -> Callable[[], NvmlReport]:
    def read() -> NvmlReport:
        raise SourceError(cause, "as told", StuckCall("nvmlInit", "", 2.0))

    return read


def hung(release: threading.Event) -> Callable[[], NvmlReport]:
    def read() -> NvmlReport:
        release.wait(10)
        return report([gpu()])

    return read


def watch_nothing(names: Iterable[str]) -> None:
    """Watch nothing."""


def nothing(processes: object, units: object) -> None:
    """Aim at no engine."""


def in_memory() -> HistoryKeeper:
    return HistoryKeeper(History(), policy=Policy, save=None)


def observer_of(
    nvml: Worker[NvmlReport] | None,
    processes: Worker[ProcessTable] | None = None,
    units: Worker[UnitsReport] | None = None,
    *,
    host: Worker[Host] | None = None,
    watch: Callable[[Iterable[str]], None] = watch_nothing,
    attempt_seconds: float = 0.2,
) -> Observer:
    """Make an observer whose other collectors are switched off."""
    return Observer(
        host=host or started("host", lambda: HOST)[0],
        nvml=nvml or DisabledWorker("nvml"),
        processes=processes or DisabledWorker("procfs"),
        units=units or DisabledWorker("systemd"),
        segments=DisabledWorker("shm"),
        engines=DisabledWorker("engine"),
        guard_runs=DisabledWorker("guard"),
        discover=units_of_interest,
        watch=watch,
        set_targets=nothing,
        attempt_seconds=lambda: attempt_seconds,
        keeper=in_memory(),
        clock=SystemClock(),
    )


def soon(seconds: float) -> float:
    return time.monotonic() + seconds


def test_an_observation_has_every_reading_and_every_collectors_health() -> None:
    nvml, _ = started("nvml", lambda: report([gpu()]))
    processes, _ = started("procfs", lambda: table([process(5)]))
    units, _ = started("systemd", lambda: UnitsReport(systemd_version="252", units=()))
    observation = observer_of(nvml, processes, units).observe(soon(5))
    assert observation.snapshot.host == Ok(HOST)
    assert observation.snapshot.nvml == Ok(report([gpu()]))
    assert observation.snapshot.processes == Ok(table([process(5)]))
    assert observation.snapshot.units == Ok(UnitsReport(systemd_version="252", units=()))
    assert abs(observation.snapshot.at - time.time()) < 5
    assert [(health.collector, health.fault) for health in observation.health] == [
        ("nvml", None),
        ("procfs", None),
        ("systemd", None),
    ]


def test_a_source_that_fails_costs_its_own_reading_only() -> None:
    nvml, _ = started("nvml", fail(Cause.NO_DRIVER))
    processes, _ = started("procfs", lambda: table([]))
    observation = observer_of(nvml, processes).observe(soon(5))
    assert observation.snapshot.nvml == Failed(Cause.NO_DRIVER, "as told", StuckCall("nvmlInit", "", 2.0))
    assert isinstance(observation.snapshot.processes, Ok)
    assert observation.health[0].failures == {Cause.NO_DRIVER: 1}
    assert observation.health[0].last_success_at is None


def test_a_bug_in_a_source_is_a_fault_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> NvmlReport:
        raise ZeroDivisionError("oops")

    nvml, _ = started("nvml", broken)
    assert observer_of(nvml).observe(soon(5)).snapshot.nvml == Failed(Cause.UNKNOWN, "ZeroDivisionError: oops")
    assert "collector nvml: a bug in its source" in caplog.text


def test_a_hung_source_is_late_says_what_it_does_and_is_not_asked_twice() -> None:
    release = threading.Event()
    nvml, source = started("nvml", hung(release))
    observer = observer_of(nvml)
    for attempt in range(3):
        began = time.monotonic()
        observation = observer.observe(soon(0.2))
        assert 0.2 <= time.monotonic() - began < 5
        assert observation.snapshot.nvml == Failed(Cause.TIMEOUT, "nvmlDeviceGetMemoryInfo on GPU 3")
        assert observation.health[0].failures == {Cause.TIMEOUT: 1}, attempt  # one attempt, however many waited
    assert source.reads == 1
    release.set()
    assert isinstance(observer.observe(soon(5)).snapshot.nvml, Ok)


def test_two_observers_at_once_cost_one_read() -> None:
    release = threading.Event()
    nvml, source = started("nvml", hung(release))
    observer = observer_of(nvml)
    observations: list[Observation] = []
    threads = [threading.Thread(target=lambda: observations.append(observer.observe(soon(8)))) for _ in range(5)]
    for thread in threads:
        thread.start()
    while source.reads == 0:
        time.sleep(0.001)
    time.sleep(0.1)  # all five have asked by now
    release.set()
    for thread in threads:
        thread.join(8)
    assert len(observations) == 5
    assert all(isinstance(observation.snapshot.nvml, Ok) for observation in observations)
    assert source.reads == 1


def test_what_is_disabled_is_not_applicable_and_has_no_health() -> None:
    observation = observer_of(None).observe(soon(5))
    assert isinstance(observation.snapshot.nvml, NotApplicable)
    assert observation.health == ()


def test_a_fault_is_logged_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    working: list[bool] = []

    def read() -> NvmlReport:
        if working:
            return report([])
        raise SourceError(Cause.NO_DRIVER, "not loaded")

    nvml, _ = started("nvml", read)
    observer = observer_of(nvml)
    observer.observe(soon(5))
    observer.observe(soon(5))
    working.append(True)
    observer.observe(soon(5))
    assert [record.message for record in caplog.records] == [
        "collector nvml failed: no_driver (not loaded)",
        "collector nvml works again",
    ]


def test_units_that_hold_memory_or_run_an_engine_are_watched_before_units_are_asked() -> None:
    holding = process(5, in_service("train.service"))
    engine = process(6, in_service("llm.service"), engine="vllm", role=Role.API_SERVER)
    of_user = process(7, in_service("mine.service", "user@1000"), engine="vllm", role=Role.API_SERVER)
    idle = process(8, in_service("sshd.service"))
    display = process(9, in_service("gdm.service"), comm="Xorg")
    order: list[object] = []
    nvml, _ = started("nvml", lambda: report([gpu(holders=Ok((held(5, GIB), held(9, GIB))))]))
    processes, _ = started("procfs", lambda: table([holding, engine, of_user, idle, display]))

    def read_units() -> UnitsReport:
        order.append("units")
        return UnitsReport(systemd_version="252", units=())

    units, _ = started("systemd", read_units)
    observer_of(nvml, processes, units, watch=lambda names: order.append(set(names))).observe(soon(5))
    assert order == [{"train.service", "llm.service"}, "units"]


def test_a_hung_driver_delays_the_units_by_half_of_the_time_at_most() -> None:
    release = threading.Event()
    nvml, _ = started("nvml", hung(release))
    units, source = started("systemd", lambda: UnitsReport(systemd_version="252", units=()))
    observation = observer_of(nvml, None, units).observe(soon(0.4))
    assert isinstance(observation.snapshot.units, Ok)
    assert source.reads == 1
    release.set()


def test_hung_processes_cost_neither_the_units_nor_much_time_twice() -> None:
    release = threading.Event()

    def read_processes() -> ProcessTable:
        release.wait(10)
        return table([])

    processes, _ = started("procfs", read_processes)
    units, source = started("systemd", lambda: UnitsReport(systemd_version="252", units=()))
    observer = observer_of(None, processes, units)
    began = time.monotonic()
    observation = observer.observe(soon(1.5))
    assert time.monotonic() - began >= 1.5
    assert isinstance(observation.snapshot.units, Ok)
    assert isinstance(observation.snapshot.processes, Failed)
    began = time.monotonic()
    observation = observer.observe(soon(8))
    assert time.monotonic() - began < 4  # it is known to be late: no page waits as long again
    assert isinstance(observation.snapshot.units, Ok)
    assert source.reads == 2
    release.set()


def test_a_short_deadline_does_not_spoil_the_attempt_for_others() -> None:
    deadlines: list[float] = []

    class Slow(ScriptedSource[NvmlReport]):
        def read(self, deadline: float) -> NvmlReport:
            deadlines.append(deadline - time.monotonic())
            return super().read(deadline)

    source = Slow(lambda: report([gpu()]))
    nvml = Worker("nvml", source, SystemClock())
    nvml.start()
    observer_of(nvml, attempt_seconds=8.0).observe(soon(0.05))
    assert deadlines[0] > 7


def test_a_source_that_knows_its_stuck_call_gives_it_to_callers_that_cannot_wait() -> None:
    release = threading.Event()

    class Stuck(ScriptedSource[NvmlReport]):
        def stuck(self) -> StuckCall:
            return StuckCall("nvmlInit", "", 1.0)

    nvml = Worker("nvml", Stuck(hung(release)), SystemClock())
    nvml.start()
    observation = observer_of(nvml).observe(soon(0.1)).snapshot.nvml
    assert isinstance(observation, Failed)
    assert observation.stuck == StuckCall("nvmlInit", "", 1.0)
    release.set()


def test_the_hosts_fault_is_procfs_fault() -> None:
    def no_host() -> Host:
        raise SourceError(Cause.NO_PROCFS, "no meminfo")

    host, _ = started("host", no_host)
    processes, _ = started("procfs", lambda: table([]))
    observer = observer_of(None, processes, host=host)
    (health,) = observer.observe(soon(5)).health
    assert health.fault == Failed(Cause.NO_PROCFS, "no meminfo")


def test_closing_closes_the_source_though_it_hangs() -> None:
    release = threading.Event()
    nvml, source = started("nvml", hung(release))
    nvml.ask(soon(5))
    nvml.close()
    assert source.closed
    release.set()


def test_an_observation_older_than_the_latest_in_the_history_is_not_taken_in() -> None:
    keeper = in_memory()
    newer = keeper.add_observation(snapshot(processes=[], at_monotonic=200.0))
    assert newer.processes_since == 200.0
    assert keeper.add_observation(snapshot(processes=[], at_monotonic=100.0)) == newer


def test_a_read_that_ends_because_its_source_was_closed_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    began, closed = threading.Event(), threading.Event()

    def until_closed() -> NvmlReport:
        began.set()
        closed.wait(10)
        raise SourceError(Cause.UNKNOWN, "closed")

    nvml, _ = started("nvml", until_closed)
    ticket = nvml.ask(soon(5))
    assert began.wait(5)
    nvml.close()
    closed.set()
    assert ticket.wait(5) == Failed(Cause.UNKNOWN, "closed")
    assert caplog.messages == []
