"""Events of watched units."""

from dataclasses import dataclass

from llmhost.model.unit import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitEvent:
    """A unit as it is from one moment on.

    Events of one unit come in order, one for each change that systemd signals. With `gap` there may have been changes
    since the event before without one: the connection was lost, the exporter did not run, or the unit is new.
    """

    unit: Unit
    at: float  # of its arrival, in seconds since the epoch
    at_monotonic: float  # the same on CLOCK_MONOTONIC
    gap: bool
