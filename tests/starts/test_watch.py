"""Unit events: the history is saved while they come, and memory releases are timed from observed ends only."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.sources import ScriptedSource
from tests.fakes.values import GIB, HOST, gpu, memory, report, unit

from llmhost.collect.clock import SystemClock
from llmhost.collect.history_keeper import HistoryKeeper
from llmhost.collect.worker import DisabledWorker, Worker
from llmhost.config.schema import Config, Policy
from llmhost.model.gpu import NvmlReport
from llmhost.model.history.history import History, Holdings
from llmhost.model.history.unit_history import Verdict
from llmhost.model.ids import GpuUuid, UnitId
from llmhost.model.unit import UnitSettings, UnitsReport
from llmhost.model.unit_event import UnitEvent
from llmhost.starts.judge import Judge
from llmhost.starts.memory_release import ReleaseTimer
from llmhost.starts.watch import StartWatcher

ON_GPU_0 = UnitSettings(service_type="simple", environment=(("CUDA_VISIBLE_DEVICES", "0"),))
RUNNING = replace(
    unit(main_pid=50, invocation_id="a", exec_main_start_monotonic=9.0, state_change_monotonic=9.0),
    settings=ON_GPU_0,
)


LOADED = Holdings(invocation_id="a", own_bytes={GpuUuid("GPU-0"): 70 * GIB}, others_bytes={GpuUuid("GPU-0"): 0})


@contextmanager
def watching(
    save: Callable[[History], None] | None = None, used: int = 0
) -> Iterator[tuple[StartWatcher, HistoryKeeper, ScriptedSource[NvmlReport]]]:
    clock, source = SystemClock(), ScriptedSource(lambda: report([gpu(memory=memory(used=used))]))
    host, nvml = Worker("host", ScriptedSource(lambda: HOST), clock), Worker("memory", source, clock)
    keeper = HistoryKeeper(History(), policy=Policy, save=save)
    release = ReleaseTimer(keeper=keeper, host=host, memory=nvml, config=Config, clock=clock)
    judge = Judge(
        keeper=keeper,
        host=host,
        memory=nvml,
        nvml=nvml,
        processes=DisabledWorker("procfs"),
        lists_due_in_seconds=lambda: 0.0,
        units=lambda: (),
        find_units=lambda names, deadline: UnitsReport(systemd_version="", units=()),  # noqa: ARG005
        config=Config,
        clock=clock,
    )
    watch = StartWatcher(keeper=keeper, judge=judge, release=release)
    host.start()
    nvml.start()
    watch.start()
    try:
        yield watch, keeper, source
    finally:
        watch.close(1.0)
        host.close()
        nvml.close()


def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        threading.Event().wait(0.002)


def event(name: str = "vllm.service", *, gap: bool = False, **changes: Any) -> UnitEvent:  # noqa: ANN401
    changed = replace(RUNNING, id=UnitId(name), **changes)
    return UnitEvent(unit=changed, at=time.time(), at_monotonic=time.monotonic(), gap=gap)


def test_the_history_is_saved_also_while_events_never_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmhost.starts.watch._SAVE_SECONDS", 0.1)
    saved: list[History] = []
    with watching(saved.append) as (watch, _, _):

        def event_and_saved() -> bool:
            watch.put(event(gap=True))
            return len(saved) >= 2

        until(event_and_saved)


def test_a_release_is_measured_from_an_end_that_was_seen_and_from_no_other() -> None:
    ended: dict[str, Any] = {"invocation_id": "", "result": "", "settings": None, "state_change_monotonic": None}
    with watching(used=70 * GIB) as (watch, keeper, source):
        watch.put(event("unseen.service", gap=True))
        watch.put(event("seen.service", gap=True))
        until(lambda: len(keeper.history.units) == 2)
        keeper._history = replace(
            keeper.history, holdings=dict.fromkeys(keeper.history.units, LOADED)
        )  # by an observation of both
        # One was stopped, and let go of by systemd, while nobody watched; the other fails now.
        watch.put(event("unseen.service", gap=True, active_state="inactive", sub_state="dead", main_pid=0, **ended))
        failed: dict[str, Any] = {"result": "exit-code", "state_change_monotonic": time.monotonic()}
        watch.put(event("seen.service", active_state="failed", sub_state="failed", main_pid=0, **failed))
        until(lambda: source.reads > 0)
        source.answer = lambda: report([gpu(memory=memory(used=0))])
        until(lambda: keeper.history.units[UnitId("seen.service")].last_release_seconds is not None)
        unseen = keeper.history.units[UnitId("unseen.service")]
        assert unseen.starts[-1].end is not None
        assert unseen.last_release_seconds is None


@pytest.mark.parametrize(("verdict", "timed"), [(Verdict.CLEAN, True), (Verdict.RESIDENT, False), (None, False)])
def test_a_run_without_an_observation_is_timed_only_if_it_found_its_gpus_clean(
    verdict: Verdict | None, timed: bool
) -> None:
    with watching(used=70 * GIB) as (watch, keeper, source):
        watch.put(event("vllm.service", gap=True))
        until(lambda: len(keeper.history.units) == 1)
        (unit_history,) = keeper.history.units.values()
        judged = replace(unit_history, starts=(replace(unit_history.starts[-1], verdict=verdict),))
        keeper._history = replace(keeper.history, units={UnitId("vllm.service"): judged})
        failed: dict[str, Any] = {"result": "exit-code", "state_change_monotonic": time.monotonic()}
        watch.put(event("vllm.service", active_state="failed", sub_state="failed", main_pid=0, **failed))
        if timed:
            until(lambda: source.reads > 0)
        source.answer = lambda: report([gpu(memory=memory(used=0))])
        if timed:
            until(lambda: keeper.history.units[UnitId("vllm.service")].last_release_seconds is not None)
        else:
            watch.close(1.0)
            assert source.reads == 0
