"""Additions of earlier answers to the present one: identities and lost GPUs. Worked out by hand."""

import pytest
from tests.fakes.nvml_reader import holders_of

from llmhost.derive.remembered import gpus_to_miss
from llmhost.model.gpu import SeenGpu, SeenGpus
from llmhost.model.history.history import History
from llmhost.model.ids import GpuUuid, ProcessId
from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError
from llmhost.sources.nvml.known_gpus import KnownGpus
from llmhost.sources.nvml.report import parse_report
from llmhost.sources.nvml.wire import NO_INSTANCE, Answer, WireError, WireGpu, WireHolder, WireMemory

GIB = 1 << 30
PID = 4242


def said(index: str, uuid: str | None, *holders: WireHolder, fault: int | None = None) -> WireGpu:
    return WireGpu(
        index=index,
        uuid=uuid,
        name="" if uuid is None else "NVIDIA H200",
        pci_bus_id="",
        parent_uuid=None,
        mig_parent=False,
        fault=None if fault is None else WireError(call="nvmlDeviceGetHandleByIndex_v2", code=fault),
        skipped=False,
        memory=None if fault else WireMemory(api="v2", total=80 * GIB, used=0, free=80 * GIB, reserved=0),
        holders=None if fault else list(holders),
        utilization_ratio=None,
        temperature_celsius=None,
        power_watts=None,
        fabric_ready=None,
    )


def answer(*gpus: WireGpu) -> Answer:
    return Answer(
        id=1,
        failed=None,
        driver_version="570.86.16",
        nvml_version="12.570.86.16",
        library_version=None,
        library_on_disk_version=None,
        listed=len(gpus),
        gpus=list(gpus),
    )


def held(start_ticks: int | None, used_gib: int | None = 10, ci: int = NO_INSTANCE) -> WireHolder:
    used = None if used_gib is None else used_gib * GIB
    return WireHolder(pid=PID, gi=NO_INSTANCE, ci=ci, used=used, start_ticks=start_ticks)


@pytest.mark.parametrize(
    ("entries", "start_ticks"),
    [
        ([held(500)], 500),
        ([held(None)], None),
        ([held(500), held(500, 20)], 500),
        ([held(500), held(None)], 500),  # it died and its memory stays
        ([held(500), held(None), held(900)], 500),  # and its pid went to somebody else
        ([held(500), held(900, 10)], 500),
        ([held(500), held(900, 5)], 500),
        ([held(500), held(900, 11)], 900),  # who uses the GPU
        ([held(500, None), held(900, None)], 500),  # bytes not told: nothing shows that it grew
        ([held(None), held(900)], None),  # a pid that was dead when first seen has a new owner
        ([held(None), held(900, 11)], 900),
        ([held(500), held(None, 11)], 500),
        ([held(500), None, held(900)], 900),  # not listed in between: another entry
    ],
)
def test_an_entry_keeps_its_process_until_it_grows(entries: list[WireHolder | None], start_ticks: int | None) -> None:
    history = KnownGpus()
    reports = [
        history.apply(parse_report(answer(said("0", "GPU-0", *([] if entry is None else [entry])))))
        for entry in entries
    ]
    process = None if start_ticks is None else ProcessId(PID, start_ticks)
    assert holders_of(reports[-1].gpus[0])[PID].process == process


def test_an_entry_is_of_one_gpu_and_one_instance() -> None:
    history = KnownGpus()
    history.apply(parse_report(answer(said("0", "GPU-0", held(500, ci=0)), said("1", "GPU-1"))))
    report = history.apply(
        parse_report(answer(said("0", "GPU-0", held(900, ci=1)), said("1", "GPU-1", held(900, ci=0))))
    )
    assert [holders_of(gpu)[PID].process for gpu in report.gpus] == [ProcessId(PID, 900)] * 2


def test_an_entry_outlives_a_pass_that_failed() -> None:
    history = KnownGpus()
    answers = (said("0", "GPU-0", held(500)), said("0", "GPU-0", fault=15), said("0", "GPU-0", held(900)))
    reports = [history.apply(parse_report(answer(gpu))) for gpu in answers]
    assert holders_of(reports[-1].gpus[0])[PID].process == ProcessId(PID, 500)


def test_a_nameless_fault_goes_to_the_gpu_that_had_the_index() -> None:
    history = KnownGpus()
    history.apply(parse_report(answer(said("0", "GPU-a"), said("1", "GPU-b"))))
    report = history.apply(parse_report(answer(said("0", None, fault=16), said("1", "GPU-b"))))
    assert [(gpu.uuid, gpu.index, gpu.fault) for gpu in report.gpus] == [
        ("GPU-a", "0", Cause.RESET_REQUIRED),
        ("GPU-b", "1", None),
    ]


def test_a_nameless_fault_is_not_pinned_on_a_gpu_that_answers_under_another_index() -> None:
    history = KnownGpus()
    history.apply(parse_report(answer(said("0", "GPU-a"), said("1", "GPU-b"))))
    report = history.apply(parse_report(answer(said("0", "GPU-b"), said("1", None, fault=15))))
    assert {(gpu.uuid, gpu.fault) for gpu in report.gpus} == {
        ("GPU-b", None),
        ("INDEX-1", Cause.LOST),
        ("GPU-a", Cause.LOST),
    }


SEEN = SeenGpus(
    listed_most=2,
    gpus={
        GpuUuid(f"GPU-{name}"): SeenGpu(index=index, name="H100", pci_bus_id="", unified_memory=False)
        for index, name in (("0", "a"), ("1", "b"))
    },
)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([said("0", "GPU-a"), said("1", "GPU-b")], {"GPU-a": None, "GPU-b": None}),
        ([said("0", "GPU-a")], {"GPU-a": None, "GPU-b": Cause.LOST}),
        ([said("0", "GPU-b")], {"GPU-a": Cause.LOST, "GPU-b": None}),
        ([said("0", "GPU-a"), said("1", None, fault=15)], {"GPU-a": None, "GPU-b": Cause.LOST}),
        ([said("0", "GPU-a"), said("1", "GPU-c")], {"GPU-a": None, "GPU-b": Cause.LOST, "GPU-c": None}),
        ([], {"GPU-a": Cause.LOST, "GPU-b": Cause.LOST}),
    ],
)
def test_gpus_that_an_earlier_run_saw_are_missed(listed: list[WireGpu], expected: dict[str, Cause | None]) -> None:
    report = KnownGpus(SEEN).apply(parse_report(answer(*listed)))
    assert {gpu.uuid: gpu.fault for gpu in report.gpus} == expected
    assert report.listed_most == 2


@pytest.mark.parametrize(("expected", "missed"), [(None, 2), (2, 2), (3, 2), (1, 0)])
def test_gpus_that_were_taken_away_on_purpose_are_not_missed(expected: int | None, missed: int) -> None:
    assert len(gpus_to_miss(History(gpus=SEEN), expected).gpus) == missed


def test_a_failed_session_is_no_report() -> None:
    failed = answer()
    failed["failed"] = WireError(call="nvmlInitWithFlags", code=9)
    with pytest.raises(SourceError) as caught:
        parse_report(failed)
    assert caught.value.cause is Cause.NO_DRIVER
