"""On which GPUs units are found to be, and how much they hold there; policy.resident is 1000 MiB."""

from collections.abc import Mapping
from dataclasses import replace

from tests.fakes.observed import observed
from tests.fakes.values import GIB, MIB, gpu, held, in_service, memory, process, settings, snapshot, unit

from llmhost.model.engine import EngineAnswer, EngineSample, EnginesReport
from llmhost.model.gpu import Gpu
from llmhost.model.history.history import History, Holdings, LearntGpus
from llmhost.model.ids import GpuUuid, UnitId
from llmhost.model.process import Home, Placement, Process, Role
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit

ME = UnitId("vllm.service")
SERVICE = in_service("vllm.service")
UP = unit(invocation_id="a", settings=settings("vllm serve m"))  # its activation began at tick 900
WORKER = process(901, SERVICE, start=1010, engine="vllm", role=Role.WORKER)
LEFTOVER = process(800, SERVICE, start=800)
NOTEBOOK = process(7, Placement(Home.SESSION), start=500)
LOADING = EngineAnswer(unit=ME, engine="vllm", endpoint="http://127.0.0.1:8000", samples=Failed(Cause.STARTING))
SERVING = replace(LOADING, samples=Ok((EngineSample(model="m", engine_index="0"),)))


def on(held_bytes: Mapping[int, int], count: int = 4) -> list[Gpu]:
    """GPUs on which WORKER holds so much, by index."""
    return [
        gpu(index, memory=memory(used=size), holders=Ok((held(901, size, 1010),) if size else ()))
        for index in range(count)
        for size in [held_bytes.get(index, 0)]
    ]


def taken(gpus: list[Gpu], answer: EngineAnswer | None = SERVING, watched: Unit = UP, *there: Process) -> Snapshot:
    engines = NotApplicable("disabled") if answer is None else Ok(EnginesReport(answers=(answer,)))
    return snapshot(gpus=gpus, processes=there or (WORKER, LEFTOVER, NOTEBOOK), units=[watched], engines=engines)


def learnt(history: History) -> tuple[str, ...] | None:
    return history.learnt_gpus(ME)


def test_a_units_gpus_are_those_that_it_holds_when_it_is_ready() -> None:
    while_loading = taken(on({0: 2 * GIB}), LOADING)
    assert learnt(observed(while_loading)) is None
    ready = observed(while_loading, taken(on({2: 70 * GIB, 3: 1001 * MIB, 1: 1000 * MIB})))
    assert learnt(ready) == ("GPU-2", "GPU-3")
    assert ready.gpu_sets == {ME: LearntGpus(invocation_id="a", uuids=(GpuUuid("GPU-2"), GpuUuid("GPU-3")))}


def test_within_an_activation_the_set_grows_and_the_next_has_its_own() -> None:
    grown = observed(taken(on({3: 70 * GIB})), taken(on({1: 70 * GIB})))
    assert learnt(grown) == ("GPU-1", "GPU-3")  # in the driver's order
    asleep = observed(taken(on({1: 500 * MIB})), history=grown)
    assert learnt(asleep) == ("GPU-1", "GPU-3")
    restarted = replace(UP, invocation_id="b", condition_monotonic=10.0, inactive_exit_monotonic=10.0)
    assert learnt(observed(taken(on({0: 70 * GIB}), LOADING, restarted), history=grown)) == ("GPU-1", "GPU-3")
    assert learnt(observed(taken(on({0: 70 * GIB}), SERVING, restarted), history=grown)) == ("GPU-0",)


def test_a_gpu_that_the_driver_has_lost_stays_in_the_set() -> None:
    both = observed(taken(on({0: 70 * GIB, 1: 70 * GIB})))
    assert learnt(observed(taken(on({0: 70 * GIB}, count=1)), history=both)) == ("GPU-0", "GPU-1")


def test_what_others_and_ended_runs_hold_is_not_the_units() -> None:
    holders = Ok((held(800, 60 * GIB, 800), held(7, 10 * GIB, 500)))
    assert learnt(observed(taken([gpu(memory=memory(used=70 * GIB), holders=holders)]))) is None


def test_a_unit_without_an_engine_that_is_scraped_is_ready_when_it_is_active() -> None:
    plain = process(901, SERVICE, start=1010)
    other = replace(UP, settings=settings("/opt/serve"))
    gpus = on({1: 70 * GIB})
    assert learnt(observed(taken(gpus, LOADING, other, plain))) == ("GPU-1",)
    activating = replace(other, active_state="activating", sub_state="start")
    assert learnt(observed(taken(gpus, LOADING, activating, plain))) is None
    # and one whose engine is not scraped
    assert learnt(observed(taken(gpus, None))) == ("GPU-1",)


