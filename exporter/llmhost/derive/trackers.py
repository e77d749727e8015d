"""Python's resource trackers, and whether their creators live."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum

from llmhost.model.ids import ProcessId
from llmhost.model.process import ProcessTable


class TrackerState(StrEnum):
    """States of a resource tracker (docs/design.md: Tracker)."""

    ATTACHED = "attached"  # its present parent holds its pipe
    ORPHANED = "orphaned"  # the creator is gone, a descendant keeps the pipe open
    DETACHED = "detached"  # orphaned, but every other holder of the pipe is healthy: a daemonised program
    ZOMBIE = "zombie"


def tracker_states(processes: ProcessTable, orphans: AbstractSet[ProcessId]) -> Mapping[ProcessId, TrackerState]:
    return {one: TrackerState.ZOMBIE for one in orphans if processes.of(one) is None}  # not built yet
