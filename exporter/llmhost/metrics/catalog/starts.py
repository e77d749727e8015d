"""The history of units: starts, ends of runs, and time in each state."""

from llmhost.metrics.catalog.declare import MetricKind, Mode, of_past

UNIT_STARTS = of_past(
    "starts_total",
    "Start attempts since the unit was first seen, including those between scrapes. Counted once the verdict is known.",
    "trigger",
    "verdict",
    kind=MetricKind.COUNTER,
    mode=Mode.ALL,
)
UNIT_LAST_START = of_past("last_start_timestamp_seconds", "Time of the last start attempt. Absent: none is known.")
UNIT_LAST_RESIDENT_START = of_past(
    "last_resident_start_timestamp_seconds", "Time of the last start with verdict resident. Absent: none is known."
)
UNIT_IN_THE_WAY = of_past(
    "last_start_in_the_way_bytes",
    "Memory of others on a GPU of the unit at its last start with verdict clean or resident, by kind of holder or "
    "unattributed. Absent: there was none, or no such start is known.",
    "gpu",
    "uuid",
    "kind",
    mode=Mode.SPARSE,
)
UNIT_SHORT = of_past(
    "last_start_short_bytes",
    "How much less memory was free on a GPU of the unit than it needs at its last start with verdict clean or "
    "resident, whoever held it. 0: enough was free. Absent: the need is unknown, or no such start is known.",
    "gpu",
    "uuid",
)
UNIT_RESTARTS_SHORT = of_past(
    "restarts_short_of_memory",
    "1: each automatic start that failed since the unit was last well had found less memory free than it needs. 0: one "
    "of them had enough, so that memory alone does not explain its restarts. Absent: known of none.",
)
UNIT_FAILURES = of_past(
    "failures_total",
    "Runs and start attempts with a result other than success since the unit was first seen.",
    "result",
    kind=MetricKind.COUNTER,
    mode=Mode.ALL,
)
UNIT_LAST_FAILURE = of_past(
    "last_failure_timestamp_seconds",
    "Time of the last end of a run or start attempt with a result other than success, by cause. Absent: none is known.",
    "cause",
    mode=Mode.CURRENT,
)
UNIT_UNEXPECTED_STOPS = of_past(
    "unexpected_stops_total",
    "Runs that ended with success without a stop or restart job, since the unit was first seen. Type=oneshot excluded.",
    kind=MetricKind.COUNTER,
)
UNIT_STATE_SECONDS = of_past(
    "state_seconds_total",
    "Time in each ActiveState since the unit was first seen, with auto_restart and start_pre as states of their own. "
    "Time in which a change of state was missed is left out.",
    "state",
    kind=MetricKind.COUNTER,
    mode=Mode.ALL,
)
UNIT_GIVES_UP = of_past(
    "gives_up",
    "1: if the unit keeps failing, its start limit will stop it. 0: the limit can never trip, given the length of its "
    "runs so far. Absent: unknown.",
)
UNIT_START_LIMIT_HIT = of_past(
    "start_limit_hit",
    "1: the unit has failed because its start limit was hit, and systemd has given up. systemd's Result= then stays "
    "that of the last run. 0: not so. Absent: unknown.",
)
UNIT_LAST_RELEASE = of_past(
    "last_release_seconds",
    "Time from the end of a run until its GPU memory was free again, last measured: longer than at once, within 3 "
    "minutes. Absent: never measured.",
)
