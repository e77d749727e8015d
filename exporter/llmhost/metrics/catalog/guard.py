"""Runs of guards, from their records in the run directory."""

from llmhost.metrics.catalog.declare import MetricKind, Mode, of_guard

GUARD_LAST_RUN = of_guard(
    "last_run_timestamp_seconds", "Time at which the unit's guard last ended. Absent: not in this boot."
)
GUARD_LAST_WAIT = of_guard("last_wait_seconds", "Wait time of the last run of the unit's guard.")
GUARD_LAST_VERDICT = of_guard(
    "last_verdict",
    "Verdict of the last run of the unit's guard, value 1. free: the start went on. held: memory was not free in time. "
    "unknown: the driver could not answer. fault: the guard itself failed.",
    "verdict",
    mode=Mode.CURRENT,
)
GUARD_RUNS = of_guard(
    "runs_total", "Runs of the unit's guard in this boot.", "verdict", kind=MetricKind.COUNTER, mode=Mode.ALL
)
