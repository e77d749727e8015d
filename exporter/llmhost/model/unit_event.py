"""What a watched unit became, in the order in which it did."""

from dataclasses import dataclass

from llmhost.model.unit import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitEvent:
    """A unit as it is from one moment on.

    Events of one unit come in order, and a unit that changed has one for each change that systemd told of. With `gap`
    something may have happened since the event before of which nobody was told: the connection was lost, the exporter
    did not run, or the unit is seen for the first time.
    """

    unit: Unit
    at: float  # when we learnt of it, seconds since the epoch
    at_monotonic: float  # the same on CLOCK_MONOTONIC
    gap: bool
