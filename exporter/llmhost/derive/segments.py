"""States of shared-memory segments: in use, left over, or unknown. Pure.

Since when a segment is unheld is in the history (history/segments). Nothing is removed by its state alone: what may go
is decided in decide/cleanup/segments and decide/guard/remedies.
"""

from collections.abc import Mapping
from enum import StrEnum

from llmhost.config.schema import Policy
from llmhost.model.process import ProcessTable
from llmhost.model.reading import Ok, Reading, mapped
from llmhost.model.segment import Segment, SegmentId, SharedMemory


class SegmentState(StrEnum):
    LIVE = "live"  # open or mapped in some process
    STALE = "stale"  # unheld at every observation for at least the grace time
    UNHELD = "unheld"  # not yet for that long: handed on by name, or its processes are just ending
    UNKNOWN = "unknown"  # a process could not be inspected, or none was since


def segment_states(
    shared: Reading[SharedMemory],
    unheld_since: Mapping[SegmentId, float],
    processes: Reading[ProcessTable],
    policy: Policy,
) -> Reading[Mapping[SegmentId, SegmentState]]:
    """Give the state of every segment.

    A segment whose name has its creator's pid is not stale while there is a process of that pid, or may be: until then
    it may be handed on by name (joblib's folders). A pid that is reused keeps it unheld, which does no harm.
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

    return mapped(shared, lambda found: {segment.id: state(segment) for segment in found.segments})


def _state(segment: Segment, unheld_since: Mapping[SegmentId, float], grace_seconds: float) -> SegmentState:
    if segment.holders is None:
        return SegmentState.UNKNOWN
    if segment.holders:
        return SegmentState.LIVE
    since = unheld_since.get(segment.id, segment.inspected_at)
    return SegmentState.STALE if segment.inspected_at - since >= grace_seconds else SegmentState.UNHELD
