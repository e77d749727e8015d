"""The top of the host board: the state at the end of the time shown, and the units."""

from collections.abc import Sequence

from grafana.boards.shared import start_now_mappings, visibility
from grafana.kit.dashboard import row_url
from grafana.kit.panels import (
    BAD_FROM_1,
    COLOURED_TEXT,
    NOT_KNOWN,
    STATE_VALUES,
    Json,
    instant,
    link,
    override,
    stat,
    state_timeline,
    table,
    target,
    thresholds,
    value_mappings,
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
    WAITING_TO_RESTART,
    collectors_failing,
    counted,
    or_cannot_tell,
    scraped,
    startable,
    stuck_memory,
    unit_state,
    with_cluster,
    zero_where,
)


def _gpus() -> list[Json]:
    up = f'sum by ({BY_HOST}) (llmhost_gpu_up{{gpu!~".+:.+", {HOST}}})'  # MIG instances are not counted
    expected = f"sum by ({BY_HOST}) (llmhost_gpus_expected{{{HOST}}})"
    return [
        stat(
            "GPUs",
            "GPUs that answer, and how many should; MIG instances are not counted. No data: no driver can be read.",
            [instant(f"sum({up})", "up"), instant(f"sum({expected})", "expected", ref="B")],
            unit="none",
        ),
        stat(
            "… missing",
            "GPUs that should be there and do not answer, on hosts whose driver can be read.",
            [instant(f"sum(clamp_min({expected} - ({up} or 0 * {expected}), 0))")],
            unit="none",
            steps=BAD_FROM_1,
        ),
    ]


def _down() -> Json:
    """Count the units for which LlmhostUnitDown has a result, without its five minutes."""
    down = f'llmhost_unit_active_state{{state=~"failed|inactive", {HOST}}} == 1'
    waiting = f"llmhost_unit_sub_state{{{WAITING_TO_RESTART}, {HOST}}} == 1"
    down_unasked = f"count by ({BY_UNIT}) ({down} or {waiting}) and on ({BY_UNIT}) llmhost_unit_wanted{{{HOST}}} == 1"
    return stat(
        "Units down",
        "Units that should run, and have failed, ended, or wait for systemd's next try. No data: no unit is watched, "
        "or systemd cannot be read.",
        [instant(zero_where(f"llmhost_unit_wanted{{{HOST}}}", down_unasked))],
        unit="none",
        steps=BAD_FROM_1,
    )


def _leftovers() -> list[Json]:
    stuck = f"sum({stuck_memory(HOST)}) or 0 * sum(llmhost_gpu_unattributed_memory_bytes{{{HOST}}})"
    unknown_holders = f'sum by ({BY_HOST}) (llmhost_shm_segments{{state="unknown", {HOST}}}) > 0'
    stale = (
        f'sum(llmhost_shm_segments{{state="stale", kind!~"other|cuda", {HOST}}} > 0)'
        f" or 0 * count(llmhost_shm_unlisted_files{{{HOST}}} == 0 unless on ({BY_HOST}) {unknown_holders})"
    )
    return [
        stat(
            "Stuck",
            "Memory of ended runs, orphans, processes that are gone, and nobody, on GPUs with more than "
            "policy.resident of it. No data: GPUs or processes cannot be read, or memory is unified.",
            [instant(stuck)],
            unit="bytes",
            steps=BAD_FROM_1,
            decimals=0,
        ),
        stat(
            "Stale files",
            "Files in /dev/shm that ended engines have left. No data: /dev/shm is not read, or it cannot be told of "
            "all files whether somebody holds them.",
            [instant(stale)],
            unit="none",
            steps=thresholds((None, GOOD), (1, ODD)),
        ),
    ]


def banner() -> list[Json]:
    restarts = counted("llmhost_unit_starts_total", f'trigger="auto", {HOST}', BY_HOST, "1h")
    return [
        visibility(),
        stat(
            "Not seen",
            "Hosts of which Prometheus gets nothing, and sources that an exporter cannot read and that are not "
            "switched off. Nothing below speaks of them.",
            [
                instant(zero_where(scraped(HOST), f"{scraped(HOST)} == 0"), "hosts"),
                instant(
                    zero_where(f"llmhost_collector_success{{{HOST}}}", collectors_failing(HOST)), "collectors", ref="B"
                ),
            ],
            unit="none",
            steps=BAD_FROM_1,
        ),
        *_gpus(),
        _down(),
        stat(
            "Restarts, 1 h",
            "Automatic starts, by systemd, of all units within the last hour, each of them, also those between two "
            "scrapes. No data: no unit is watched, or systemd cannot be read.",
            [instant(f"sum({restarts})")],
            unit="none",
            steps=thresholds((None, GOOD), (1, ODD)),
            decimals=0,
        ),
        *_leftovers(),
    ]


