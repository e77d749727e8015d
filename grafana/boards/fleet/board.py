"""The fleet board: all hosts, from recorded series alone, so that a thousand cost no more than a few.

No panel draws a series per host or unit, except for the few with the most of something.
"""

from grafana.boards.fleet import tables
from grafana.boards.fleet.queries import (
    AUTOMATIC,
    BLIND,
    BLIND_BY_CLUSTER,
    BY_KIND,
    GENERATED,
    LOOPS,
    LOST_BY_CLUSTER,
    PROMPT,
    RESIDENT,
    STARTS_BY_CLUSTER,
    STATE,
    TOTAL,
    WANTED_BY_CLUSTER,
    hours,
    stuck_by,
)
from grafana.boards.shared import line_over
from grafana.kit.dashboard import Layout, cluster_variables, dashboard
from grafana.kit.panels import (
    BAD_FROM_1,
    STATE_VALUES,
    Json,
    colours,
    instant,
    stat,
    state_timeline,
    target,
    thresholds,
    timeseries,
    value_mappings,
)
from grafana.kit.queries import BAD, BY_UNIT, GOOD, KINDS, ODD, zero_where


def hosts_now() -> list[Json]:
    return [
        stat(
            "Rules",
            "Whether there are recorded series, from which all of this board is. `NONE`: the recording rules are not "
            "loaded, or nothing is scraped as job llmhost. `OLD`: the last ones are of more than two minutes before.",
            [instant(f"2 - (time() - max(timestamp({BLIND})) > bool 120) or vector(0)")],
            mappings=value_mappings({0: ("NONE", BAD), 1: ("OLD", ODD), 2: ("fresh", GOOD)}),
        ),
        stat("Hosts", "All that Prometheus has as targets, blind ones too.", [instant(f"count({BLIND})")], unit="none"),
        stat(
            "Blind",
            "Hosts whose exporter cannot be scraped, or cannot read GPUs, processes or systemd. What it would tell is "
            "in no other number here: while this is not 0 the others may be too small.",
            [instant(f"sum({BLIND_BY_CLUSTER})")],
            unit="none",
            steps=BAD_FROM_1,
        ),
        stat(
            "Stuck memory",
            "GPU memory of ended runs, orphans, processes that are gone, and nobody, where it is more than "
            "policy.resident. No data: no host tells of its GPUs' memory.",
            [instant(stuck_by(""))],
            unit="bytes",
            steps=BAD_FROM_1,
            decimals=0,
        ),
        stat(
            "Generated",
            "Tokens, as all engines count them. No data: no engine answers.",
            [instant(f"sum({GENERATED})")],
            unit="suffix: tok/s",
            decimals=0,
        ),
    ]


def units_now() -> list[Json]:
    return [
        stat(
            "Wanted",
            "Units that should run: those that an operator has stopped are not among them.",
            [instant(f"sum({WANTED_BY_CLUSTER})")],
            unit="none",
        ),
        stat(
            "Lost",
            "Wanted units that are not active, or whose engine does not answer; one that loads is among them.",
            [instant(f"sum({LOST_BY_CLUSTER})")],
            unit="none",
            steps=thresholds((None, GOOD), (1, ODD)),
        ),
        stat(
            "… hours",
            "Lost within the time shown: hours of wanted units that were not active, or whose engine did not answer, "
            "all together. Time for which nothing is recorded adds none.",
            [instant(f"sum({hours(LOST_BY_CLUSTER)})")],
            unit="suffix: h",
            decimals=1,
        ),
        stat(
            "Units that loop",
            "Units that systemd has started two times or more within the last hour.",
            [instant(zero_where(AUTOMATIC, LOOPS))],
            unit="none",
            steps=BAD_FROM_1,
        ),
        stat(
            "… resident",
            "Those of them of which such a start found memory held that should not have been there.",
            [instant(zero_where(AUTOMATIC, f"{LOOPS} and on ({BY_UNIT}) {RESIDENT} > 0"))],
            unit="none",
            steps=BAD_FROM_1,
        ),
    ]


