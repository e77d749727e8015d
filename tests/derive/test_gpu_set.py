"""The GPU set of a unit, by the first source that decides it."""

from dataclasses import replace

import pytest
from tests.fakes.values import HOST, gpu, in_service, process, settings, table, unit

from llmhost.config.schema import UnitGpus
from llmhost.derive.gpu_set import gpu_set
from llmhost.derive.runs import Run, run_of
from llmhost.model.engine_arguments import parse_engine_arguments
from llmhost.model.gpu import Gpu
from llmhost.model.ids import GpuUuid
from llmhost.model.process import Process, Role
from llmhost.model.reading import Cause, Failed, Ok, Reading
from llmhost.model.unit import Unit

EIGHT = [gpu(index) for index in range(8)]
MIXED = [gpu(0), gpu(1, name="NVIDIA L4")]


def uuids(*indexes: int) -> Ok[tuple[GpuUuid, ...]]:
    return Ok(tuple(GpuUuid(f"GPU-{index}") for index in indexes))


def of_unit(
    watched: Unit, gpus: list[Gpu] = EIGHT, configured: tuple[UnitGpus, ...] = (), processes: tuple[Process, ...] = ()
) -> Reading[tuple[GpuUuid, ...]]:
    run = run_of(watched, processes, Ok(table(processes)), Ok(HOST))
    return gpu_set(watched, gpus, run, configured, None)


def of_arguments(command: str) -> Reading[tuple[GpuUuid, ...]]:
    return of_unit(unit(settings=settings(command)))


def of_visible(value: str, gpus: list[Gpu] = EIGHT, **more: str) -> Reading[tuple[GpuUuid, ...]]:
    return of_unit(unit(settings=settings("", {"CUDA_VISIBLE_DEVICES": value, **more})), gpus)


@pytest.mark.parametrize(
    ("names", "found"),
    [(("0", "5"), uuids(0, 5)), (("GPU-3",), uuids(3)), (("00000000:12:00.0", "13:00.0"), uuids(2, 3))],
)
def test_a_configured_set_names_index_uuid_or_pci_bus_id(
    names: tuple[str, ...], found: Ok[tuple[GpuUuid, ...]]
) -> None:
    rows = (UnitGpus(pattern="other@*.service", gpus=("7",)), UnitGpus(pattern="vllm*.service", gpus=names))
    assert of_unit(unit(), configured=rows) == found


def test_a_configured_set_is_also_that_of_a_units_other_names() -> None:
    rows = (UnitGpus(pattern="qwen*.service", gpus=("5",)), UnitGpus(pattern="vllm.service", gpus=("1",)))
    assert of_unit(unit(aliases=("a.service", "qwen.service")), configured=rows) == uuids(5)


def test_a_configured_gpu_that_is_not_there_leaves_the_set_unknown() -> None:
    result = of_unit(unit(), configured=(UnitGpus(pattern="*", gpus=("8",)),))
    assert isinstance(result, Failed)
    assert result.detail == "the configured GPU set names 8, which the driver does not list"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("0,1,2,3", uuids(0, 1, 2, 3)),
        (" 4 , 5", uuids(4, 5)),
        ("GPU-6,GPU-7", uuids(6, 7)),
        ("0,-1,2", uuids(0)),  # the first that is no GPU ends the list
        ("", Ok(())),
        ("-1", Ok(())),
        ("NoDevFiles", Ok(())),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(value: str, found: Ok[tuple[GpuUuid, ...]]) -> None:
    assert of_visible(value) == found


def test_plain_numbers_mean_nothing_on_gpus_that_differ_unless_in_pci_order() -> None:
    assert isinstance(of_visible("0", MIXED), Failed)
    assert of_visible("1", MIXED, CUDA_DEVICE_ORDER="PCI_BUS_ID") == uuids(1)
    assert of_visible("GPU-1", MIXED) == uuids(1)


def with_learnt(command: str, *indexes: int, unread: bool = False) -> Reading[tuple[GpuUuid, ...]]:
    engine, *_ = words = tuple(command.split())
    visible: Reading[str | None] = Failed(Cause.UNKNOWN) if unread else Ok(None)
    run = Run(engine=engine, arguments=parse_engine_arguments(engine, words), visible=visible)
    return gpu_set(unit(), EIGHT, run, (), uuids(*indexes).value)


def test_what_was_learnt_beats_the_arguments() -> None:
    assert with_learnt("vllm serve m", 4) == uuids(4)
    assert with_learnt("vllm serve m -tp 2", 4, 6) == uuids(4, 6)


def test_what_was_learnt_with_another_number_of_gpus_is_of_another_model() -> None:
    assert with_learnt("vllm serve larger -tp 8", 0, 1) == uuids(*range(8))
    assert with_learnt("vllm serve smaller -tp 2", 0, 1, 2, 3) == uuids(0, 1)
    # but for where something else chooses, and where the arguments do not say
    assert with_learnt("vllm serve m -tp 2", 4, 5, 6, 7, unread=True) == uuids(4, 5, 6, 7)
    assert with_learnt("vllm serve m -tp ${TP}", 4, 5) == uuids(4, 5)
    assert with_learnt("llamacpp", 4, 5) == uuids(4, 5)


