"""Of the board of hosts: shared memory and what is left in it, engines, and the exporter itself."""

from grafana.boards import shared
from grafana.kit.causes import OF_COLLECTORS, OF_ENGINES, OK_OR_WHY, ok_or_why
from grafana.kit.panels import (
    COLOURED_TEXT,
    HIDDEN,
    Json,
    colours,
    only,
    state_timeline,
    table,
    target,
    thresholds,
    timeseries,
    values,
)
from grafana.kit.queries import (
    BAD,
    BY_HOST,
    BY_UNIT,
    CALM,
    CANNOT_TELL,
    GOOD,
    HOST,
    ODD,
    SHM_STATES,
    or_cannot_tell,
    scraped,
)


def files_now() -> Json:
    def of(state: str) -> str:
        return f'sum by (kind) (llmhost_shm_segments{{state="{state}", {HOST}}})'

    kinds = f"count by (kind) (llmhost_shm_segments{{{HOST}}})"
    columns = [(state, or_cannot_tell(of(state), kinds)) for state in SHM_STATES]
    sizes = [
        ("allocated", f"sum by (kind) (llmhost_shm_segment_bytes{{{HOST}}})"),
        ("apparent", f"sum by (kind) (llmhost_shm_segment_apparent_bytes{{{HOST}}})"),
    ]
    not_known = values({CANNOT_TELL: ("n/a", CALM)})
    return table(
        "Files in /dev/shm now",
        "Files by kind and state; apparent is their size as `ls -l` shows it. `live`: somebody holds it; `unheld`: "
        "nobody does, for less than policy.segment_grace; `stale`: for longer; `unknown`: not all processes could be "
        "looked at. Empty: there are none, or /dev/shm is not read.",
        [*columns, *sizes],
        shown=("kind",),
        overrides=[
            only("^kind$", custom__minWidth=100),
            *(only(f"^{state}$", mappings=not_known, custom__width=75) for state in SHM_STATES),
            only(
                "^stale$",
                thresholds=thresholds((None, "text"), (1, BAD)),
                custom__cellOptions=dict(COLOURED_TEXT),
            ),
            only("^(allocated|apparent)$", unit="bytes", decimals=1, custom__width=95),
        ],
        sort=("allocated", True),
    )


def files_over_time() -> list[Json]:
    return [
        timeseries(
            "Files in /dev/shm by state",
            "Of all programs, as of the last look at all processes. A gap: there are no files, or /dev/shm is not "
            "read.",
            [target(f"sum by (state) (llmhost_shm_segments{{{HOST}}})", "{{state}}")],
            unit="none",
            stacked=True,
            calcs=(),
            overrides=colours(SHM_STATES),
        ),
        timeseries(
            "Allocated in /dev/shm by kind",
            "What the files take, live or not. A gap: there are no files, or /dev/shm is not read.",
            [target(f"sum by (kind) (llmhost_shm_segment_bytes{{{HOST}}})", "{{kind}}")],
            unit="bytes",
            stacked=True,
            calcs=(),
        ),
    ]


def filling() -> list[Json]:
    used = f"llmhost_shm_used_bytes{{{HOST}}}"
    return [
        timeseries(
            "Used in /dev/shm",
            "The area: files that have a name, and those that are deleted and still held (hidden). The line: its "
            "size. Where not all files can be listed, hidden ones are among the named.",
            [
                target(f"sum({used} - llmhost_shm_hidden_bytes{{{HOST}}} or {used})", "named"),
                target(f"sum(llmhost_shm_hidden_bytes{{{HOST}}})", "hidden", ref="B"),
                target(f"sum(llmhost_shm_size_bytes{{{HOST}}})", "size", ref="C"),
            ],
            unit="bytes",
            stacked=True,
            overrides=[only("^hidden$", color={"fixedColor": ODD, "mode": "fixed"}), shared.line_over("^size$")],
        ),
        timeseries(
            "How full /dev/shm is",
            "Of its size, and of the files that it can have. LlmhostShmFilling fires above 90 %, or where it will be "
            "full within 4 hours. A gap: /dev/shm is not read.",
            [
                target(f"{used} / llmhost_shm_size_bytes{{{HOST}}}", "{{instance}} size"),
                target(
                    f"llmhost_shm_inodes_used{{{HOST}}} / llmhost_shm_inodes{{{HOST}}}", "{{instance}} files", ref="B"
                ),
            ],
            unit="percentunit",
            max=1,
            decimals=1,
            thresholds=thresholds((None, "transparent"), (0.9, BAD)),
            overrides=[only(".", custom__thresholdsStyle={"mode": "dashed"})],
        ),
    ]


