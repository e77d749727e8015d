"""When the memory of a run that has ended is back, told from what is in use alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmhost.config.schema import Policy
from llmhost.derive.gpu_set import GpuSet
from llmhost.model.history.history import Holdings
from llmhost.model.ids import GpuUuid, UnitId
from llmhost.model.reading import Ok, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseWatch:
    """What to wait for after the end of a run."""

    unit: UnitId
    invocation_id: str
    ended_monotonic: float
    back_at_bytes: Mapping[GpuUuid, int]  # with so much in use on it, or less, the GPU's memory counts as back


def release_target(
    unit: UnitId,
    invocation_id: str,
    ended_monotonic: float,
    *,
    gpus: Reading[GpuSet],
    used_at_end: Mapping[GpuUuid, int],
    holdings: Holdings | None,
    policy: Policy,
) -> ReleaseWatch | None:
    """Say what to wait for; None where nothing of the run can be there any more.

    Back is a GPU where no more is in use than others had there, as of the last look at this run, and policy.resident.
    A GPU on which the last look saw no more than policy.resident of this run's is not waited for: what is in use there
    may be what the run found. Where no look saw this run, others count as having nothing. `holdings` are the unit's, of
    whichever run; `used_at_end` is what was in use right after the end. GPUs of an unknown set are those that the run
    was seen on.

    Memory alone is enough, and costs no process lists, which take the driver's lock on all GPUs: what the run held
    goes down to what others hold, whoever of its processes lives longest, and also where no process is left and the
    driver still is at it. It is not enough where others share a GPU. One that grows meanwhile by more than
    policy.resident hides that the memory is back: then there is no time. One that gives memory back meanwhile makes
    it seem back too early, by as much.
    """
    seen = holdings if holdings is not None and holdings.invocation_id == invocation_id else None
    uuids: tuple[GpuUuid, ...] = gpus.value if isinstance(gpus, Ok) else ()
    if seen is not None:
        on = [uuid for uuid, own in seen.own_bytes.items() if own > policy.resident_bytes]
        uuids = tuple(uuid for uuid in on if not isinstance(gpus, Ok) or uuid in uuids)
    others = seen.others_bytes if seen is not None else {}
    targets = {uuid: others.get(uuid, 0) + policy.resident_bytes for uuid in uuids}
    above = {uuid: target for uuid, target in targets.items() if used_at_end.get(uuid, 0) > target}
    if not above:
        return None
    return ReleaseWatch(unit=unit, invocation_id=invocation_id, ended_monotonic=ended_monotonic, back_at_bytes=above)


def is_back(watch: ReleaseWatch, used_bytes: Mapping[GpuUuid, int]) -> bool | None:
    """Say whether the memory is back on every GPU; None where a GPU that would decide does not tell."""
    if any(used_bytes.get(uuid, 0) > target for uuid, target in watch.back_at_bytes.items()):
        return False
    return True if watch.back_at_bytes.keys() <= used_bytes.keys() else None
