"""Whether the files of shared memory are in use, left over, or nobody can tell."""

from collections.abc import Mapping
from enum import StrEnum

from llmhost.config.schema import Policy
from llmhost.model.process import ProcessTable
from llmhost.model.reading import Ok, Reading, mapped
from llmhost.model.segment import Segment, SegmentId, SharedMemory


class SegmentState(StrEnum):
    LIVE = "live"  # open or mapped in some process
    STALE = "stale"  # held by nobody at every look for at least the grace time
    UNHELD = "unheld"  # held by nobody, not yet for that long: in flight by name, or its tree is on its way out
    UNKNOWN = "unknown"  # it cannot be told: a process could not be inspected, or nobody looked since


def segment_states(
    shared: Reading[SharedMemory],
    unheld_since: Mapping[SegmentId, float],
    processes: Reading[ProcessTable],
    policy: Policy,
) -> Reading[Mapping[SegmentId, SegmentState]]:
    """Say of every file in what state it is.

    A file whose name carries its creator's pid is not stale while there is a process of that pid, or nobody knows: it
    may be handed on by name for as long (joblib's folders). A pid that is reused keeps it unheld, which does no harm.
    """

    def state(segment: Segment) -> SegmentState:
        found = _state(segment, unheld_since, policy.segment_grace_seconds)
        if found is SegmentState.STALE and segment.creator_pid is not None and not has_ended(segment.creator_pid):
            return SegmentState.UNHELD
        return found

    def has_ended(pid: int) -> bool:
        if not isinstance(processes, Ok):
            return False
        creator = processes.value.by_pid.get(pid)
        return (creator is None or creator.zombie) and pid not in processes.value.denied

    return mapped(shared, lambda seen: {one.id: state(one) for one in seen.segments})


def _state(segment: Segment, unheld_since: Mapping[SegmentId, float], grace_seconds: float) -> SegmentState:
    if segment.holders is None:
        return SegmentState.UNKNOWN
    if segment.holders:
        return SegmentState.LIVE
    since = unheld_since.get(segment.id, segment.inspected_at)
    return SegmentState.STALE if segment.inspected_at - since >= grace_seconds else SegmentState.UNHELD
