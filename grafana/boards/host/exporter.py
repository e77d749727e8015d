"""The host board's exporter: its collectors, its version, and what it cannot read."""

from grafana.kit.causes import OF_COLLECTORS, OK_OR_CAUSE, ok_or_cause
from grafana.kit.panels import (
    COLOURED_TEXT,
    HIDDEN,
    NOT_KNOWN,
    Json,
    override,
    state_timeline,
    table,
    target,
    timeseries,
    value_mappings,
)
from grafana.kit.queries import BAD, BY_HOST, GOOD, HOST, or_cannot_tell, scraped


def collectors_over_time() -> Json:
    return state_timeline(
        "Whether collectors succeed",
        "Whether the exporter could read each of its sources, and if not, why. A gap: the exporter was not scraped.",
        [
            target(
                ok_or_cause(
                    "llmhost_collector_success",
                    "llmhost_collector_fault",
                    HOST,
                    f"{BY_HOST}, collector",
                    OF_COLLECTORS,
                ),
                "{{instance}} {{collector}}",
            )
        ],
        OK_OR_CAUSE,
    )


def exporters_now() -> Json:
    rows = f"max by ({BY_HOST}) ({scraped(HOST)})"
    version = f"max by ({BY_HOST}, version, revision, python_version) (llmhost_build_info{{{HOST}}})"

    def most(metric: str, factor: int = 1) -> str:
        value = f"max by ({BY_HOST}) ({metric}{{{HOST}}})" + (f" * {factor}" if factor != 1 else "")
        return or_cannot_tell(value, rows)

    coloured = {"custom__cellOptions": dict(COLOURED_TEXT)}
    return table(
        "Exporters now",
        "One row for each host. Config: the last reload of the file, and since when what is in force is. Driver: "
        "whether the NVML library on disk is the loaded driver's. `n/a`: not told, as of hosts that are not scraped.",
        [
            ("scraped", rows),
            ("build", version),
            ("config", most("llmhost_config_reload_success")),
            ("config in force", most("llmhost_config_reload_last_success_timestamp_seconds", 1000)),
            ("driver", most("llmhost_driver_mismatch")),
        ],
        shown=("instance", "version", "revision", "python_version"),
        names={"python_version": "Python"},
        overrides=[
            override("^build$", **HIDDEN),
            override("^instance$", custom__minWidth=130),
            override(
                "^scraped$", mappings=value_mappings({0: ("NO", BAD), 1: ("yes", GOOD)}), custom__width=75, **coloured
            ),
            override("^(version|revision|Python)$", custom__width=70),
            override(
                "^config$",
                mappings=[*value_mappings({0: ("bad, old one runs", BAD), 1: ("good", GOOD)}), *NOT_KNOWN],
                custom__width=120,
                **coloured,
            ),
            override("^config in force$", unit="dateTimeFromNow", mappings=NOT_KNOWN, custom__width=110),
            override(
                "^driver$",
                mappings=[
                    *value_mappings({0: ("as the library", GOOD), 1: ("upgraded: starts fail", BAD)}),
                    *NOT_KNOWN,
                ],
                custom__width=160,
                **coloured,
            ),
        ],
        sort=("instance", False),
    )


def health() -> list[Json]:
    def seconds(metric: str) -> str:
        return f"max by ({BY_HOST}, collector) ({metric}{{{HOST}}})"

    last = seconds("llmhost_collector_last_success_timestamp_seconds")
    dropped = f"sum by ({BY_HOST}, family) (rate(llmhost_dropped_series_total{{{HOST}}}[$__rate_interval]))"
    return [
        timeseries(
            "How long collectors take",
            "Their last attempts, also where they failed. A gap: not scraped.",
            [target(seconds("llmhost_collector_duration_seconds"), "{{instance}} {{collector}}")],
            unit="s",
            calcs=(),
        ),
        timeseries(
            "Since collectors last succeeded",
            "A line that climbs is a collector that fails. A gap: not scraped, or it has never succeeded.",
            [target(f"time() - {last}", "{{instance}} {{collector}}")],
            unit="s",
            calcs=(),
        ),
        timeseries(
            "Processes that cannot be read in full",
            "Files in shared memory and trackers may be of unknown state then. A gap: not scraped.",
            [target(f"max by ({BY_HOST}) (llmhost_unreadable_processes{{{HOST}}})", "{{instance}}")],
            unit="none",
        ),
        timeseries(
            "Series left out, per second",
            "Their family was over its bound. No data: none since the exporter started, or it is not scraped.",
            [target(dropped, "{{instance}} {{family}}")],
            unit="none",
        ),
    ]
