"""Verdicts on starts, from sources that answer as the test says; what a verdict is, is tested where it is derived."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Generic, TypeVar

import pytest
from tests.fakes.values import GIB, HOST, gpu, held, in_service, memory, process, report, table, unit

from llmhost.collect.clock import SystemClock
from llmhost.collect.history_keeper import HistoryKeeper
from llmhost.collect.worker import Worker
from llmhost.config.schema import Config, Policy
from llmhost.derive.history.events import MainStarted
from llmhost.model.gpu import GpuHolder, NvmlReport
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import Start, Trigger, UnitHistory, Verdict
from llmhost.model.process import ProcessTable
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.unit import Unit, UnitSettings
from llmhost.sources.base import SourceError
from llmhost.starts.judge import Judge

T = TypeVar("T")

ENGINE = UnitSettings(
    service_type="simple",
    exec_start=(("vllm", "serve", "m"),),
    environment=(("CUDA_VISIBLE_DEVICES", "0"),),
)
CHANGING = Failed(Cause.CHANGING, "memory moved")


class Answering(Generic[T]):
    """A source that gives what it is told to, and counts."""

    def __init__(self, answer: Callable[[], T]) -> None:
        self.answer = answer
        self.reads = 0

    def read(self, _deadline: float) -> T:
        self.reads += 1
        return self.answer()

    def doing(self) -> str:
        return "waiting"

    def close(self) -> None:
        pass


class Bench:
    """A judge with sources, and units that start."""

    def __init__(self, memory_report: NvmlReport, lists_report: NvmlReport | None = None) -> None:
        self.memory = Answering(lambda: memory_report)
        self.lists = Answering(lambda: lists_report if lists_report is not None else memory_report)
        self.processes = Answering(lambda: table([]))
        self.due_in_seconds = 0.0
        self.keeper = HistoryKeeper(History(), policy=Policy, save=None)
        self.units: list[Unit] = []
        host = Worker("host", Answering(lambda: HOST), SystemClock())
        memory = Worker("memory", self.memory, SystemClock())
        nvml = Worker("nvml", self.lists, SystemClock())
        processes = Worker("procfs", self.processes, SystemClock())
        self._start = (host.start, memory.start, nvml.start, processes.start)
        self._close = (host.close, memory.close, nvml.close, processes.close)
        self.judge = Judge(
            keeper=self.keeper,
            host=host,
            memory=memory,
            nvml=nvml,
            processes=processes,
            lists_due_in_seconds=lambda: self.due_in_seconds,
            units=lambda: tuple(self.units),
            config=Config,
            clock=SystemClock(),
        )

    @contextmanager
    def running(self) -> Iterator["Bench"]:
        for start in self._start:
            start()
        self.judge.start()
        try:
            yield self
        finally:
            self.judge.close()
            for close in self._close:
                close()

    def starts(
        self, name: str = "vllm.service", ago_seconds: float = 0.0, settings: UnitSettings | None = ENGINE
    ) -> None:
        began = time.monotonic() - ago_seconds
        one = replace(unit(name, main_pid=50, invocation_id="now"), settings=settings)
        start = Start(
            invocation_id="now",
            trigger=Trigger.AUTO,
            attempt=2,
            at=time.time() - ago_seconds,
            began_monotonic=began,
            main_monotonic=began,
        )
        record = UnitHistory(last_seen_at=time.time(), invocation_id="now", starts=(start,))
        self.keeper._history = replace(self.keeper.history, units={**self.keeper.history.units, one.id: record})
        self.units.append(one)
        self.judge.put(MainStarted(unit=one, start=start))

    def verdict(self, name: str = "vllm.service", seconds: float = 8.0) -> Start:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            start = self.keeper.history.units[unit(name).id].starts[-1]
            if start.verdict is not None:
                return start
            threading.Event().wait(0.002)
        pytest.fail("no verdict")


def test_memory_that_is_free_is_a_clean_start_without_lists() -> None:
    with Bench(report([gpu(memory=memory(used=GIB // 2), holders=CHANGING)])).running() as bench:
        bench.starts()
        assert bench.verdict().verdict is Verdict.CLEAN
        assert (bench.lists.reads, bench.processes.reads) == (0, 0)


def test_memory_in_use_is_looked_into_with_lists_and_processes() -> None:
    old = process(7, in_service("vllm.service"), start=100)
    lists = report([gpu(memory=memory(used=70 * GIB), holders=held_by(7, 70 * GIB))])
    with Bench(report([gpu(memory=memory(used=70 * GIB), holders=CHANGING)]), lists).running() as bench:
        bench.processes.answer = lambda: table([old])
        bench.starts()
        start = bench.verdict()
        assert start.verdict is Verdict.RESIDENT
        assert [(way.kind, way.used_bytes) for way in start.in_the_way] == [("leftover", 70 * GIB)]
        assert (bench.memory.reads, bench.lists.reads, bench.processes.reads) == (1, 1, 1)


def test_lists_that_are_given_again_are_not_read_again() -> None:
    again = report([gpu(memory=memory(used=70 * GIB), holders=held_by(7, 70 * GIB))])
    with Bench(again).running() as bench:
        bench.processes.answer = lambda: replace(
            table([process(7, in_service("vllm.service"), start=100)]), read_at_monotonic=time.monotonic()
        )
        bench.due_in_seconds = 0.8
        bench.starts()
        assert bench.verdict(seconds=0.6).verdict is Verdict.RESIDENT
        bench.starts("vllm-b.service")
        assert bench.verdict("vllm-b.service", seconds=0.6).verdict is Verdict.RESIDENT
        assert (bench.memory.reads, bench.lists.reads, bench.processes.reads) == (2, 0, 1)


def test_a_start_waits_for_the_next_lists_and_holds_up_no_other() -> None:
    moved = report([gpu(memory=memory(used=70 * GIB), holders=CHANGING)])
    listed = report([gpu(memory=memory(used=70 * GIB), holders=held_by(7, 70 * GIB))])
    with Bench(moved, listed).running() as bench:
        bench.due_in_seconds = 3.0
        bench.starts()
        began = time.monotonic()
        while bench.memory.reads == 0:
            threading.Event().wait(0.002)
        bench.memory.answer = lambda: report([gpu(memory=memory(used=0), holders=CHANGING)])
        bench.starts("vllm-b.service")
        assert bench.verdict("vllm-b.service", seconds=2.0).verdict is Verdict.CLEAN
        bench.processes.answer = lambda: table([process(7, in_service("vllm.service"), start=100)])
        assert bench.verdict().verdict is Verdict.RESIDENT
        assert time.monotonic() - began >= 2.9
        assert bench.lists.reads == 1


def test_a_driver_that_does_not_answer_in_time_makes_it_unknown_never_clean() -> None:
    def silent() -> NvmlReport:
        raise SourceError(Cause.TIMEOUT, "nvmlDeviceGetMemoryInfo_v2 on GPU 3 for 2.0 s")

    with Bench(report([gpu()])).running() as bench:
        bench.memory.answer = silent
        bench.starts()
        start = bench.verdict()
        assert start.verdict is Verdict.UNKNOWN
        assert start.unknown_because == "timeout: nvmlDeviceGetMemoryInfo_v2 on GPU 3 for 2.0 s"


def test_a_start_that_is_noticed_late_is_unknown() -> None:
    with Bench(report([gpu(memory=memory(used=0))])).running() as bench:
        bench.starts(ago_seconds=3.0)
        start = bench.verdict(seconds=1.0)
        assert start.verdict is Verdict.UNKNOWN
        assert start.unknown_because == "noticed 3.0 s after its main process began"


def test_a_start_waits_for_what_systemd_says_of_its_unit() -> None:
    two = [gpu(0, memory=memory(used=0)), gpu(1, memory=memory(used=70 * GIB), holders=CHANGING)]
    with Bench(report(two)).running() as bench:
        bench.starts(settings=None)
        while bench.memory.reads == 0:
            threading.Event().wait(0.002)
        assert bench.keeper.history.units[unit().id].starts[-1].verdict is None
        bench.units.append(replace(bench.units[0], settings=ENGINE))
        assert bench.verdict(seconds=1.0).verdict is Verdict.CLEAN
        assert (bench.lists.reads, bench.processes.reads) == (0, 0)


def test_a_bug_costs_a_verdict_and_not_the_judge() -> None:
    with Bench(report([gpu(memory=memory(used=70 * GIB))])).running() as bench:
        bench.due_in_seconds = -1.0
        broken: Callable[[], float] = lambda: 1 / 0  # noqa: E731
        working, bench.judge._lists_due_in_seconds = bench.judge._lists_due_in_seconds, broken
        bench.processes.answer = _no_processes
        bench.starts()
        assert bench.verdict().unknown_because == "ZeroDivisionError: division by zero"
        bench.judge._lists_due_in_seconds = working
        bench.memory.answer = lambda: report([gpu(memory=memory(used=0))])
        bench.starts("vllm-b.service")
        assert bench.verdict("vllm-b.service").verdict is Verdict.CLEAN


def test_a_bug_in_telling_of_a_start_ends_no_judging(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()

    def broken(*_: object) -> str:
        told.set()
        raise ZeroDivisionError

    def silent() -> NvmlReport:
        raise SourceError(Cause.NO_PERMISSION, "no")

    with Bench(report([gpu()])).running() as bench:
        bench.memory.answer = silent
        with monkeypatch.context() as patched:
            patched.setattr("llmhost.starts.judge.start_line", broken)
            bench.starts()
            assert told.wait(8)
            assert bench.verdict().verdict is Verdict.UNKNOWN
        bench.memory.answer = lambda: report([gpu(memory=memory(used=0))])
        bench.starts("vllm-b.service")
        assert bench.verdict("vllm-b.service").verdict is Verdict.CLEAN


def _no_processes() -> ProcessTable:
    raise SourceError(Cause.NO_PROCFS, "gone")


def held_by(pid: int, used: int) -> Ok[tuple[GpuHolder, ...]]:
    return Ok((held(pid, used, start=100),))


def test_a_loop_without_a_pause_keeps_no_other_from_its_verdict() -> None:
    moved = report([gpu(memory=memory(used=70 * GIB), holders=CHANGING)])
    with Bench(moved, moved).running() as bench:
        bench.due_in_seconds = 3.0
        one = replace(unit("loop.service", main_pid=50), settings=ENGINE)
        began = time.monotonic()
        starts = [
            Start(
                invocation_id=f"run-{number}",
                trigger=Trigger.AUTO,
                attempt=number + 1,
                at=time.time(),
                began_monotonic=began,
                main_monotonic=began,
            )
            for number in range(50)
        ]
        record = UnitHistory(last_seen_at=time.time(), invocation_id="run-49", starts=tuple(starts))
        bench.keeper._history = replace(bench.keeper.history, units={one.id: record})
        for start in starts:
            bench.judge.put(MainStarted(unit=replace(one, invocation_id=start.invocation_id), start=start))

        def unknown() -> int:
            found = bench.keeper.history.units[one.id].starts_total.get((Trigger.AUTO, Verdict.UNKNOWN), 0)
            return int(found)

        until = time.monotonic() + 2
        while unknown() < 30:
            assert time.monotonic() < until
            threading.Event().wait(0.002)
        told = bench.keeper.history.units[one.id].starts
        assert [start.invocation_id for start in told if start.verdict is None] == [f"run-{n}" for n in range(30, 50)]
        assert told[0].unknown_because == "more than 20 starts of the unit waited for a verdict"