def oldest_orphan() -> Json:
    return timeseries(
        "Oldest orphan",
        "For how long it has been one. No data: there is none, or processes cannot be read; the panel beside it says "
        "which.",
        [target(f"max by ({BY_HOST}) (llmhost_orphan_oldest_seconds{{{HOST}}})", "{{instance}}")],
        unit="s",
    )


def engines() -> list[Json]:
    def rate(tokens: str) -> str:
        return f"sum by ({BY_UNIT}) (rate(llmhost_engine_{tokens}_tokens_total{{{HOST}}}[$__rate_interval]))"

    def total(metric: str) -> str:
        return f"sum by ({BY_UNIT}) (llmhost_engine_{metric}{{{HOST}}})"

    unit = "{{instance}} {{unit}}"
    return [
        timeseries(
            "Tokens",
            "Generated, and read from prompts, as the engines of each unit count them. A gap: no engine answers.",
            [target(rate("generation"), f"{unit} generated"), target(rate("prompt"), f"{unit} prompt", ref="B")],
            unit="suffix: tok/s",
        ),
        timeseries(
            "Requests",
            "What the engines of each unit work on, and what waits. A gap: no engine answers.",
            [
                target(total("requests_running"), f"{unit} running"),
                target(total("requests_waiting"), f"{unit} waiting", ref="B"),
            ],
            unit="none",
        ),
        timeseries(
            "KV cache in use",
            "Of the fullest engine of each unit. Requests wait, or are set back, where it is full. A gap: no engine "
            "answers.",
            [target(f"max by ({BY_UNIT}) (llmhost_engine_kv_cache_usage_ratio{{{HOST}}})", unit)],
            unit="percentunit",
            max=1,
        ),
    ]


def engines_over_time() -> Json:
    return state_timeline(
        "Whether engines answer",
        "Whether the metrics of each unit's engines could be read, and if not, why. A gap: no engine runs, or it has "
        "none by design.",
        [
            target(
                ok_or_why("llmhost_engine_up", "llmhost_engine_fault", HOST, BY_UNIT, OF_ENGINES),
                "{{instance}} {{unit}}",
            )
        ],
        OK_OR_WHY,
    )


def collectors_over_time() -> Json:
    return state_timeline(
        "Whether collectors succeed",
        "Whether the exporter could read each of its sources, and if not, why. A gap: the exporter was not scraped.",
        [
            target(
                ok_or_why(
                    "llmhost_collector_success",
                    "llmhost_collector_fault",
                    HOST,
                    f"{BY_HOST}, collector",
                    OF_COLLECTORS,
                ),
                "{{instance}} {{collector}}",
            )
        ],
        OK_OR_WHY,
    )


def exporters_now() -> Json:
    rows = f"max by ({BY_HOST}) ({scraped(HOST)})"
    version = f"max by ({BY_HOST}, version, revision, python_version) (llmhost_build_info{{{HOST}}})"

    def most(metric: str, factor: int = 1) -> str:
        told = f"max by ({BY_HOST}) ({metric}{{{HOST}}})" + (f" * {factor}" if factor != 1 else "")
        return or_cannot_tell(told, rows)

    not_known = values({CANNOT_TELL: ("n/a", CALM)})
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
            only("^build$", **HIDDEN),
            only("^instance$", custom__minWidth=130),
            only("^scraped$", mappings=values({0: ("NO", BAD), 1: ("yes", GOOD)}), custom__width=75, **coloured),
            only("^(version|revision|Python)$", custom__width=70),
            only(
                "^config$",
                mappings=[*values({0: ("bad, old one runs", BAD), 1: ("good", GOOD)}), *not_known],
                custom__width=120,
                **coloured,
            ),
            only("^config in force$", unit="dateTimeFromNow", mappings=not_known, custom__width=110),
            only(
                "^driver$",
                mappings=[*values({0: ("as the library", GOOD), 1: ("upgraded: starts fail", BAD)}), *not_known],
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
    left_out = f"sum by ({BY_HOST}, family) (rate(llmhost_dropped_series_total{{{HOST}}}[$__rate_interval]))"
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
            [target(left_out, "{{instance}} {{family}}")],
            unit="none",
        ),
    ]
