"""Panels and variables that several boards share."""

from collections.abc import Sequence

from grafana.kit.dashboard import annotation, variable
from grafana.kit.panels import (
    COLOURED_CELL,
    RUNBOOK,
    Json,
    colours,
    instant,
    link,
    override,
    stat,
    table,
    target,
    text_mappings,
    timeseries,
    value_mappings,
)
from grafana.kit.queries import (
    BAD,
    BY_HOST,
    CALM,
    CANNOT_TELL,
    GOOD,
    GUARDING,
    HOST,
    KINDS,
    NOT_APPLICABLE,
    ODD,
    TRACKER_STATES,
    UNDER_WAY,
    or_cannot_tell,
    reading_state,
)

# As numbers, so that critical alerts sort first. A severity that is not ours is 0.
SEVERITIES: Sequence[tuple[int, str, str]] = (
    (3, "critical", BAD),
    (2, "warning", ODD),
    (1, "info", "blue"),
    (0, "other", CALM),
)


def gpu_variable() -> Json:
    """Make the hidden variable by which panels repeat for each GPU."""
    return {**variable("gpu", "GPU", f"label_values(llmhost_gpu_info{{{HOST}}}, gpu)"), "hide": 2, "sort": 3}


def line_over(pattern: str, **more: object) -> Json:
    """Draw as a line over stacked areas, which is no part of their sum."""
    return override(
        pattern,
        color={"fixedColor": "text", "mode": "fixed"},
        custom__fillOpacity=0,
        custom__lineWidth=2,
        custom__stacking={"group": "B", "mode": "none"},
        **more,
    )


def start_now_mappings(cannot_tell: str) -> list[Json]:
    """Map the values of startable() to texts."""
    return value_mappings(
        {
            0: ("would be refused", BAD),
            1: ("would find it free", GOOD),
            NOT_APPLICABLE: ("it is up", CALM),
            UNDER_WAY: ("starts or stops", GUARDING),
            CANNOT_TELL: (cannot_tell, CALM),
        }
    )


def visibility() -> Json:
    return stat(
        "Is it seen?",
        "What is shown is as good as what the exporter can read. `NOT SCRAPED`: Prometheus gets nothing from the "
        "host, and what is drawn is old. `PARTLY`: a collector fails, or a GPU does not answer, and what they would "
        "tell is absent.",
        [instant(f"min({reading_state(HOST)})")],
        mappings=value_mappings({0: ("NOT SCRAPED", BAD), 1: ("PARTLY", ODD), 2: ("yes", GOOD)}),
    )


def holders(*, hosts: bool = False) -> Json:
    """Draw the table of memory holders; with `hosts` each row names its host."""
    kept = f"{BY_HOST}, gpu, unit, manager, kind"
    unattributed = f"llmhost_gpu_unattributed_memory_bytes{{{HOST}}} > 0"
    memory = (
        f"sum by ({kept}) (llmhost_gpu_holder_memory_bytes{{{HOST}}}"
        f' or label_replace({unattributed}, "kind", "unattributed", "", ""))'
    )
    return table(
        "Who holds GPU memory",
        "At the end of the time shown, by GPU, systemd unit and kind of holder. `current`: the unit's present run; "
        "`leftover`: an ended one; `unattributed`: no process is seen to hold it. procs: how many "
        "processes do. Empty where GPUs cannot be read, or nobody holds any.",
        [
            ("memory", memory),
            ("procs", f"sum by ({kept}) (llmhost_gpu_holder_processes{{{HOST}}})"),
        ],
        shown=(*(("instance",) if hosts else ()), "gpu", "unit", "kind"),
        names={"gpu": "GPU"},
        overrides=[
            override("^(instance|unit)$", custom__minWidth=100),
            override("^memory$", unit="bytes", decimals=1, custom__width=85),
            override("^GPU$", custom__width=45),
            override("^procs$", custom__width=54),
            override(
                "^kind$",
                mappings=text_mappings(KINDS),
                custom__width=105,
                custom__cellOptions=dict(COLOURED_CELL),
            ),
        ],
        sort=("kind", True),  # `current`, which is as it should be, comes last
    )


def firing_alerts(matchers: str, *, labels: Sequence[str] = ()) -> Json:
    """Draw the table of firing alerts; `labels` name what the alert is about."""
    shown = ("alertname", *labels)
    kept = ", ".join(shown)
    of_ours = f'alertname=~"Llmhost.+", severity!="none", {matchers}'
    firing = f'ALERTS{{alertstate="firing", {of_ours}}}'
    since = f"max by ({kept}) (ALERTS_FOR_STATE{{{of_ours}}} * 1000) and on ({kept}) {firing}"
    severity = " or ".join(
        f'{code} * max by ({kept}) (ALERTS{{alertstate="firing", severity="{name}", {of_ours}}})'
        for code, name, _ in SEVERITIES
        if code
    )
    return table(
        "Alerts that fire",
        "Each links to what to do about it. Empty: none fires, or llmhost's rules are not loaded in this Prometheus.",
        [
            ("severity", f"{severity} or 0 * max by ({kept}) ({firing})"),
            # where the series are kept elsewhere, ALERTS_FOR_STATE may not be among them
            ("since", or_cannot_tell(since, f"max by ({kept}) ({firing})")),
        ],
        shown=shown,
        names={"alertname": "alert", "gpu": "GPU"},
        overrides=[
            override(
                "^alert$",
                links=[link("Runbook", f"{RUNBOOK}#${{__value.raw}}")],
                custom__minWidth=140,
            ),
            override("^(instance|unit)$", custom__width=135),
            override(
                "^since$",
                unit="dateTimeFromNow",
                mappings=value_mappings({CANNOT_TELL: ("n/a", "text")}),
                custom__width=125,
            ),
            override("^GPU$", custom__width=50),
            override(
                "^severity$",
                mappings=value_mappings({code: (name, colour) for code, name, colour in SEVERITIES}),
                custom__width=85,
                custom__cellOptions=dict(COLOURED_CELL),
            ),
        ],
        sort=("severity", True),
    )


def xids(*, hosts: bool = False) -> Json:
    """Mark XIDs that the driver reported; with `hosts` each names its host."""
    by = "instance, gpu, xid" if hosts else "gpu, xid"
    return annotation(
        "XIDs",
        "purple",
        f"max by ({by}) (llmhost_gpu_last_xid_timestamp_seconds{{{HOST}}}) * 1000",
        title="XID {{xid}}",
        text="{{instance}} GPU {{gpu}}" if hosts else "GPU {{gpu}}",
        at_value=True,
    )


def stale_segments() -> Json:
    stale = f'llmhost_shm_segments{{state="stale", {HOST}}}'
    return timeseries(
        "Stale files in /dev/shm",
        "Files that nobody has held for policy.segment_grace, by kind; of other programs, too. No data: there is no "
        "file at all, or shared memory cannot be read.",
        [target(f"sum by (kind) ({stale})", "{{kind}}")],
        stacked=True,
    )


def trackers() -> Json:
    return timeseries(
        "Resource trackers",
        "Python's resource trackers by state. An orphaned one has lost its creator.",
        [target(f"sum by (state) (llmhost_resource_trackers{{{HOST}}})", "{{state}}")],
        overrides=colours(TRACKER_STATES),
    )


def orphans() -> Json:
    return timeseries(
        "Orphan processes",
        "Engine processes that outlived what they belong to, by engine and role; none is one series of 0.",
        [target(f"sum by (engine, role) (llmhost_orphan_processes{{{HOST}}})", "{{engine}} {{role}}")],
        overrides=[override("^none none$", displayName="none")],
    )
