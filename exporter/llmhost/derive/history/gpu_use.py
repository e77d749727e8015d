"""GPU use in the history: how much memory each unit holds on which GPUs, and its GPU set."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from llmhost.config.schema import Policy
from llmhost.derive.activation import is_up
from llmhost.derive.attribution import GpuAttribution, Holder, HolderKind, attribute, sum_or_none
from llmhost.derive.history.bounds import MAX_UNITS, newest
from llmhost.derive.runs import run_of
from llmhost.derive.servers import SCRAPED_ENGINES
from llmhost.derive.unit_membership import members_by_unit
from llmhost.model.gpu import Gpu
from llmhost.model.history.history import History, Holdings, LearntGpus
from llmhost.model.ids import UnitId
from llmhost.model.process import Process
from llmhost.model.reading import NotApplicable, Ok, Reading, mapped
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit

Gpus = Sequence[tuple[Gpu, GpuAttribution]]  # those whose holders are known
# Memory that will be freed: where it is of the unit's own runs, it is not what others hold beside the unit.
_ENDED = frozenset({HolderKind.LEFTOVER, HolderKind.ORPHAN, HolderKind.GONE})


def with_gpu_use(history: History, snapshot: Snapshot, policy: Policy) -> History:
    """Take in an observation that has units, NVML, processes and the host; others change nothing."""
    if not isinstance(snapshot.units, Ok) or not isinstance(snapshot.nvml, Ok):
        return history
    up = tuple(unit for unit in snapshot.watched_units if is_up(unit) and unit.invocation_id)
    by_id = {unit.id: unit for unit in snapshot.watched_units}
    attributed = attribute(snapshot, by_id, frozenset(), history.process_runs)  # orphans make no difference here
    if not isinstance(attributed, Ok):
        return history
    known: list[tuple[Gpu, GpuAttribution]] = []
    for gpu in snapshot.nvml.value.gpus:
        attribution = attributed.value[gpu.uuid]
        if isinstance(attribution, Ok):
            known.append((gpu, attribution.value))
    return replace(
        history,
        holdings=_next_holdings(history.holdings, up, known),
        gpu_sets=_next_gpu_sets(history, snapshot, up, known, policy),
    )


def _next_holdings(before: Mapping[UnitId, Holdings], up: tuple[Unit, ...], gpus: Gpus) -> Mapping[UnitId, Holdings]:
    """Note what each unit that is up holds, and others beside it; where that is not known, it stays as it was.

    Memory that nobody holds counts as others' only where the unit holds some: before that it may be memory of the run
    before, which the driver has not freed yet.
    """
    found = dict(before)
    for unit in up:
        last = found.pop(unit.id, None)
        if last is None or last.invocation_id != unit.invocation_id:
            last = Holdings(invocation_id=unit.invocation_id, own_bytes={}, others_bytes={})
        own_bytes, others_bytes = dict(last.own_bytes), dict(last.others_bytes)
        for gpu, attribution in gpus:
            used_bytes = sum_or_none(holder.used_bytes for holder in attribution.holders if _is_own(holder, unit))
            ended = sum_or_none(
                holder.used_bytes for holder in attribution.holders if holder.kind in _ENDED and holder.unit == unit.id
            )
            if used_bytes is None or ended is None or not isinstance(gpu.memory, Ok):
                continue
            beside = gpu.memory.value.used_bytes - used_bytes - ended
            if not used_bytes:
                beside = min(beside, sum(holder.used_bytes or 0 for holder in attribution.holders) - ended)
            own_bytes[gpu.uuid] = used_bytes
            others_bytes[gpu.uuid] = max(0, beside)
        found[unit.id] = Holdings(invocation_id=unit.invocation_id, own_bytes=own_bytes, others_bytes=others_bytes)
    return newest(found, MAX_UNITS)


def _next_gpu_sets(
    history: History, snapshot: Snapshot, up: tuple[Unit, ...], gpus: Gpus, policy: Policy
) -> Mapping[UnitId, LearntGpus]:
    """Learn on which GPUs a ready unit holds more than policy.resident; of one run, all that it ever used.

    An observation where it is on none, as when it sleeps, changes nothing.
    """
    found = dict(history.gpu_sets)
    members = mapped(snapshot.processes, members_by_unit)
    for unit in up:
        own = {
            gpu.uuid: sum_or_none(holder.used_bytes for holder in attribution.holders if _is_own(holder, unit))
            for gpu, attribution in gpus
        }
        on = tuple(uuid for uuid, held in own.items() if held is not None and held > policy.resident_bytes)
        if not on or not _is_ready(unit, members, history, snapshot):
            continue
        last = found.pop(unit.id, None)
        if last is not None and last.invocation_id == unit.invocation_id:
            known = {*last.uuids, *on}
            on = (*(uuid for uuid in own if uuid in known), *(uuid for uuid in last.uuids if uuid not in own))
        found[unit.id] = LearntGpus(invocation_id=unit.invocation_id, uuids=on)
    return newest(found, MAX_UNITS)


def _is_ready(
    unit: Unit, members: Reading[Mapping[UnitId, tuple[Process, ...]]], history: History, snapshot: Snapshot
) -> bool:
    """Say whether the unit has loaded: its engine has answered, where it is one that is scraped, else it is active."""
    processes = members.value.get(unit.id, ()) if isinstance(members, Ok) else ()
    scraped = run_of(unit, processes, snapshot.processes, snapshot.host).engine in SCRAPED_ENGINES
    if scraped and not isinstance(snapshot.engines, NotApplicable):
        readiness = history.readiness.get(unit.id)
        return readiness is not None and readiness.has_answered(unit.invocation_id)
    return unit.active_state == "active"


def _is_own(holder: Holder, unit: Unit) -> bool:
    return holder.kind is HolderKind.CURRENT and holder.unit == unit.id
