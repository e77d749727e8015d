"""From one answer of the NVML child to the model. Pure: earlier answers are the concern of `known_gpus`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from llmhost.model.gpu import Gpu, GpuHolder, GpuMemory, MemoryApi, NvmlReport
from llmhost.model.ids import GpuUuid, ProcessId
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.sources.base import SourceError
from llmhost.sources.nvml.codes import Code, cause_of, described, fault_of
from llmhost.sources.nvml.wire import Answer, WireError, WireGpu, WireHolder

# GPUs that have no memory of their own, by a word of their name. Most of their drivers answer NOT_SUPPORTED to the
# memory calls (XuehaiPan/nvitop#208), and some succeed with numbers that are the host's or zero.
INTEGRATED = ("GB10", "Thor", "Orin", "Xavier", "Tegra")
_INTEGRATED = re.compile(rf"\b(?:{'|'.join(INTEGRATED)})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HolderKey:
    """The identity of an entry in consecutive lists; the instance ids are 2³²−1 without MIG."""

    pid: int
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One entry of a process list, by itself: it may have been there before."""

    key: HolderKey
    used_bytes: int | None
    start_ticks: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReport:
    """A report of one answer by itself: `listed_most` is what is listed now, and no GPU is missed."""

    report: NvmlReport
    entries: Mapping[GpuUuid, tuple[ListEntry, ...]]  # of the GPUs that have a list
    nameless: frozenset[GpuUuid]  # GPUs that failed before their UUID was known, under a stand-in
    uuids: Mapping[int, GpuUuid]  # by NVML index, of the others; MIG instances have none


def parse_answer(line: bytes, question_id: int) -> ParsedReport:
    """Parse one line. Raises SourceError when it is no answer to that question, or NVML as a whole did not work."""
    try:
        answer: Answer = json.loads(line)
        parsed = parse_report(answer)
        answered = answer["id"]
    except (KeyError, TypeError, ValueError) as error:
        detail = f"the NVML child's answer is none: {type(error).__name__}: {error}"
        raise SourceError(Cause.UNKNOWN, detail) from error
    if answered != question_id:
        raise SourceError(Cause.UNKNOWN, "the NVML child answered another question")
    return parsed


def parse_report(answer: Answer) -> ParsedReport:
    """Raise SourceError when NVML as a whole did not work, and KeyError, TypeError or ValueError for another format."""
    failed = answer["failed"]
    if failed is not None:
        raise SourceError(cause_of(failed["code"]), _text(failed) + _library(answer))
    on_disk, driver = answer["library_on_disk_version"], answer["driver_version"]
    gpus = tuple(_gpu(wire) for wire in answer["gpus"])
    return ParsedReport(
        report=NvmlReport(
            driver_version=driver,
            nvml_version=answer["nvml_version"],
            library_on_disk_version=on_disk,
            driver_mismatch=on_disk != driver if on_disk and driver else None,
            gpus=gpus,
            listed=answer["listed"],
            listed_most=answer["listed"],
        ),
        entries={
            gpu.uuid: tuple(_listed(holder) for holder in wire["holders"])
            for gpu, wire in zip(gpus, answer["gpus"], strict=True)
            if isinstance(wire["holders"], list)
        },
        nameless=frozenset(_uuid(wire) for wire in answer["gpus"] if wire["uuid"] is None),
        uuids={
            int(wire["index"]): _uuid(wire)
            for wire in answer["gpus"]
            if wire["uuid"] is not None and wire["parent_uuid"] is None
        },
    )


def _gpu(wire: WireGpu) -> Gpu:
    fault: Cause | None = None
    detail = ""
    if wire["skipped"]:
        fault, detail = Cause.TIMEOUT, "not asked, because a call on it hung"
    elif wire["fault"] is not None:
        fault, detail = fault_of(wire["fault"]["code"]), _text(wire["fault"])
    failed = Failed(fault, detail) if fault is not None else None
    parent = wire["parent_uuid"]
    return Gpu(
        uuid=_uuid(wire),
        index=wire["index"],
        name=wire["name"],
        pci_bus_id=wire["pci_bus_id"],
        parent_uuid=None if parent is None else GpuUuid(parent),
        fault=fault,
        fault_detail=detail,
        memory=failed or _memory(wire),
        holders=failed or _holders(wire),
        utilization_ratio=wire["utilization_ratio"],
        temperature_celsius=wire["temperature_celsius"],
        power_watts=wire["power_watts"],
        fabric_ready=wire["fabric_ready"],
        unified_memory=fault is None and _unified(wire),
    )


def _uuid(wire: WireGpu) -> GpuUuid:
    return GpuUuid(wire["uuid"] if wire["uuid"] is not None else f"INDEX-{wire['index']}")


def _unified(wire: WireGpu) -> bool:
    """Go by known names, and only if the memory call did not fail for another reason."""
    memory = wire["memory"]
    if memory is None or not _INTEGRATED.search(wire["name"]):
        return False
    return "total" in memory or memory["code"] == Code.NO_SENSE or cause_of(memory["code"]) is Cause.NOT_SUPPORTED


def _memory(wire: WireGpu) -> Reading[GpuMemory]:
    if wire["mig_parent"]:
        return NotApplicable("its MIG instances have it")
    if _unified(wire):
        return NotApplicable("unified memory: it is the host's")
    memory = wire["memory"]
    if memory is None:
        raise ValueError("a GPU without memory, and no reason")
    if "total" not in memory:
        return _failed(memory)
    return Ok(
        GpuMemory(
            api=MemoryApi(memory["api"]),
            total_bytes=memory["total"],
            used_bytes=memory["used"],
            free_bytes=memory["free"],
            reserved_bytes=memory["reserved"],
        )
    )


def _holders(wire: WireGpu) -> Reading[tuple[GpuHolder, ...]]:
    if wire["mig_parent"]:
        return NotApplicable("its MIG instances have them")
    holders = wire["holders"]
    if holders is None:
        raise ValueError("a GPU without holders, and no reason")
    if not isinstance(holders, list):
        return _failed(holders)
    return Ok(tuple(holder_of(_listed(entry), entry["start_ticks"]) for entry in holders))


def holder_of(listed: ListEntry, start_ticks: int | None) -> GpuHolder:
    pid = listed.key.pid
    return GpuHolder(
        pid=pid,
        process=None if start_ticks is None else ProcessId(pid, start_ticks),
        used_bytes=listed.used_bytes,
        alive=listed.start_ticks is not None and listed.start_ticks == start_ticks,
    )


def _listed(entry: WireHolder) -> ListEntry:
    return ListEntry(HolderKey(entry["pid"], entry["gi"], entry["ci"]), entry["used"], entry["start_ticks"])


def _failed(error: WireError) -> Failed:
    return Failed(cause_of(error["code"]), _text(error))


def _text(error: WireError) -> str:
    return described(error["call"], error["code"])


def _library(answer: Answer) -> str:
    version = answer["library_version"]
    return f"; the library is {version}" if version else ""
