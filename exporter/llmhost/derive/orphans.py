"""Engine processes that have outlived what they belong to."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmhost.config.schema import Policy
from llmhost.model.ids import ProcessId
from llmhost.model.process import Process
from llmhost.model.reading import NotApplicable, Reading
from llmhost.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    process: Process
    engine: str  # "none" where it is not known, as for a bare spawn_main
    seconds: float  # for how long it has been in that condition at every look
    inferred: bool  # told without the privilege to look at pipes


def orphan_conditions(snapshot: Snapshot) -> Reading[Mapping[ProcessId, bool]]:
    """Find every process in an orphan's condition at this look; the value says whether that is inferred."""
    return NotApplicable(f"not built yet {snapshot.at}")


def orphans(snapshot: Snapshot, orphan_since: Mapping[ProcessId, float], policy: Policy) -> Reading[tuple[Orphan, ...]]:
    """Orphans are those that have been in that condition for the grace time."""
    return NotApplicable(f"not built yet {policy} {orphan_since} {snapshot}")


def advance_orphans(since: Mapping[ProcessId, float], snapshot: Snapshot) -> Mapping[ProcessId, float]:
    """Carry on since when each process is in that condition."""
    return since if snapshot.at else {}
