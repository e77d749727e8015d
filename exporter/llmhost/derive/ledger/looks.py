"""What one look at the host adds to the ledger."""

from dataclasses import replace

from llmhost.derive.ledger.ledger import Ledger
from llmhost.derive.orphans import advance_orphans, processes_read_at
from llmhost.derive.readiness import advance_readiness
from llmhost.derive.segments import advance_unheld, unheld_changed_at
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.snapshot import Snapshot


def advance(ledger: Ledger, snapshot: Snapshot) -> Ledger:
    """Take in one look. A look that failed is no look: what it would have told stays as it was.

    A look at shared memory that came too late is one, of which nobody knows what it told: a holder maybe.
    """
    if isinstance(snapshot.shm, Failed) and snapshot.shm.cause is Cause.TIMEOUT:
        ledger = replace(ledger, unheld_since={}, unheld_changed_at={})
    if isinstance(snapshot.shm, Ok) and snapshot.shm.value.read_at >= ledger.shm_at:  # two may look at once
        ledger = replace(
            ledger,
            shm_at=snapshot.shm.value.read_at,
            unheld_since=advance_unheld(ledger.unheld_since, ledger.unheld_changed_at, snapshot.shm.value),
            unheld_changed_at=unheld_changed_at(snapshot.shm.value),
        )
    if isinstance(snapshot.processes, Ok):
        at = processes_read_at(snapshot)
        if ledger.processes_at is None or at >= ledger.processes_at:
            ledger = replace(
                ledger,
                processes_since=at if ledger.processes_since is None else ledger.processes_since,
                processes_at=at,
                orphan_since=advance_orphans(ledger.orphan_since, snapshot),
            )
    return replace(ledger, readiness=advance_readiness(ledger.readiness, snapshot))
