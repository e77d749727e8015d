"""Hosts, down to one: their units, and who holds the memory of each GPU."""

from collections.abc import Sequence

from grafana.boards.old_panels import (
    DATASOURCE,
    Json,
    only,
    panel,
    stat,
    target,
    thresholds,
    timeseries,
    values,
    variable,
)

HOST = 'job=~"$job", instance=~"$instance"'
UNIT_LABELS = "job, instance, unit, manager"

# What a unit is doing, as one number per unit: the highest that holds. Sub-states are finer than the active state.
STATES = (
    (1, "active", "green", 'llmhost_unit_active_state{state="active", %s} == 1'),
    (2, "reloading", "blue", 'llmhost_unit_active_state{state=~"reloading|refreshing", %s} == 1'),
    (3, "starting", "light-blue", 'llmhost_unit_active_state{state="activating", %s} == 1'),
    (4, "start-pre", "purple", 'llmhost_unit_sub_state{state=~"start-pre|condition", %s} == 1'),
    (
        5,
        "waiting to restart",
        "orange",
        'llmhost_unit_sub_state{state=~"auto-restart.*|(failed|dead)-before-auto-restart", %s} == 1',
    ),
    (6, "stopping", "yellow", 'llmhost_unit_active_state{state="deactivating", %s} == 1'),
    (7, "inactive", "text", 'llmhost_unit_active_state{state="inactive", %s} == 1'),
    (8, "failed", "red", 'llmhost_unit_active_state{state="failed", %s} == 1'),
    (9, "maintenance", "dark-red", 'llmhost_unit_active_state{state="maintenance", %s} == 1'),
)
STATE_CODE = (
    f"max by ({UNIT_LABELS}) (" + " or ".join(f"({selector % HOST}) * {code}" for code, _, _, selector in STATES) + ")"
)
DOWN_UNITS = (
    f'count by (job, instance, unit, manager) (llmhost_unit_active_state{{state="failed", {HOST}}} == 1'
    f' or llmhost_unit_sub_state{{state=~"auto-restart.*|(failed|dead)-before-auto-restart", {HOST}}} == 1)'
)
# A number below all real ones stands for what the exporter cannot tell, so that a table keeps its rows and columns.
CANNOT_TELL = -1


def or_cannot_tell(expr: str) -> str:
    return f"{expr} or max by ({UNIT_LABELS}) (llmhost_unit_info{{{HOST}}}) * 0 - {-CANNOT_TELL}"


def count_or_0(bad: str, all_of_them: str) -> str:
    """Count what is bad: 0 only where there is something that could be."""
    return f"count({bad}) or 0 * count({all_of_them})"


def banner() -> list[Json]:
    bad_above_0 = thresholds((None, "green"), (1, "red"))
    whole_gpus_up = f'sum by (job, instance) (llmhost_gpu_up{{gpu!~".+:.+", {HOST}}})'
    return [
        stat(
            "Hosts not scraped",
            "Targets that Prometheus cannot scrape; nothing below speaks of them.",
            steps=bad_above_0,
            hosts=count_or_0(f"up{{{HOST}}} == 0", f"up{{{HOST}}}"),
        ),
        stat(
            "Collectors failing",
            "Sources that an exporter cannot read and that are not switched off: what they would tell is absent.",
            steps=bad_above_0,
            collectors=count_or_0(
                f"llmhost_collector_success{{{HOST}}} == 0 unless on (job, instance, collector)"
                f' llmhost_collector_fault{{cause="disabled", {HOST}}}',
                f"llmhost_collector_success{{{HOST}}}",
            ),
        ),
        stat(
            "GPUs",
            "GPUs that answer, and how many should; MIG instances are not counted.",
            steps=thresholds((None, "text")),
            up=f"sum({whole_gpus_up})",
            expected=f"sum(llmhost_gpus_expected{{{HOST}}})",
        ),
        stat(
            "GPUs missing",
            "GPUs that should be there and do not answer.",
            steps=bad_above_0,
            missing=f"sum(clamp_min(sum by (job, instance) (llmhost_gpus_expected{{{HOST}}}) - {whole_gpus_up}, 0))",
        ),
        stat(
            "Units down unasked",
            "Units in the state failed, or between a failure and the restart that systemd has scheduled.",
            steps=bad_above_0,
            units=count_or_0(DOWN_UNITS, f"llmhost_unit_info{{{HOST}}}"),
        ),
        stat(
            "Restarts by systemd",
            "Over the time shown, as far as systemd's count tells; a manual restart is none.",
            steps=thresholds((None, "green"), (1, "orange")),
            restarts=f"sum(increase(llmhost_unit_nrestarts{{{HOST}}}[$__range]))",
        ),
    ]


