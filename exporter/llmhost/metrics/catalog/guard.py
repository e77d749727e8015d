"""What the guards of units have found, from the records that they leave in the run directory."""

from llmhost.metrics.catalog.declare import Kind, Mode, of_guard

GUARD_LAST_RUN = of_guard("last_run_timestamp_seconds", "When the unit's guard last ended. Absent: not in this boot.")
GUARD_LAST_WAIT = of_guard("last_wait_seconds", "How long the unit's guard waited when it last ran.")
GUARD_LAST_VERDICT = of_guard(
    "last_verdict",
    "What the unit's guard found when it last ran, value 1. free: the start could go on. held: memory was not free in "
    "time. unknown: the driver could not serve. fault: the guard itself could not tell.",
    "verdict",
    mode=Mode.CURRENT,
)
GUARD_RUNS = of_guard(
    "runs_total", "Runs of the unit's guard in this boot.", "verdict", kind=Kind.COUNTER, mode=Mode.ALL
)
