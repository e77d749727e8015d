"""GPUs and list entries of earlier answers: a GPU that is lost, and the process that an entry was first seen with."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from llmhost.model.gpu import Gpu, NvmlReport, SeenGpu, SeenGpus
from llmhost.model.ids import GpuUuid
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.sources.nvml.report import HolderKey, ListEntry, ParsedReport, holder_of

_NOT_LISTED = "the driver does not list it any more"


@dataclass(frozen=True, slots=True)
class _FirstListing:
    start_ticks: int | None
    used_bytes: int | None


class KnownGpus:
    """GPUs since boot; applied to each answer once, in order."""

    def __init__(self, seen: SeenGpus | None = None) -> None:
        """`seen` are those that were listed in this boot before now."""
        seen = seen or SeenGpus()
        self._last = {uuid: _lost(uuid, gpu) for uuid, gpu in seen.gpus.items()}
        self._entries: dict[GpuUuid, dict[HolderKey, _FirstListing]] = {}
        self.listed_most = seen.listed_most  # GPUs, most listed at once

    def apply(self, parsed: ParsedReport) -> NvmlReport:
        self.listed_most = max(self.listed_most, parsed.report.listed)
        present = [self._named(gpu, parsed) for gpu in parsed.report.gpus]
        gpus = [*present, *self._missing(present)]
        gpus = [self._with_first_identities(gpu, parsed.entries.get(gpu.uuid)) for gpu in gpus]
        gpus.sort(key=_order)
        self._last = {gpu.uuid: gpu for gpu in gpus if gpu.uuid not in parsed.nameless}
        self._entries = {uuid: held for uuid, held in self._entries.items() if uuid in self._last}
        return replace(parsed.report, gpus=tuple(gpus), listed_most=self.listed_most)

    def _named(self, gpu: Gpu, parsed: ParsedReport) -> Gpu:
        """Give a GPU that failed before its UUID was known the identity that it had, by its index."""
        if gpu.fault is None:
            return gpu
        before = self._last.get(gpu.uuid)
        if gpu.uuid in parsed.nameless:
            listed = {other.uuid for other in parsed.report.gpus}
            before = next(
                (known for known in self._last.values() if known.index == gpu.index and known.uuid not in listed), None
            )
        return gpu if before is None else _faulty(before, gpu.fault, gpu.fault_detail)

    def _missing(self, present: Iterable[Gpu]) -> list[Gpu]:
        """GPUs that are no longer listed are lost; MIG instances are, only if their GPU cannot say where they went."""
        now = {gpu.uuid: gpu for gpu in present}
        absent = [gpu for uuid, gpu in self._last.items() if uuid not in now]
        lost = [_faulty(gpu, Cause.LOST, _NOT_LISTED) for gpu in absent if not gpu.parent_uuid]
        parents = {**now, **{gpu.uuid: gpu for gpu in lost}}
        for instance in absent:
            parent = parents.get(instance.parent_uuid) if instance.parent_uuid else None
            if parent is not None and parent.fault is not None:
                lost.append(_faulty(instance, parent.fault, parent.fault_detail))
        return lost

    def _with_first_identities(self, gpu: Gpu, entries: tuple[ListEntry, ...] | None) -> Gpu:
        """Keep, for an entry that is still listed, the process that it was first seen with.

        A driver that does not get its memory back lists a pid for ever, and the pid goes to another process meanwhile.
        No other process's memory grows the entry, so an entry that grew belongs to the process that is there now.
        """
        if entries is None or not isinstance(gpu.holders, Ok):
            return gpu
        before = self._entries.get(gpu.uuid, {})
        held = {
            entry.key: _FirstListing(_first_start(before.get(entry.key), entry), entry.used_bytes) for entry in entries
        }
        self._entries[gpu.uuid] = held
        return replace(gpu, holders=Ok(tuple(holder_of(entry, held[entry.key].start_ticks) for entry in entries)))


def _first_start(before: _FirstListing | None, entry: ListEntry) -> int | None:
    if before is None:
        return entry.start_ticks
    grew = before.used_bytes is not None and entry.used_bytes is not None and entry.used_bytes > before.used_bytes
    return entry.start_ticks if grew and entry.start_ticks is not None else before.start_ticks


def _lost(uuid: GpuUuid, seen: SeenGpu) -> Gpu:
    failed = Failed(Cause.LOST, _NOT_LISTED)
    return Gpu(
        uuid=uuid,
        index=seen.index,
        name=seen.name,
        pci_bus_id=seen.pci_bus_id,
        parent_uuid=None,
        fault=failed.cause,
        fault_detail=failed.detail,
        memory=failed,
        holders=failed,
        utilization_ratio=None,
        temperature_celsius=None,
        power_watts=None,
        fabric_ready=None,
        unified_memory=seen.unified_memory,
    )


def _faulty(gpu: Gpu, cause: Cause, detail: str) -> Gpu:
    """Keep the identity and no value."""
    failed = Failed(cause, detail)
    return replace(
        gpu,
        fault=cause,
        fault_detail=detail,
        memory=failed,
        holders=failed,
        utilization_ratio=None,
        temperature_celsius=None,
        power_watts=None,
        fabric_ready=None,
    )


def _order(gpu: Gpu) -> tuple[int, str, int]:
    """Sort a GPU by its index, its instances right after it, also where a lost GPU has another's index."""
    own, _, position = gpu.index.partition(":")
    return int(own), gpu.parent_uuid or gpu.uuid, int(position) if position else -1
