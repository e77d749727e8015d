"""Verdicts on starts, from sources that answer as the test says; what a verdict is, is tested where it is derived."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.fakes.nvml_reader import eventually
from tests.fakes.sources import ScriptedSource
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
from llmhost.model.unit import Unit, UnitSettings, UnitsReport
from llmhost.sources.base import SourceError
from llmhost.starts.judge import Judge

ENGINE = UnitSettings(
    service_type="simple",
    exec_start=(("vllm", "serve", "m"),),
    environment=(("CUDA_VISIBLE_DEVICES", "0"),),
)
CHANGING = Failed(Cause.CHANGING, "memory moved")


class JudgeUnderTest:
    """A judge with sources, and units that start."""

    def __init__(self, memory_report: NvmlReport, lists_report: NvmlReport | None = None) -> None:
        self.memory = ScriptedSource(lambda: memory_report)
        self.lists = ScriptedSource(lambda: lists_report if lists_report is not None else memory_report)
        self.processes = ScriptedSource(lambda: table([]))
        self.due_in_seconds = 0.0
        self.keeper = HistoryKeeper(History(), policy=Policy, save=None)
        self.units: list[Unit] = []
        self.unwatched: list[Unit] = []  # which systemd knows
        self.systemd_fault: SourceError | None = None
        self.asked_for: list[str] = []
        host = Worker("host", ScriptedSource(lambda: HOST), SystemClock())
        memory = Worker("memory", self.memory, SystemClock())
        nvml = Worker("nvml", self.lists, SystemClock())
        processes = Worker("procfs", self.processes, SystemClock())
        self._start = (host.start, memory.start, nvml.start, processes.start)
        self._close = (host.close, memory.close, nvml.close, processes.close)
        self.thread = Judge(
            keeper=self.keeper,
            host=host,
            memory=memory,
            nvml=nvml,
            processes=processes,
            lists_due_in_seconds=lambda: self.due_in_seconds,
            units=lambda: tuple(self.units),
            find_units=self._find_units,
            config=Config,
            clock=SystemClock(),
        )

    def _find_units(self, names: Iterable[str], deadline: float) -> UnitsReport:
        assert 0 < deadline - time.monotonic() <= 1
        self.asked_for += names
        if self.systemd_fault is not None:
            raise self.systemd_fault
        return UnitsReport(systemd_version="", units=(*self.units, *self.unwatched))

    @contextmanager
    def running(self) -> Iterator["JudgeUnderTest"]:
        for start in self._start:
            start()
        self.thread.start()
        try:
            yield self
        finally:
            self.thread.close()
            for close in self._close:
                close()

    def starts(
        self, name: str = "vllm.service", ago_seconds: float = 0.0, settings: UnitSettings | None = ENGINE
    ) -> None:
        began = time.monotonic() - ago_seconds
        starting = replace(unit(name, main_pid=50, invocation_id="now"), settings=settings)
        start = Start(
            invocation_id="now",
            trigger=Trigger.AUTO,
            attempt=2,
            at=time.time() - ago_seconds,
            began_monotonic=began,
            main_monotonic=began,
        )
        unit_history = UnitHistory(last_seen_at=time.time(), invocation_id="now", starts=(start,))
        self.keeper._history = replace(
            self.keeper.history, units={**self.keeper.history.units, starting.id: unit_history}
        )
        self.units.append(starting)
        self.thread.put(MainStarted(unit=starting, start=start))

    def verdict(self, name: str = "vllm.service", seconds: float = 8.0) -> Start:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            start = self.keeper.history.units[unit(name).id].starts[-1]
            if start.verdict is not None:
                return start
            threading.Event().wait(0.002)
        pytest.fail("no verdict")


def test_memory_that_is_free_is_a_clean_start_without_lists() -> None:
    with JudgeUnderTest(report([gpu(memory=memory(used=GIB // 2), holders=CHANGING)])).running() as judge:
        judge.starts()
        assert judge.verdict().verdict is Verdict.CLEAN
        assert (judge.lists.reads, judge.processes.reads) == (0, 0)


def test_memory_in_use_is_attributed_by_lists_and_processes() -> None:
    old = process(7, in_service("vllm.service"), start=100)
    lists = report([gpu(memory=memory(used=70 * GIB), holders=held_by(7, 70 * GIB))])
    with JudgeUnderTest(report([gpu(memory=memory(used=70 * GIB), holders=CHANGING)]), lists).running() as judge:
        judge.processes.answer = lambda: table([old])
        judge.starts()
        start = judge.verdict()
        assert start.verdict is Verdict.RESIDENT
        assert [(way.kind, way.used_bytes) for way in start.in_the_way] == [("leftover", 70 * GIB)]
        assert (judge.memory.reads, judge.lists.reads, judge.processes.reads) == (1, 1, 1)


# The process began at 1 s, a process of the unit's run that began at 0.5 s; ENGINE needs nearly the whole GPU.
@pytest.mark.parametrize(
    ("unwatched", "verdict", "in_the_way"),
    [
        ([unit("embed.service", condition_monotonic=0.5)], Verdict.CLEAN, []),
        ([unit("embed.service", condition_monotonic=2.0)], Verdict.RESIDENT, ["leftover"]),
        ([unit("embed.service", "failed", "failed", condition_monotonic=0.5)], Verdict.RESIDENT, ["leftover"]),
        ([], Verdict.RESIDENT, ["other"]),
    ],
    ids=["up", "started again", "failed", "unknown to systemd"],
)
def test_a_holder_of_a_unit_that_is_not_watched_is_judged_by_what_systemd_says_of_it(
    unwatched: list[Unit], verdict: Verdict, in_the_way: list[str]
) -> None:
    lists = report([gpu(memory=memory(used=70 * GIB), holders=held_by(7, 70 * GIB))])
    with JudgeUnderTest(report([gpu(memory=memory(used=70 * GIB), holders=CHANGING)]), lists).running() as judge:
        judge.processes.answer = lambda: table([process(7, in_service("embed.service"), start=100)])
        judge.unwatched = unwatched
        judge.starts()
        start = judge.verdict()
        assert (start.verdict, [way.kind for way in start.in_the_way]) == (verdict, in_the_way)
        assert judge.asked_for == ["embed.service"]


def test_a_holder_of_a_unit_that_systemd_says_nothing_of_makes_a_start_unknown() -> None:
    in_use = report([gpu(memory=memory(used=70 * GIB), holders=held_by(7, 70 * GIB))])
    with JudgeUnderTest(in_use).running() as judge:
        judge.processes.answer = lambda: table([process(7, in_service("embed.service"), start=100)])
        judge.systemd_fault = SourceError(Cause.TIMEOUT, "reading units from systemd")
        judge.starts()
        start = judge.verdict()
        assert start.verdict is Verdict.UNKNOWN
        assert start.unknown_because == "timeout: reading units from systemd"


def test_lists_that_are_given_again_are_not_read_again() -> None:
    again = report([gpu(memory=memory(used=70 * GIB), holders=held_by(7, 70 * GIB))])
    with JudgeUnderTest(again).running() as judge:
        judge.processes.answer = lambda: replace(
            table([process(7, in_service("vllm.service"), start=100)]), read_at_monotonic=time.monotonic()
        )
        judge.due_in_seconds = 0.8
        judge.starts()
        assert judge.verdict(seconds=0.6).verdict is Verdict.RESIDENT
        judge.starts("vllm-b.service")
        assert judge.verdict("vllm-b.service", seconds=0.6).verdict is Verdict.RESIDENT
        assert (judge.memory.reads, judge.lists.reads, judge.processes.reads) == (2, 0, 1)


def test_a_start_waits_for_the_next_lists_and_holds_up_no_other() -> None:
    moved = report([gpu(memory=memory(used=70 * GIB), holders=CHANGING)])
    listed = report([gpu(memory=memory(used=70 * GIB), holders=held_by(7, 70 * GIB))])
    with JudgeUnderTest(moved, listed).running() as judge:
        judge.due_in_seconds = 3.0
        judge.starts()
        began = time.monotonic()
        while judge.memory.reads == 0:
            threading.Event().wait(0.002)
        judge.memory.answer = lambda: report([gpu(memory=memory(used=0), holders=CHANGING)])
        judge.starts("vllm-b.service")
        assert judge.verdict("vllm-b.service", seconds=2.0).verdict is Verdict.CLEAN
        judge.processes.answer = lambda: table([process(7, in_service("vllm.service"), start=100)])
        assert judge.verdict().verdict is Verdict.RESIDENT
        assert time.monotonic() - began >= 2.9
        assert judge.lists.reads == 1


def test_a_driver_that_does_not_answer_in_time_makes_it_unknown_never_clean() -> None:
    def silent() -> NvmlReport:
        raise SourceError(Cause.TIMEOUT, "nvmlDeviceGetMemoryInfo_v2 on GPU 3 for 2.0 s")

    with JudgeUnderTest(report([gpu()])).running() as judge:
        judge.memory.answer = silent
        judge.starts()
        start = judge.verdict()
        assert start.verdict is Verdict.UNKNOWN
        assert start.unknown_because == "timeout: nvmlDeviceGetMemoryInfo_v2 on GPU 3 for 2.0 s"


def test_a_start_that_is_noticed_late_is_unknown() -> None:
    with JudgeUnderTest(report([gpu(memory=memory(used=0))])).running() as judge:
        judge.starts(ago_seconds=3.0)
        start = judge.verdict(seconds=1.0)
        assert start.verdict is Verdict.UNKNOWN
        assert start.unknown_because == "noticed 3.0 s after its main process began"


def test_a_start_waits_for_what_systemd_says_of_its_unit() -> None:
    two = [gpu(0, memory=memory(used=0)), gpu(1, memory=memory(used=70 * GIB), holders=CHANGING)]
    with JudgeUnderTest(report(two)).running() as judge:
        judge.starts(settings=None)
        while judge.memory.reads == 0:
            threading.Event().wait(0.002)
        assert judge.keeper.history.units[unit().id].starts[-1].verdict is None
        judge.units.append(replace(judge.units[0], settings=ENGINE))
        assert judge.verdict(seconds=1.0).verdict is Verdict.CLEAN
        assert (judge.lists.reads, judge.processes.reads) == (0, 0)


def test_the_end_of_a_run_is_logged_after_its_start_however_late_the_verdict_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A run of less than a tenth of a second has ended before its verdict is there."""
    caplog.set_level("INFO")
    answers = threading.Event()

    def late() -> NvmlReport:
        assert answers.wait(20)
        return report([gpu(memory=memory(used=0))])

    with JudgeUnderTest(report([gpu()])).running() as judge:
        judge.memory.answer = late
        judge.starts()
        me = judge.units[-1].id
        (start,) = judge.keeper.history.units[me].starts
        other = replace(start, invocation_id="other")
        judge.thread.log_behind_start(me, start, "end")
        judge.thread.log_behind_start(me, other, "end of another run")
        assert caplog.messages == ["end of another run"]
        answers.set()
        judge.verdict()
        eventually(lambda: len(caplog.messages) >= 3)
    assert [message.split()[0] for message in caplog.messages] == ["end", "start", "end"]


