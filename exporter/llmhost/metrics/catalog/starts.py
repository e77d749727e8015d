"""What is remembered of units: their starts, how those ended, and the time in each state."""

from llmhost.metrics.catalog.declare import Kind, Mode, of_past

UNIT_STARTS = of_past(
    "starts_total",
    "Start attempts since the unit was first seen, also those between two scrapes, each once its verdict is known.",
    "trigger",
    "verdict",
    kind=Kind.COUNTER,
    mode=Mode.ALL,
)
UNIT_LAST_START = of_past(
    "last_start_timestamp_seconds", "When the last start attempt began. Absent: none is remembered."
)
UNIT_LAST_RESIDENT_START = of_past(
    "last_resident_start_timestamp_seconds",
    "When the last start that found memory in its way began. Absent: none is remembered.",
)
UNIT_IN_THE_WAY = of_past(
    "last_start_in_the_way_bytes",
    "Memory that the last start with verdict clean or resident found on a GPU of the unit and that was not its own, by "
    "kind of holder, or unattributed. Absent: nothing was seen there, or no such start is remembered.",
    "gpu",
    "uuid",
    "kind",
    mode=Mode.SPARSE,
)
UNIT_FAILURES = of_past(
    "failures_total",
    "Runs, and attempts at one, that ended in a result other than success since the unit was first seen.",
    "result",
    kind=Kind.COUNTER,
    mode=Mode.ALL,
)
UNIT_LAST_FAILURE = of_past(
    "last_failure_timestamp_seconds",
    "When a run, or an attempt at one, last ended in a result other than success, with its cause. Absent: none is "
    "remembered.",
    "cause",
    mode=Mode.CURRENT,
)
UNIT_UNEXPECTED_STOPS = of_past(
    "unexpected_stops_total",
    "Runs that ended with success though no job of systemd's asked for it, since the unit was first seen; none of "
    "Type=oneshot.",
    kind=Kind.COUNTER,
)
UNIT_STATE_SECONDS = of_past(
    "state_seconds_total",
    "Time spent in each ActiveState since the unit was first seen, auto_restart and start_pre by themselves; not what "
    "passed unseen while the state changed.",
    "state",
    kind=Kind.COUNTER,
    mode=Mode.ALL,
)
UNIT_GIVES_UP = of_past(
    "gives_up",
    "1: when it fails again and again, its start limit will stop it. 0: that limit can never trip, as long as its runs "
    "take as long as they did. Absent: it cannot be told.",
)
UNIT_LAST_RELEASE = of_past(
    "last_release_seconds",
    "How long the GPUs' memory took to come back after the end of the last run of which that was seen: not back at "
    "once, but within 3 minutes. Absent: it was never seen.",
)
