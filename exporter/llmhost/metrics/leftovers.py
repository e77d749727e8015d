"""Series of shared-memory segments and resource trackers. Pure."""

from collections import Counter

from llmhost.derive.segments import SegmentState
from llmhost.derive.trackers import TrackerState
from llmhost.metrics import catalog
from llmhost.metrics.page import Page
from llmhost.metrics.view import PageView
from llmhost.model.process import Role
from llmhost.model.reading import Ok
from llmhost.model.segment import Segment, SegmentKind


def shm_series(view: PageView, page: Page) -> None:
    shared, states = view.host.snapshot.shm, view.host.facts.segments
    if not isinstance(shared, Ok) or not isinstance(states, Ok):
        return
    found: dict[SegmentKind, dict[SegmentState, list[Segment]]] = {}
    for segment in shared.value.segments:
        found.setdefault(segment.kind, {}).setdefault(states.value[segment.id], []).append(segment)
    for kind in sorted(found):
        for state in SegmentState:
            if shared.value.unlisted and state not in found[kind]:
                continue  # there may be some among those that are not listed
            segments = found[kind].get(state, [])
            page.add(catalog.SHM_SEGMENTS, len(segments), kind=kind, state=state)
            page.add(
                catalog.SHM_SEGMENT_BYTES, sum(segment.allocated_bytes for segment in segments), kind=kind, state=state
            )
            page.add(
                catalog.SHM_SEGMENT_APPARENT, sum(segment.size_bytes for segment in segments), kind=kind, state=state
            )
    listed = sum(segment.allocated_bytes for segment in shared.value.segments)
    page.add(catalog.SHM_SIZE, shared.value.size_bytes)
    page.add(catalog.SHM_USED, shared.value.used_bytes)
    page.add(catalog.SHM_UNLISTED, shared.value.unlisted)
    if not shared.value.unlisted and shared.value.used_bytes is not None:
        page.add(catalog.SHM_HIDDEN, max(0, shared.value.used_bytes - listed))
    page.add(catalog.SHM_INODES, shared.value.inodes)
    page.add(catalog.SHM_INODES_USED, shared.value.inodes_used)


def tracker_series(view: PageView, page: Page) -> None:
    trackers, orphans = view.host.facts.trackers, view.host.facts.orphans
    if isinstance(trackers, Ok):
        states = Counter(trackers.value.values())
        for state in TrackerState:
            if not states[state] and _has_unknown_tracker(view):
                continue  # it may be in this state
            page.add(catalog.RESOURCE_TRACKERS, states[state], state=state)
    if isinstance(orphans, Ok):
        count = Counter((orphan.engine, str(orphan.process.role)) for orphan in orphans.value)
        for engine, role in sorted(count):
            page.add(catalog.ORPHAN_PROCESSES, count[engine, role], engine=engine, role=role)
        if not count:
            page.add(catalog.ORPHAN_PROCESSES, 0, engine="none", role="none")
        page.add(catalog.ORPHAN_OLDEST, max((orphan.seconds for orphan in orphans.value), default=None))


def _has_unknown_tracker(view: PageView) -> bool:
    """Tell if there is a tracker of unknown state."""
    processes, trackers = view.host.snapshot.processes, view.host.facts.trackers
    if not isinstance(processes, Ok) or not isinstance(trackers, Ok):
        return True
    found = processes.value.by_pid.values()
    return any(process.role is Role.TRACKER and process.id not in trackers.value for process in found)