def lost() -> Json:
    return timeseries(
        "Lost units over time",
        "Wanted units that are not active, or whose engine does not answer, by cluster; one that loads is among them.",
        [target(f"sum by (cluster) ({LOST_BY_CLUSTER})", "lost {{cluster}}")],
        unit="none",
        stacked=True,
        calcs=("max", "last"),
        decimals=0,
    )


def blind() -> Json:
    return timeseries(
        "Blind hosts over time",
        "Hosts whose exporter cannot be scraped, or cannot read what pages depend on, by cluster.",
        [target(f"sum by (cluster) ({BLIND_BY_CLUSTER})", "blind {{cluster}}")],
        unit="none",
        stacked=True,
        calcs=("max", "last"),
        decimals=0,
    )


def starts() -> Json:
    return timeseries(
        "Automatic starts, within 1 h",
        "What systemd started by itself within the hour before each moment, by cluster. A loop of one unit alone can "
        "make dozens.",
        [target(f"sum by (cluster) ({STARTS_BY_CLUSTER})", "starts {{cluster}}")],
        unit="none",
        stacked=True,
        calcs=("max", "last"),
        decimals=0,
    )


def stuck() -> Json:
    return timeseries(
        "Stuck memory over time",
        "GPU memory of ended runs, orphans, processes that are gone, and nobody, where it is more than "
        "policy.resident, by cluster. A gap: no host of the cluster tells of its GPUs' memory.",
        [target(stuck_by("cluster"), "stuck {{cluster}}")],
        unit="bytes",
        stacked=True,
        calcs=("max", "last"),
    )


def memory() -> Json:
    return timeseries(
        "GPU memory by kind of holder",
        "All hosts together. `leftover`, `orphan`, `gone`: of what has ended. `unattributed`: of nobody that can be "
        "seen. The line: all there is.",
        [target(f"sum by (kind) ({BY_KIND})", "{{kind}}"), target(f"sum({TOTAL})", "there is", ref="B")],
        unit="bytes",
        stacked=True,
        overrides=[*colours(KINDS), line_over("^there is$")],
    )


def tokens(title: str, description: str, recorded: str) -> Json:
    return timeseries(
        title,
        description,
        [target(f"sum by (cluster, model) ({recorded})", "{{model}} {{cluster}}")],
        unit="suffix: tok/s",
        stacked=True,
    )


def looped() -> Json:
    # The same units at each step: those that had the most automatic starts within an hour.
    most = f"topk(15, max_over_time({AUTOMATIC}[$__range] @ end()) >= 2)"
    return state_timeline(
        "Units that looped",
        "What the fifteen units were doing that had the most automatic starts within an hour of the time shown, two "
        "at least. A gap: not known. No data: none looped, or nothing is recorded, which the first panel tells apart.",
        [target(f"max by ({BY_UNIT}) ({STATE} and on ({BY_UNIT}) {most})", "{{instance}} {{unit}}")],
        STATE_VALUES,
    )


def board() -> Json:
    layout = Layout()
    layout.line(3, *hosts_now(), widths=(5, 5, 5, 5, 4))
    layout.line(3, *units_now(), widths=(5, 5, 5, 5, 4))
    layout.line(8, tables.looping(), tables.stuck(), widths=(16, 8))
    layout.line(8, tables.lost(), tables.blind(), widths=(16, 8))
    layout.line(8, looped())
    layout.line(7, lost(), starts(), blind())
    layout.line(7, stuck(), memory())
    layout.line(
        7,
        tokens(
            "Tokens generated", "By model and cluster, the mean of five minutes. A gap: no engine tells.", GENERATED
        ),
        tokens("Prompt tokens", "By model and cluster, the mean of five minutes. A gap: no engine tells.", PROMPT),
    )
    layout.line(6, tables.clusters())
    return dashboard(
        "llmhost-fleet",
        "llmhost / Fleet",
        "All hosts: which units loop, where memory is stuck, what is lost by it, and which hosts cannot be seen.",
        layout,
        variables=cluster_variables(BLIND.partition("{")[0]),
    )
