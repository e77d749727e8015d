"""The exporter itself."""

from llmhost.metrics.catalog.declare import Kind, Mode, of_exporter

COLLECTOR_SUCCESS = of_exporter("collector_success", "1: the collector read everything it is there for.", "collector")
COLLECTOR_FAULT = of_exporter(
    "collector_fault", "Why the collector failed, value 1.", "collector", "cause", mode=Mode.CURRENT
)
COLLECTOR_DURATION = of_exporter("collector_duration_seconds", "Time of the collector's last attempt.", "collector")
COLLECTOR_LAST_SUCCESS = of_exporter(
    "collector_last_success_timestamp_seconds",
    "When the collector last succeeded; absent until it has.",
    "collector",
)
COLLECTOR_FAILURES = of_exporter(
    "collector_failures_total",
    "Failed attempts of the collector since the exporter started.",
    "collector",
    "cause",
    kind=Kind.COUNTER,
    mode=Mode.SPARSE,
)
CONFIG_RELOAD_SUCCESS = of_exporter(
    "config_reload_success", "1: the last reload of the config took effect. 0: the file is bad, the old one runs on."
)
CONFIG_LAST_SUCCESS = of_exporter(
    "config_reload_last_success_timestamp_seconds", "When the config in force was loaded."
)
UNREADABLE_PROCESSES = of_exporter("unreadable_processes", "Processes of which something could not be read.")
DROPPED_SERIES = of_exporter(
    "dropped_series_total",
    "Series left out because their family was over its bound.",
    "family",
    kind=Kind.COUNTER,
    mode=Mode.SPARSE,
)
RESYNCS = of_exporter(
    "resyncs_total",
    "Times that all unit states were read anew because the bus or systemd came back or reloaded.",
    "reason",
    kind=Kind.COUNTER,
    mode=Mode.SPARSE,
)
POLICY_RESIDENT = of_exporter(
    "policy_resident_bytes", "policy.resident: memory of others on a GPU that is too much for a clean start."
)
POLICY_SEGMENT_GRACE = of_exporter(
    "policy_segment_grace_seconds", "policy.segment_grace: a segment is stale when unheld for this long."
)
POLICY_ORPHAN_GRACE = of_exporter(
    "policy_orphan_grace_seconds", "policy.orphan_grace: a process is an orphan when in that condition for this long."
)
POLICY_UTILIZATION = of_exporter(
    "policy_utilization_ratio", "policy.utilization: what vLLM asks for when its arguments do not say."
)
POLICY_READY = of_exporter("policy_ready_seconds", "policy.ready: a load may always take this long.")
BUILD_INFO = of_exporter("build_info", "The exporter's version, value 1.", "version", "revision", "python_version")
