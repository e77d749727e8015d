"""Whatever names there are, the status fits its width and cannot be made to say what is not so."""

import json
from dataclasses import replace

import pytest
from tests.fakes.values import (
    GIB,
    ended,
    gpu,
    held,
    in_service,
    memory,
    process,
    segment,
    shared_memory,
    snapshot,
    started,
    unit,
)

from llmhost.config.schema import Config
from llmhost.decide.health import health_of
from llmhost.decide.look import Look
from llmhost.derive.attribution import HolderKind
from llmhost.derive.facts import derive
from llmhost.derive.ledger.ledger import Ledger
from llmhost.derive.ledger.record import InTheWay, Trigger, UnitRecord, Verdict
from llmhost.model.engine import EngineAnswer, EngineSample, EnginesReport
from llmhost.model.guard_run import GuardRun, GuardVerdict
from llmhost.model.ids import GpuUuid, UnitId
from llmhost.model.process import Role
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.unit import UnitSettings
from llmhost.views.status import status_text
from llmhost.views.status_gpus import shares
from llmhost.views.status_json import status_json
from llmhost.views.text import Style, columns

LONG = "vllm@" + "x" * 240 + ".service"
NAMES = [LONG, "vllm@模型" + "模" * 60 + ".service", "a\x1b[2J\x1b[31mhealthy\r\nhealthy.service", "a b c.service"]


def look_at(name: str) -> Look:
    """Make a host where that name is everywhere."""
    me = UnitId(name)
    way = InTheWay(uuid=GpuUuid("GPU-0"), gpu="0", kind=name, used_bytes=3 * GIB)
    record = UnitRecord(
        last_seen_at=0.0,
        starts=(
            started(
                "a",
                trigger=Trigger.AUTO,
                verdict=Verdict.RESIDENT,
                in_the_way=(way,),
                unknown_because=name,
                end=ended(name),
            ),
        ),
        starts_total={(Trigger.AUTO, Verdict.RESIDENT): 10**9},
        failures_total={name: 10**9},
        last_release_seconds=34.0,
    )
    sample = EngineSample(model=name, engine_index="0", requests_running=1e18)
    gpus = [
        gpu(0, name=name, memory=memory(60 * GIB), holders=Ok((held(10, 40 * GIB),))),
        gpu(1, fault=Cause.LOST, fault_detail=name),
    ]
    given = UnitSettings(exec_start=(("vllm", "serve", name),))
    at = snapshot(
        gpus=gpus,
        processes=[process(10, in_service(name), comm=name, argv=(name,), engine="vllm", role=Role.CORE)],
        units=[unit(name, active="failed", sub="failed", result=name, settings=given)],
        shm=Ok(replace(shared_memory(segment(1, path=name), segment(2, path=name)), size_bytes=GIB, used_bytes=10)),
        engines=Ok(
            EnginesReport(
                answers=(
                    EngineAnswer(unit=me, engine="vllm", endpoint=f"unix:/{name}", samples=Ok((sample,))),
                    EngineAnswer(unit=me, engine="vllm", endpoint=f"http://{name}", samples=Failed(Cause.TLS, name)),
                )
            )
        ),
        host=Failed(Cause.UNKNOWN, name),
    )
    ledger = Ledger(units={me: record})
    config = Config()
    return Look(snapshot=at, facts=derive(at, config, ledger), ledger=ledger, policy=config.policy, history_fault=name)


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", NAMES)
def test_no_name_makes_a_line_too_wide_or_moves_the_cursor(name: str, width: int) -> None:
    look = look_at(name)
    for colour in (False, True):
        text = status_text(look, health_of(look), width=width, colour=colour)
        for style in (*Style, None) if colour else ():
            text = text.replace(f"\x1b[{style.value if style is not None else 0}m", "")
        lines = text.splitlines()
        assert all(line.isprintable() for line in lines)
        assert max(columns(line) for line in lines) <= width
        assert lines[0] == "not healthy"
        assert sum(line.strip() == "healthy" for line in lines) == 0


@pytest.mark.parametrize("name", NAMES)
def test_json_holds_every_name_as_it_is(name: str) -> None:
    look = look_at(name)
    assert status_json(look, health_of(look)).isascii()


def test_a_number_that_json_does_not_have_is_null() -> None:
    look = look_at("a.service")
    assert isinstance(look.snapshot.engines, Ok)
    answer = look.snapshot.engines.value.answers[0]
    odd = EngineSample(model="m", engine_index="0", requests_running=float("nan"), generation_tokens=float("inf"))
    engines = Ok(EnginesReport(answers=(replace(answer, samples=Ok((odd,))),)))
    odd_look = replace(look, snapshot=replace(look.snapshot, engines=engines))
    text = status_json(odd_look, health_of(odd_look))
    assert '"requests_running": null' in text
    assert '"generation_tokens": null' in text


def test_the_last_run_of_the_guard_is_told() -> None:
    look = look_at("a.service")
    totals = {GuardVerdict.HELD: 1, GuardVerdict.FREE: 6}
    run = GuardRun(
        unit=UnitId("a.service"),
        at=look.snapshot.at - 60,
        wait_seconds=34.0,
        verdict=GuardVerdict.FREE,
        runs_total=totals,
    )
    told = replace(look, snapshot=replace(look.snapshot, guard_runs=Ok((run,))))
    assert "    guard 60 s ago: free after 34 s; its runs: 6 free, 1 held\n" in status_text(told, health_of(told))
    (unit_told,) = json.loads(status_json(told, health_of(told)))["units"]
    assert unit_told["guard"] == {
        "at": run.at,
        "wait_seconds": 34.0,
        "verdict": "free",
        "runs": {"held": 1, "free": 6},
    }
    (without,) = json.loads(status_json(look, health_of(look)))["units"]
    assert without["guard"] is None


def test_memory_is_shared_out_by_kind_and_unit() -> None:
    held_here = Ok((held(1, 10 * GIB), held(2, 20 * GIB), held(3, None), held(4, 5 * GIB)))
    members = [process(1, in_service("a.service")), process(2, in_service("a.service")), process(3), process(4)]
    gpus = [gpu(0, memory=memory(60 * GIB), holders=held_here)]
    at = snapshot(gpus=gpus, processes=members, units=[unit("a.service")])
    attribution = derive(at, Config(), Ledger()).attribution
    assert isinstance(attribution, Ok)
    mine = attribution.value[GpuUuid("GPU-0")]
    assert isinstance(mine, Ok)
    found = [(one.kind, one.unit, one.pids, one.used_bytes) for one in shares(mine.value)]
    assert found == [
        (HolderKind.CURRENT, UnitId("a.service"), (1, 2), 30 * GIB),
        (HolderKind.OTHER, None, (3, 4), None),  # of one of them it is not known
    ]