def test_an_observation_without_one_of_its_parts_changes_nothing() -> None:
    whole = taken(on({1: 70 * GIB}), None)
    failed = Failed(Cause.TIMEOUT)
    for blind in (
        replace(whole, nvml=failed),
        replace(whole, processes=failed),
        replace(whole, units=failed),
        replace(whole, host=failed),
    ):
        history = observed(blind)
        assert (history.gpu_sets, history.holdings) == ({}, {})
    hidden = taken([gpu(holders=Ok((held(901, None, 1010),)))], None)
    assert learnt(observed(hidden)) is None


def test_what_a_unit_holds_and_what_others_do_beside_it_is_noted() -> None:
    holders = Ok((held(901, 30 * GIB, 1010), held(800, 5 * GIB, 800), held(7, 3 * GIB, 500)))
    # 40 in use: 30 of its own, 5 of an ended run, which will go; 3 of a notebook and 2 of nobody stay
    tenant = Ok((held(7, GIB, 500),))
    gpus = [gpu(0, memory=memory(used=40 * GIB), holders=holders), gpu(1, memory=memory(used=GIB), holders=tenant)]
    first = observed(taken(gpus))
    assert first.holdings == {
        ME: Holdings(
            invocation_id="a",
            own_bytes={GpuUuid("GPU-0"): 30 * GIB, GpuUuid("GPU-1"): 0},
            others_bytes={GpuUuid("GPU-0"): 5 * GIB, GpuUuid("GPU-1"): GIB},
        )
    }
    # what another unit's ended runs hold is others', and so is what nobody knows whose it was
    stray = process(801, in_service("other.service"), start=800)
    beside = Ok((held(901, 30 * GIB, 1010), held(801, 5 * GIB, 800), held(99, 4 * GIB, 700)))
    shared = [gpu(0, memory=memory(used=39 * GIB), holders=beside)]
    other = replace(UP, id=UnitId("other.service"), active_state="failed", sub_state="failed")
    both = snapshot(gpus=shared, processes=[WORKER, stray], units=[UP, other])
    assert observed(both).holdings[ME].others_bytes == {GpuUuid("GPU-0"): 9 * GIB}
    # a GPU that does not tell keeps what was known, and so does a unit that is down
    silent = [
        gpu(0, holders=Failed(Cause.CHANGING)),
        gpu(1, memory=memory(used=2 * GIB), holders=Ok((held(7, 2 * GIB, 500),))),
    ]
    later = observed(taken(silent), history=first).holdings[ME]
    assert later.own_bytes == {GpuUuid("GPU-0"): 30 * GIB, GpuUuid("GPU-1"): 0}
    assert later.others_bytes == {GpuUuid("GPU-0"): 5 * GIB, GpuUuid("GPU-1"): 2 * GIB}
    down = replace(UP, active_state="failed", sub_state="failed")
    assert observed(taken(silent, None, down), history=first).holdings == first.holdings
    # the next activation begins with nothing
    following = replace(UP, invocation_id="b")
    assert observed(taken(silent, None, following), history=first).holdings[ME] == Holdings(
        invocation_id="b", own_bytes={GpuUuid("GPU-1"): 0}, others_bytes={GpuUuid("GPU-1"): 2 * GIB}
    )


def test_unattributed_memory_before_a_unit_holds_any_is_not_that_of_others() -> None:
    releasing = taken([gpu(memory=memory(used=35 * GIB), holders=Ok((held(7, 5 * GIB, 500),)))])
    first = observed(releasing).holdings[ME]  # 30 GiB of the run before are on their way
    assert (first.own_bytes, first.others_bytes) == ({GpuUuid("GPU-0"): 0}, {GpuUuid("GPU-0"): 5 * GIB})
    shared = Ok((held(7, 5 * GIB, 500), held(901, 60 * GIB, 1010)))
    loaded = observed(releasing, taken([gpu(memory=memory(used=67 * GIB), holders=shared)])).holdings[ME]
    assert (loaded.own_bytes, loaded.others_bytes) == ({GpuUuid("GPU-0"): 60 * GIB}, {GpuUuid("GPU-0"): 7 * GIB})


def test_the_gpus_of_at_most_a_thousand_units_are_kept() -> None:
    past = LearntGpus(invocation_id="z", uuids=(GpuUuid("GPU-0"),))
    held_then = Holdings(invocation_id="z", own_bytes={}, others_bytes={})
    names = [UnitId(f"run-{number}.service") for number in range(1000)]
    before = History(gpu_sets=dict.fromkeys(names, past), holdings=dict.fromkeys(names, held_then))
    history = observed(taken(on({1: 70 * GIB}), None), history=before)
    for kept in (history.gpu_sets, history.holdings):
        assert len(kept) == 1000
        assert ME in kept
        assert names[0] not in kept