def test_what_was_learnt_of_a_gpu_that_was_replaced_is_out_of_date() -> None:
    assert with_learnt("vllm serve m -tp 8", *range(7), 9) == uuids(*range(8))
    assert with_learnt("vllm serve m -tp 2", 0, 9) == uuids(0, 1)
    # but where something else chooses, or there are not as many any more, it is what the unit wants
    assert with_learnt("vllm serve m -tp 2", 5, 9, unread=True) == uuids(5, 9)
    assert with_learnt("vllm serve m -tp 9", *range(9)) == uuids(*range(9))


def test_which_of_gpus_that_differ_come_first_is_not_known_unless_in_pci_order() -> None:
    of_engine = settings("vllm serve m")
    assert isinstance(of_unit(unit(settings=of_engine), MIXED), Failed)
    assert of_unit(
        unit(settings=replace(of_engine, environment=(("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),))), MIXED
    ) == uuids(0)
    assert of_unit(unit(settings=settings("vllm serve m -tp 2")), MIXED) == uuids(0, 1)


@pytest.mark.parametrize("command", ["llama-server -m m.gguf", "ollama serve", "tritonserver --model-repository m"])
def test_an_engine_whose_arguments_are_not_read_may_use_any_gpu(command: str) -> None:
    assert isinstance(of_arguments(command), Failed)
    assert of_unit(unit(settings=settings(command)), EIGHT[:1]) == uuids(0)


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("vllm serve m", uuids(0)),
        ("vllm serve m -tp 4", uuids(0, 1, 2, 3)),
        ("vllm serve m --tensor-parallel-size=2 -pp 2 -dp 2", uuids(0, 1, 2, 3, 4, 5, 6, 7)),
    ],
)
def test_the_arguments_say_how_many_of_the_first(command: str, found: Ok[tuple[GpuUuid, ...]]) -> None:
    assert of_arguments(command) == found


@pytest.mark.parametrize("command", ["vllm serve m -tp 16", "vllm serve m -tp ${TP}", "vllm serve --config a.yaml"])
def test_arguments_without_gpus_leave_the_set_unknown(command: str) -> None:
    assert isinstance(of_arguments(command), Failed)


def test_a_unit_that_says_nothing_uses_all_gpus_and_mig_instances_do_not_count() -> None:
    split = [gpu(0), gpu(1, uuid=GpuUuid("MIG-1"), index="0:0", parent_uuid=GpuUuid("GPU-0"))]
    assert of_unit(unit(), split) == uuids(0)


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("/usr/bin/env CUDA_VISIBLE_DEVICES=4,5 vllm serve m -tp 2", uuids(4, 5)),
        ("/usr/bin/numactl -N 0 vllm serve m -tp 2", uuids(0, 1)),
    ],
)
def test_an_assignment_in_the_command_is_seen(command: str, found: Ok[tuple[GpuUuid, ...]]) -> None:
    assert of_arguments(command) == found


def test_a_shells_assignment_is_seen() -> None:
    code = "source /opt/v/bin/activate && CUDA_VISIBLE_DEVICES='6,7' exec vllm serve m -tp 2"
    shell = replace(settings(), exec_start=(("/bin/bash", "-c", code),))
    assert of_unit(unit(settings=shell)) == uuids(6, 7)


@pytest.mark.parametrize(
    "command",
    [
        "docker run --gpus device=4,5 vllm/vllm-openai --model m -tp 2",
        "/usr/bin/env CUDA_VISIBLE_DEVICES=${WHICH} vllm serve m -tp 2",
        "sglang serve --tp 2 --base-gpu-id ${FIRST}",
    ],
)
def test_what_chooses_gpus_out_of_our_sight_leaves_the_set_unknown(command: str) -> None:
    assert isinstance(of_arguments(command), Failed)


def test_a_unit_that_uses_all_gpus_has_no_choice() -> None:
    assert of_arguments("docker run --gpus all vllm/vllm-openai --model m -tp 8") == Ok(
        tuple(gpu.uuid for gpu in EIGHT)
    )


def test_an_environment_file_goes_over_everything_but_the_config() -> None:
    filed = replace(settings("vllm serve m", {"CUDA_VISIBLE_DEVICES": "0"}), environment_files=("/etc/default/vllm",))
    assert isinstance(of_unit(unit(settings=filed)), Failed)
    rows = (UnitGpus(pattern="vllm.service", gpus=("3",)),)
    assert of_unit(unit(settings=filed), configured=rows) == uuids(3)


def test_a_script_in_front_of_the_engine_leaves_the_set_unknown() -> None:
    place = in_service("vllm.service")
    argv = ("/v/bin/vllm", "serve", "m", "-tp", "2")
    server = process(5, place, start=950, engine="vllm", role=Role.API_SERVER, argv=argv)
    assert isinstance(of_unit(unit(settings=settings("/opt/run.sh")), processes=(server,)), Failed)
    core = process(5, place, start=950, engine="vllm", role=Role.CORE, argv=("VLLM::EngineCore",))
    assert isinstance(of_unit(unit(settings=settings("/opt/run.sh")), processes=(core,)), Failed)
