"""A start of vllm.service to be judged: 80 GiB each, 1 GiB reserved, policy.resident 1000 MiB."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tests.fakes.values import gpu, in_service, memory, process, settings, snapshot, unit

from llmhost.config.schema import Config
from llmhost.derive.verdict import Judgement, StartReadings, judge
from llmhost.model.gpu import Gpu, GpuHolder
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import Verdict
from llmhost.model.ids import GpuUuid, UnitId
from llmhost.model.process import Home, Placement, Process
from llmhost.model.reading import Ok, Reading
from llmhost.model.unit import Unit

ME = UnitId("vllm.service")
SERVICE = in_service("vllm.service")
NOTEBOOK = process(7, Placement(Home.SESSION), start=2000, comm="jupyter-noteboo")
# The run before ended at 290 s. The start began at 300 s; systemd shows its InvocationID in the state of before.
MAIN = process(900, SERVICE, start=30001)


def starting(command: str = "/usr/bin/vllm serve m", environment: Mapping[str, str] | None = None) -> Unit:
    return unit(
        "vllm.service",
        "inactive",
        "dead",
        invocation_id="new",
        main_pid=900,
        condition_monotonic=300.0,
        inactive_exit_monotonic=100.0,
        inactive_enter_monotonic=290.0,
        exec_main_start_monotonic=300.01,
        settings=settings(command, environment),
    )


def in_use(index: int, used: int, *holders: GpuHolder) -> Gpu:
    return gpu(index, memory=memory(used=used), holders=Ok(holders))


def judged(
    gpus: Iterable[Gpu],
    there: Iterable[Process] = (MAIN,),
    start: Unit | None = None,
    *,
    used: Mapping[int, int] | None = None,
    units: Iterable[Unit] = (),
    history: History | None = None,
    config: Config | None = None,
    **given: object,
) -> Reading[Judgement]:
    """Judge a start; what was in use at the start is what is in use now, except as `used` says by index."""
    gpus, start = tuple(gpus), start or starting()
    by_uuid = {gpu.uuid: gpu.memory.value.used_bytes for gpu in gpus if isinstance(gpu.memory, Ok)}
    by_uuid |= {GpuUuid(f"GPU-{index}"): size for index, size in (used or {}).items()}
    read = snapshot(gpus=gpus, processes=there, units=[start, *units])
    readings = StartReadings.of(replace(read, **given), config or Config(), history or History())  # type: ignore[arg-type]
    return judge(readings, start, by_uuid)


def outcome(reading: Reading[Judgement]) -> tuple[Verdict, list[tuple[str, str, int]]]:
    assert isinstance(reading, Ok), reading
    return reading.value.verdict, [(way.gpu, way.kind, way.used_bytes) for way in reading.value.in_the_way]
