"""A history as observations make it."""

from llmhost.config.schema import Policy
from llmhost.derive.history.observations import with_observation
from llmhost.model.history.history import History
from llmhost.model.snapshot import Snapshot


def observed(*snapshots: Snapshot, history: History | None = None) -> History:
    """Take in snapshots, one after the other."""
    history = history or History()
    for snapshot in snapshots:
        history = with_observation(history, snapshot, Policy())
    return history
