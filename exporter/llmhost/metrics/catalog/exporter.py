"""The exporter itself."""

from llmhost.metrics.catalog.declare import MetricKind, Mode, of_exporter

COLLECTOR_SUCCESS = of_exporter("collector_success", "1: the collector's last attempt succeeded.", "collector")
COLLECTOR_FAULT = of_exporter(
    "collector_fault", "Cause of the collector's failure, value 1.", "collector", "cause", mode=Mode.CURRENT
)
COLLECTOR_DURATION = of_exporter("collector_duration_seconds", "Duration of the collector's last attempt.", "collector")
COLLECTOR_LAST_SUCCESS = of_exporter(
    "collector_last_success_timestamp_seconds", "Time of the collector's last success. Absent until then.", "collector"
)
COLLECTOR_FAILURES = of_exporter(
    "collector_failures_total",
    "Failed attempts of the collector since the exporter started.",
    "collector",
    "cause",
    kind=MetricKind.COUNTER,
    mode=Mode.SPARSE,
)
CONFIG_RELOAD_SUCCESS = of_exporter(
    "config_reload_success",
    "1: the last config reload succeeded. 0: the file is invalid, and the previous config stays in force.",
)
CONFIG_LAST_SUCCESS = of_exporter("config_reload_last_success_timestamp_seconds", "Load time of the config in force.")
UNREADABLE_PROCESSES = of_exporter("unreadable_processes", "Processes that could not be read completely.")
DROPPED_SERIES = of_exporter(
    "dropped_series_total",
    "Series dropped because their family exceeded its limit.",
    "family",
    kind=MetricKind.COUNTER,
    mode=Mode.SPARSE,
)
RESYNCS = of_exporter(
    "resyncs_total",
    "Complete re-reads of all unit states, after the bus or systemd came back or was reloaded.",
    "reason",
    kind=MetricKind.COUNTER,
    mode=Mode.SPARSE,
)
POLICY_RESIDENT = of_exporter(
    "policy_resident_bytes", "policy.resident: memory of others on a GPU above which a start is not clean."
)
POLICY_SEGMENT_GRACE = of_exporter(
    "policy_segment_grace_seconds", "policy.segment_grace: time without a holder after which a segment is stale."
)
POLICY_ORPHAN_GRACE = of_exporter(
    "policy_orphan_grace_seconds",
    "policy.orphan_grace: time in an orphan's condition after which a process is an orphan.",
)
POLICY_UTILIZATION = of_exporter(
    "policy_utilization_ratio",
    "policy.utilization: share of GPU memory that vLLM needs without --gpu-memory-utilization.",
)
POLICY_READY = of_exporter("policy_ready_seconds", "policy.ready: load time that every engine is allowed.")
BUILD_INFO = of_exporter("build_info", "Version of the exporter, value 1.", "version", "revision", "python_version")