def units_table() -> Json:
    columns: Sequence[tuple[str, str, str]] = (
        ("A", "state", STATE_CODE),
        ("B", "wanted", or_cannot_tell(f"max by ({UNIT_LABELS}) (llmhost_unit_wanted{{{HOST}}})")),
        ("C", "a start now", or_cannot_tell(f"max by ({UNIT_LABELS}) (llmhost_unit_startable{{{HOST}}})")),
        ("D", "restarts", or_cannot_tell(f"max by ({UNIT_LABELS}) (llmhost_unit_nrestarts{{{HOST}}})")),
        (
            "E",
            "leftover processes",
            or_cannot_tell(f"max by ({UNIT_LABELS}) (llmhost_unit_leftover_processes{{{HOST}}})"),
        ),
        (
            "F",
            "GPU memory held",
            or_cannot_tell(
                f'sum by ({UNIT_LABELS}) (llmhost_gpu_holder_memory_bytes{{unit!="", {HOST}}})'
                f" or (max by ({UNIT_LABELS}) (llmhost_unit_info{{{HOST}}}) * 0"
                f' and on (job, instance) llmhost_collector_success{{collector="nvml", {HOST}}} == 1)'
            ),
        ),
        ("G", "since", f"max by ({UNIT_LABELS}) (llmhost_unit_state_change_timestamp_seconds{{{HOST}}}) * 1000"),
    )
    table = panel(
        "table",
        "Units now",
        "One row per watched unit. `a start now`: whether its GPUs have free what it will ask for. `n/a`: the exporter "
        "cannot tell, or, for a start, the unit is up.",
        [target(expr, instant=True, ref=ref) for ref, _, expr in columns],
        defaults={
            "unit": "short",
            "custom": {"align": "auto", "cellOptions": {"type": "auto"}},
            "mappings": values({CANNOT_TELL: ("n/a", "text")}),
            "thresholds": thresholds((None, "text")),
        },
        options={"cellHeight": "sm", "footer": {"show": False}, "showHeader": True},
    )
    table["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True, "job": True},
                "indexByName": {"instance": 0, "unit": 1, "manager": 2},
                "renameByName": {f"Value #{ref}": name for ref, name, _ in columns},
            },
        },
    ]
    coloured = {"type": "color-text"}
    states = {float(code): (text, colour) for code, text, colour, _ in STATES}
    table["fieldConfig"]["overrides"] = [
        only("^state$", mappings=values(states), custom__cellOptions=coloured),
        only("^wanted$", mappings=values({0: ("no", "text"), 1: ("yes", "text"), CANNOT_TELL: ("n/a", "text")})),
        only(
            "^a start now$",
            mappings=values(
                {0: ("would be refused", "red"), 1: ("would find it free", "green"), CANNOT_TELL: ("n/a", "text")}
            ),
            custom__cellOptions=coloured,
        ),
        only("^GPU memory held$", unit="bytes"),
        only("^since$", unit="dateTimeFromNow"),
    ]
    return table


def units_timeline() -> Json:
    states = {float(code): (text, colour) for code, text, colour, _ in STATES}
    return panel(
        "state-timeline",
        "Units over time",
        "What each unit was doing at each scrape; what is shorter than a scrape interval can be missed. A gap: not "
        "known.",
        [target(STATE_CODE, legend="{{instance}} {{unit}}")],
        defaults={
            "unit": "none",
            "color": {"fixedColor": "text", "mode": "fixed"},
            "custom": {"fillOpacity": 80, "lineWidth": 0, "spanNulls": False},
            "mappings": values(states),
        },
        options={
            "alignValue": "left",
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "mergeValues": True,
            "rowHeight": 0.8,
            "showValue": "never",
            "tooltip": {"mode": "single", "sort": "none"},
        },
    )


