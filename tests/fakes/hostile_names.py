"""A host on which the same hostile name stands for every name that a local user can choose."""

from dataclasses import replace

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
from llmhost.derive.host_view import HostView, host_view
from llmhost.model.engine import EngineAnswer, EngineSample, EnginesReport
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import InTheWay, Trigger, UnitHistory, Verdict
from llmhost.model.host import Host
from llmhost.model.ids import GpuUuid, UnitId
from llmhost.model.process import Role
from llmhost.model.reading import Cause, Failed, Ok, Reading
from llmhost.model.unit import UnitSettings

LONG = "vllm@" + "x" * 240 + ".service"
NAMES = [LONG, "vllm@模型" + "模" * 60 + ".service", "a\x1b[2J\x1b[31mhealthy\r\nhealthy.service", "a b c.service"]


def view_of(name: str, *, host: Reading[Host] | None = None) -> HostView:
    """Make it; without `host` its clock cannot be read, so that nothing is attributed."""
    me = UnitId(name)
    way = InTheWay(uuid=GpuUuid("GPU-0"), gpu="0", kind=name, used_bytes=3 * GIB)
    record = UnitHistory(
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
        host=host or Failed(Cause.UNKNOWN, name),
    )
    history = History(units={me: record})
    return host_view(at, history, Config(), history_fault=name)
