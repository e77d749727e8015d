"""Shared-memory segments in the history: the unit whose processes held each last, and since when it is unheld."""

from collections.abc import Mapping

from llmhost.derive.history.bounds import MAX_SEGMENTS, newest
from llmhost.model.ids import ProcessId, RunId, UnitId
from llmhost.model.reading import Ok
from llmhost.model.segment import Segment, SegmentId, SharedMemory
from llmhost.model.snapshot import Snapshot


def next_segment_units(
    before: Mapping[SegmentId, UnitId], snapshot: Snapshot, process_runs: Mapping[ProcessId, RunId]
) -> Mapping[SegmentId, UnitId]:
    """Note the watched unit whose processes hold a segment; it stays for as long as the segment is listed."""
    if not isinstance(snapshot.shm, Ok):
        return before
    table = snapshot.processes.value if isinstance(snapshot.processes, Ok) else None
    watched = {unit.id for unit in snapshot.watched_units}

    def holding(segment: Segment) -> set[UnitId]:
        units: set[UnitId] = set()
        for holder in segment.holders or ():
            run = process_runs.get(holder)
            process = table.of(holder) if table is not None else None
            if run is not None:
                units.add(run.unit)
            elif process is not None and process.placement.unit in watched:
                units.add(process.placement.unit)
        return units

    listed = {segment.id: segment for segment in snapshot.shm.value.segments}
    found = {segment: unit for segment, unit in before.items() if segment in listed}
    for segment in listed.values():
        units = holding(segment)
        if units and found.get(segment.id) not in units:
            found[segment.id] = min(units)  # segments of engines have one; of several, always the same one
    return newest(found, MAX_SEGMENTS)


def next_unheld(
    since: Mapping[SegmentId, float], changed_at: Mapping[SegmentId, float], shared: SharedMemory
) -> tuple[Mapping[SegmentId, float], Mapping[SegmentId, float]]:
    """Carry on since when each segment is unheld; gives those times, and when each was changed last.

    A segment that has a holder, or may have one, starts anew. So does one that has changed since: a process had it
    between the observations, or it is a new one with the inode number of an old one.
    """
    unheld = [segment for segment in shared.segments if segment.holders is not None and not segment.holders]
    next_since = {
        segment.id: min(since.get(segment.id, segment.inspected_at), segment.inspected_at)
        if changed_at.get(segment.id) == segment.changed_at
        else segment.inspected_at
        for segment in unheld
    }
    return next_since, {segment.id: segment.changed_at for segment in unheld}