def test_a_bug_costs_a_verdict_and_not_the_judge() -> None:
    with JudgeUnderTest(report([gpu(memory=memory(used=70 * GIB))])).running() as judge:
        judge.due_in_seconds = -1.0
        broken: Callable[[], float] = lambda: 1 / 0  # noqa: E731
        working, judge.thread._lists_due_in_seconds = judge.thread._lists_due_in_seconds, broken
        judge.processes.answer = _no_processes
        judge.starts()
        assert judge.verdict().unknown_because == "ZeroDivisionError: division by zero"
        judge.thread._lists_due_in_seconds = working
        judge.memory.answer = lambda: report([gpu(memory=memory(used=0))])
        judge.starts("vllm-b.service")
        assert judge.verdict("vllm-b.service").verdict is Verdict.CLEAN


def test_a_bug_in_telling_of_a_start_ends_no_judging(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = threading.Event()

    def broken(*_: object) -> str:
        reported.set()
        raise ZeroDivisionError

    def silent() -> NvmlReport:
        raise SourceError(Cause.NO_PERMISSION, "no")

    with JudgeUnderTest(report([gpu()])).running() as judge:
        judge.memory.answer = silent
        with monkeypatch.context() as patched:
            patched.setattr("llmhost.starts.judge.start_line", broken)
            judge.starts()
            assert reported.wait(8)
            assert judge.verdict().verdict is Verdict.UNKNOWN
        judge.memory.answer = lambda: report([gpu(memory=memory(used=0))])
        judge.starts("vllm-b.service")
        assert judge.verdict("vllm-b.service").verdict is Verdict.CLEAN


def _no_processes() -> ProcessTable:
    raise SourceError(Cause.NO_PROCFS, "gone")


def held_by(pid: int, used: int) -> Ok[tuple[GpuHolder, ...]]:
    return Ok((held(pid, used, start=100),))


def test_a_loop_without_a_pause_keeps_no_other_from_its_verdict() -> None:
    moved = report([gpu(memory=memory(used=70 * GIB), holders=CHANGING)])
    with JudgeUnderTest(moved, moved).running() as judge:
        judge.due_in_seconds = 3.0
        loop = replace(unit("loop.service", main_pid=50), settings=ENGINE)
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
        unit_history = UnitHistory(last_seen_at=time.time(), invocation_id="run-49", starts=tuple(starts))
        judge.keeper._history = replace(judge.keeper.history, units={loop.id: unit_history})
        for start in starts:
            judge.thread.put(MainStarted(unit=replace(loop, invocation_id=start.invocation_id), start=start))

        def unknown() -> int:
            found = judge.keeper.history.units[loop.id].starts_total.get((Trigger.AUTO, Verdict.UNKNOWN), 0)
            return int(found)

        until = time.monotonic() + 2
        while unknown() < 30:
            assert time.monotonic() < until
            threading.Event().wait(0.002)
        kept = judge.keeper.history.units[loop.id].starts
        assert [start.invocation_id for start in kept if start.verdict is None] == [f"run-{n}" for n in range(30, 50)]
        assert kept[0].unknown_because == "more than 20 starts of the unit waited for a verdict"
