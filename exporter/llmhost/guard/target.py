"""What the guard waits for, and for how long."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from llmhost.model.ids import UnitId
from llmhost.model.unit import Unit

OWN_LIMIT = "--timeout"
_USUAL_START_SECONDS = 90.0  # systemd-system.conf(5), DefaultTimeoutStartSec=, while the unit's own is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    unit: UnitId | None
    is_own: bool  # this process is in it
    stand_in: Unit  # what is started where there is no unit
    needs_systemd: bool  # to know what the unit needs
    fault: str = ""  # why nobody can say which unit it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait. Times are on the monotonic clock."""

    began: float
    timeout_seconds: float
    may_extend: bool  # systemd takes our word for it that the start needs longer
    control_began: Callable[[int], float]  # when a process started

    def until(self, unit: Unit | None, *, is_own: bool) -> tuple[float, str]:
        """Say when the wait ends, and what says so.

        TimeoutStartSec= counts for each command anew (systemd.service(5)), from the start of the command's process.
        """
        own = self.began + self.timeout_seconds, OWN_LIMIT
        if not is_own or self.may_extend:
            return own
        if unit is None or unit.settings is None:
            start, command = _USUAL_START_SECONDS, os.getpid()
        elif unit.active_state != "activating" or unit.settings.start_timeout_seconds is None:
            return own
        else:
            start, command = unit.settings.start_timeout_seconds, unit.control_pid or os.getpid()
        margin = margin_seconds(start)
        by_systemd = min(self.began, self.control_began(command)) + start - margin
        if by_systemd >= own[0]:
            return own
        hint = "NotifyAccess=exec lets the guard extend it"
        return by_systemd, f"{margin:g} s before TimeoutStartSec={start:g}s would end it; {hint}"


def margin_seconds(start_timeout_seconds: float) -> float:
    """Give the time that is left for saying why, before systemd's own limit."""
    return min(5.0, max(0.5, start_timeout_seconds / 10))