def memory_of_a_gpu() -> Json:
    made = timeseries(
        "GPU $gpu: who holds its memory",
        "Memory by systemd unit and kind of holder, stacked; the part that no visible process holds is `unattributed`; "
        "the line is the GPU's total.",
        [
            target(
                f'sum by (instance, unit, kind) (llmhost_gpu_holder_memory_bytes{{gpu=~"$gpu", {HOST}}})',
                legend="{{instance}} {{unit}} {{kind}}",
            ),
            target(
                f'sum by (instance) (llmhost_gpu_unattributed_memory_bytes{{gpu=~"$gpu", {HOST}}})',
                legend="{{instance}} unattributed",
                ref="B",
            ),
            target(
                f'sum by (instance) (llmhost_gpu_memory_total_bytes{{gpu=~"$gpu", {HOST}}})',
                legend="{{instance}} total",
                ref="C",
            ),
        ],
        stacked=True,
    )
    made["fieldConfig"]["overrides"] = [
        only("unattributed$", color={"fixedColor": "orange", "mode": "fixed"}),
        only(
            "total$",
            color={"fixedColor": "text", "mode": "fixed"},
            custom__fillOpacity=0,
            custom__stacking={"group": "A", "mode": "none"},
        ),
    ]
    return {**made, "repeat": "gpu", "repeatDirection": "h", "maxPerRow": 4}


def unattributed() -> Json:
    made = timeseries(
        "Memory that nobody holds",
        "Used memory of each GPU less that of all visible processes. Above the dashed line, `policy.resident`, a start "
        "is not clean.",
        [
            target(f"llmhost_gpu_unattributed_memory_bytes{{{HOST}}}", legend="{{instance}} GPU {{gpu}}"),
            target(f"max by (job) (llmhost_policy_resident_bytes{{{HOST}}})", legend="policy.resident", ref="B"),
        ],
    )
    dashed = {"dash": [8, 8], "fill": "dash"}
    made["fieldConfig"]["overrides"] = [
        only("^policy", color={"fixedColor": "red", "mode": "fixed"}, custom__lineStyle=dashed)
    ]
    return made


def needed_and_free() -> Json:
    made = timeseries(
        "What a start will ask for, and what is free",
        "Dashed: what a start of the unit will ask to be free on each GPU of its set. Solid: what is free. A unit that "
        "is up has taken what it needs.",
        [
            target(f"llmhost_gpu_memory_free_bytes{{{HOST}}}", legend="{{instance}} GPU {{gpu}} free"),
            target(
                f"max by (instance, unit, gpu) (llmhost_unit_gpu_memory_needed_bytes{{{HOST}}})",
                legend="{{instance}} GPU {{gpu}} needed by {{unit}}",
                ref="B",
            ),
        ],
    )
    made["fieldConfig"]["overrides"] = [only(" needed by ", custom__lineStyle={"dash": [8, 8], "fill": "dash"})]
    return made


def board() -> Json:
    """Lay the panels out: a banner, the units, then the memory, GPU by GPU."""
    placed: list[Json] = []
    row = 0

    def place(height: int, *panels: Json) -> None:
        nonlocal row
        width = 24 // len(panels)
        for column, one in enumerate(panels):
            placed.append(
                {"id": len(placed) + 1, **one, "gridPos": {"h": height, "w": width, "x": column * width, "y": row}}
            )
        row += height

    place(4, *banner())
    place(8, units_table())
    place(8, units_timeline())
    place(9, unattributed(), needed_and_free())
    place(9, memory_of_a_gpu())
    return {
        "uid": "llmhost-host",
        "title": "llmhost / Host",
        "description": "LLM inference services, their GPUs, and what is in the way of a start.",
        "tags": ["llmhost"],
        "id": None,
        "schemaVersion": 39,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "annotations": {
            "list": [
                {
                    "name": "Alerts",
                    "datasource": dict(DATASOURCE),
                    "enable": True,
                    "iconColor": "red",
                    "expr": f'ALERTS{{alertname=~"Llmhost.+", alertstate="firing", {HOST}}}',
                    "step": "60s",
                    "titleFormat": "{{alertname}}",
                    "textFormat": "{{instance}} {{unit}} {{gpu}}",
                }
            ]
        },
        "links": [
            {
                "type": "dashboards",
                "title": "llmhost",
                "tags": ["llmhost"],
                "asDropdown": True,
                "keepTime": True,
                "includeVars": True,
            }
        ],
        "templating": {
            "list": [
                {
                    "type": "datasource",
                    "name": "datasource",
                    "label": "Data source",
                    "query": "prometheus",
                    "current": {},
                    "options": [],
                    "refresh": 1,
                },
                variable("job", "job", "label_values(llmhost_build_info, job)"),
                variable("instance", "instance", 'label_values(llmhost_build_info{job=~"$job"}, instance)'),
                variable("gpu", "GPU", f"label_values(llmhost_gpu_up{{{HOST}}}, gpu)"),
            ]
        },
        "panels": placed,
    }
