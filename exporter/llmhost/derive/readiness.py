"""The time that a unit's next start may take until its engine answers."""

from llmhost.config.schema import Policy
from llmhost.model.history.history import Readiness

_TIMES_THE_LONGEST = 3


def ready_budget_seconds(readiness: Readiness | None, policy: Policy) -> float:
    """Give 3 × the longest of the last ten starts, and never less than policy.ready."""
    past = readiness.past_seconds if readiness is not None else ()
    return max(policy.ready_seconds, _TIMES_THE_LONGEST * max(past, default=0.0))
