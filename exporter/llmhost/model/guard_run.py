"""Records of guard runs, one for each unit: the last verdict, and the number of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from llmhost.model.ids import UnitId


class GuardVerdict(StrEnum):
    """Label values of `llmhost_guard_last_verdict`: change none."""

    FREE = "free"
    HELD = "held"
    UNKNOWN = "unknown"  # the driver does not answer
    FAULT = "fault"  # the guard's own, or no systemd to ask


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRun:
    unit: UnitId
    at: float  # when the last run ended, in seconds since the epoch
    wait_seconds: float  # of the last run
    verdict: GuardVerdict  # of the last run
    runs_total: Mapping[GuardVerdict, int]  # in this boot
