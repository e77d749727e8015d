"""The memory release of a run that has ended: on which GPUs to wait for it, and when the memory is back."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmhost.config.schema import Policy
from llmhost.derive.gpu_set import GpuSet
from llmhost.model.history.history import Holdings
from llmhost.model.ids import GpuUuid, RunId
from llmhost.model.reading import Ok, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRelease:
    """The memory of a run that has ended and is not back yet."""

    run: RunId
    ended_monotonic: float
    back_at_bytes: Mapping[GpuUuid, int]  # with so much in use on it, or less, the GPU's memory counts as back
    lowest_bytes: Mapping[GpuUuid, int]  # in use on the same GPUs since the end
    margin_bytes: int  # policy.resident: what is no more than that counts as nothing


def pending_release(
    run: RunId,
    ended_monotonic: float,
    *,
    gpus: Reading[GpuSet],
    used_at_end: Mapping[GpuUuid, int],
    holdings: Holdings | None,
    policy: Policy,
) -> PendingRelease | None:
    """Find the GPUs to wait for; None where nothing of the run can be there any more.

    A GPU's memory is back when no more is in use on it than others had there at the last observation of this run, plus
    policy.resident. A GPU is not waited for where the run held no more than policy.resident at that observation: what
    is in use there may be what the run found. Where no observation has the run, others count as having nothing.
    `holdings` are the unit's, of whichever run; `used_at_end` is what was in use right after the end. Where the GPU set
    is unknown, the GPUs on which the run held memory count.

    Memory in use alone is enough, and needs no process lists, which take the driver's lock on all GPUs. It falls to
    what others hold, whichever process of the run lives longest, also where the driver is still releasing memory of
    processes that are gone. Where others share a GPU and their memory changes meanwhile by more than policy.resident,
    there is no time (after_reading).
    """
    held = holdings if holdings is not None and holdings.invocation_id == run.invocation_id else None
    uuids: tuple[GpuUuid, ...] = gpus.value if isinstance(gpus, Ok) else ()
    if held is not None:
        on = [uuid for uuid, own in held.own_bytes.items() if own > policy.resident_bytes]
        uuids = tuple(uuid for uuid in on if not isinstance(gpus, Ok) or uuid in uuids)
    others_bytes = held.others_bytes if held is not None else {}
    targets = {uuid: others_bytes.get(uuid, 0) + policy.resident_bytes for uuid in uuids}
    above = {uuid: target for uuid, target in targets.items() if used_at_end.get(uuid, 0) > target}
    if not above:
        return None
    return PendingRelease(
        run=run,
        ended_monotonic=ended_monotonic,
        back_at_bytes=above,
        lowest_bytes={uuid: used_at_end[uuid] for uuid in above},
        margin_bytes=policy.resident_bytes,
    )


def after_reading(release: PendingRelease, used_bytes: Mapping[GpuUuid, int]) -> PendingRelease | None:
    """Give what is still waited for; None where memory of others has changed meanwhile, so that no time is known.

    A GPU whose memory is back is not waited for any more, whoever takes it then. Less in use than others had at the
    last observation, or more than was in use a moment ago, is others' doing. A GPU that does not answer is waited for.
    """
    waiting: dict[GpuUuid, int] = {}
    lowest: dict[GpuUuid, int] = {}
    for uuid, target in release.back_at_bytes.items():
        before, now = release.lowest_bytes[uuid], used_bytes.get(uuid)
        if now is not None and (now > before + release.margin_bytes or now < target - 2 * release.margin_bytes):
            return None
        if now is None or now > target:
            waiting[uuid], lowest[uuid] = target, before if now is None else min(before, now)
    return replace(release, back_at_bytes=waiting, lowest_bytes=lowest)