def _column(expr: str) -> str:
    return with_cluster(or_cannot_tell(expr, f"max by ({BY_UNIT}) (llmhost_unit_info{{{HOST}}})"))


def _held() -> str:
    """Query the bytes that a unit's processes hold, in ended runs too; 0 only if its host's GPU holders are known."""
    unit = f"max by ({BY_UNIT}) (llmhost_unit_info{{{HOST}}})"
    known = f"llmhost_gpu_unattributed_memory_bytes{{{HOST}}}"
    return (
        f'(sum by ({BY_UNIT}) (llmhost_gpu_holder_memory_bytes{{unit!="", {HOST}}}) and {unit}'
        f" or 0 * ({unit} and on ({BY_HOST}) {known}))"
    )


def units_now() -> Json:
    def most(metric: str) -> str:
        return f"max by ({BY_UNIT}) ({metric}{{{HOST}}})"

    columns: Sequence[tuple[str, str]] = (
        ("state", unit_state(HOST)),
        ("wanted", most("llmhost_unit_wanted")),
        ("a start now", startable(HOST)),
        ("restarts, 1 h", counted("llmhost_unit_starts_total", f'trigger="auto", {HOST}', BY_UNIT, "1h")),
        ("failures, 1 h", counted("llmhost_unit_failures_total", HOST, BY_UNIT, "1h")),
        ("left over", most("llmhost_unit_leftover_processes")),
        ("holds", _held()),
        ("since", f"{most('llmhost_unit_state_change_timestamp_seconds')} * 1000"),
    )
    to_incident = link("What happened", row_url("llmhost-incident", "cluster", "instance", "unit", "manager"))
    coloured = {"custom__cellOptions": dict(COLOURED_TEXT)}
    return table(
        "Units now",
        "One row for each watched unit, at the end of the time shown; its name links to what happened. A start now: "
        "whether its GPUs have free what it will ask for. `n/a`: it cannot be told. Empty: no unit is watched, or "
        "systemd cannot be read.",
        [(name, _column(expr)) for name, expr in columns],
        shown=("cluster", "instance", "unit"),
        for_links=("manager",),
        overrides=[
            override("^unit$", links=[to_incident]),
            override("^cluster$", custom__width=80),
            override("^state$", mappings=STATE_VALUES + NOT_KNOWN, custom__width=135, **coloured),
            override(
                "^wanted$",
                mappings=value_mappings({0: ("no", CALM), 1: ("yes", "text"), CANNOT_TELL: ("n/a", CALM)}),
                custom__width=70,
            ),
            override(
                "^a start now$",
                mappings=start_now_mappings("n/a"),
                custom__width=135,
                **coloured,
            ),
            override(
                "^restarts, 1 h$",
                mappings=NOT_KNOWN,
                thresholds=thresholds((None, "text"), (1, ODD), (2, BAD)),
                custom__width=110,
                **coloured,
            ),
            override(
                "^failures, 1 h$",
                mappings=NOT_KNOWN,
                thresholds=thresholds((None, "text"), (1, ODD)),
                custom__width=100,
                **coloured,
            ),
            override(
                "^left over$",
                mappings=NOT_KNOWN,
                thresholds=thresholds((None, "text"), (1, BAD)),
                custom__width=80,
                **coloured,
            ),
            override("^holds$", unit="bytes", decimals=1, mappings=NOT_KNOWN, custom__width=90),
            override("^since$", unit="dateTimeFromNow", mappings=NOT_KNOWN, custom__width=130),
        ],
        sort=("restarts, 1 h", True),
    )


def units_timeline() -> Json:
    return state_timeline(
        "What the units were doing",
        "At each step of the drawing: a scrape, or over a long time as long as a pixel. What is shorter can be missed. "
        "A gap: not known.",
        [target(unit_state(HOST), "{{instance}} {{unit}}")],
        STATE_VALUES,
    )
