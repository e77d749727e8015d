"""The host board's shared memory, and processes left over."""

from grafana.kit.panels import (
    COLOURED_TEXT,
    NOT_KNOWN,
    Json,
    colours,
    override,
    table,
    target,
    thresholds,
    timeseries,
)
from grafana.kit.queries import (
    BAD,
    BY_HOST,
    HOST,
    ODD,
    SHM_STATES,
    or_cannot_tell,
)

from grafana.boards import shared


def files_now() -> Json:
    def of(state: str) -> str:
        return f'sum by (kind) (llmhost_shm_segments{{state="{state}", {HOST}}})'

    kinds = f"count by (kind) (llmhost_shm_segments{{{HOST}}})"
    columns = [(state, or_cannot_tell(of(state), kinds)) for state in SHM_STATES]
    sizes = [
        ("allocated", f"sum by (kind) (llmhost_shm_segment_bytes{{{HOST}}})"),
        ("apparent", f"sum by (kind) (llmhost_shm_segment_apparent_bytes{{{HOST}}})"),
    ]
    return table(
        "Files in /dev/shm now",
        "Files by kind and state; apparent is their size as `ls -l` shows it. `live`: somebody holds it; `unheld`: "
        "nobody does, for less than policy.segment_grace; `stale`: for longer; `unknown`: not all processes could be "
        "looked at. Empty: there are none, or /dev/shm is not read.",
        [*columns, *sizes],
        shown=("kind",),
        overrides=[
            override("^kind$", custom__minWidth=100),
            *(override(f"^{state}$", mappings=NOT_KNOWN, custom__width=75) for state in SHM_STATES),
            override(
                "^stale$",
                thresholds=thresholds((None, "text"), (1, BAD)),
                custom__cellOptions=dict(COLOURED_TEXT),
            ),
            override("^(allocated|apparent)$", unit="bytes", decimals=1, custom__width=95),
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
            overrides=[override("^hidden$", color={"fixedColor": ODD, "mode": "fixed"}), shared.line_over("^size$")],
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
            overrides=[override(".", custom__thresholdsStyle={"mode": "dashed"})],
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
