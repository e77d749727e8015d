"""Tables of the fleet board: the units, GPUs and hosts with the most of something, each with a link to its board."""

from grafana.boards.fleet.queries import (
    AUTOMATIC,
    BLIND,
    BLIND_BY_CLUSTER,
    FAILURES,
    GENERATED,
    LOOPS,
    LOST,
    LOST_BY_CLUSTER,
    RESIDENT,
    STARTS_BY_CLUSTER,
    STATE,
    STUCK,
    WANTED_BY_CLUSTER,
    hours,
    stuck_by,
)
from grafana.kit.dashboard import row_url
from grafana.kit.panels import (
    COLOURED_CELL,
    COLOURED_TEXT,
    NOT_KNOWN,
    STATE_VALUES,
    Json,
    link,
    override,
    table,
    thresholds,
)
from grafana.kit.queries import BAD, BY_HOST, BY_UNIT, ODD, or_cannot_tell, with_cluster

_STATE = override(
    "^state$",
    mappings=[*STATE_VALUES, *NOT_KNOWN],
    custom__width=130,
    custom__cellOptions=dict(COLOURED_CELL),
)
_CLUSTER = override("^cluster$", custom__width=80)
_TO_HOST = override(
    "^instance$", links=[link("The host", row_url("llmhost-host", "cluster", "instance"))], custom__minWidth=150
)
_TO_UNIT = override(
    "^unit$",
    links=[link("The unit", row_url("llmhost-incident", "cluster", "instance", "unit", "manager"))],
    custom__minWidth=120,
)


def _number(name: str, width: int, **more: object) -> Json:
    return override(f"^{name}$", custom__width=width, decimals=0, **more)


def looping() -> Json:
    most = f"topk(20, {LOOPS})"

    def of_looping(recorded: str) -> str:
        # with the few units on the right it is ten times as fast
        known = f"max by ({BY_UNIT}) ({recorded} and on ({BY_UNIT}) {most})"
        return with_cluster(or_cannot_tell(known, f"max by ({BY_UNIT}) ({most})"))

    return table(
        "Who loops",
        "The twenty units that systemd has started most often within the last hour, two times at least. Empty: none, "
        "or nothing is recorded, which the first panel tells apart.",
        [
            ("state", of_looping(STATE)),
            ("starts 1 h", of_looping(AUTOMATIC)),
            ("memory held", of_looping(RESIDENT)),
            ("failures 1 h", of_looping(FAILURES)),
        ],
        shown=("cluster", "instance", "unit"),
        for_links=("manager",),
        overrides=[
            _CLUSTER,
            _TO_HOST,
            _TO_UNIT,
            _STATE,
            _number("starts 1 h", 95),
            _number(
                "memory held",
                110,
                mappings=NOT_KNOWN,
                thresholds=thresholds((None, "text"), (1, BAD)),
                custom__cellOptions=dict(COLOURED_TEXT),
            ),
            _number("failures 1 h", 100, mappings=NOT_KNOWN),
        ],
        sort=("starts 1 h", True),
    )


def stuck() -> Json:
    by_gpu = f"{BY_HOST}, gpu, uuid"
    return table(
        "Where memory is stuck",
        "The forty GPUs with the most memory of ended runs, orphans, processes that are gone, and nobody; none with "
        "less than policy.resident. Empty: there is none, or no host tells of its GPUs' memory.",
        [("memory", with_cluster(f"max by ({by_gpu}) (topk(40, {STUCK}))"))],
        shown=("cluster", "instance", "gpu"),
        names={"gpu": "GPU"},
        overrides=[
            _CLUSTER,
            _TO_HOST,
            override("^GPU$", custom__width=60),
            override("^memory$", unit="bytes", decimals=1, custom__width=100),
        ],
        sort=("memory", True),
    )


def lost() -> Json:
    most = f"topk(20, max by ({BY_UNIT}) ({hours(LOST)}) > 0)"
    share = f"max by ({BY_UNIT}) (avg_over_time({LOST}[$__range]) and on ({BY_UNIT}) {most})"
    state = or_cannot_tell(f"max by ({BY_UNIT}) ({STATE} and on ({BY_UNIT}) {most})", most)
    return table(
        "Hours lost, time shown",
        "The twenty units that lost most: they should have run and were not active, or their engine did not answer, "
        "loading included. Time for which nothing is recorded adds none; the share is of the rest. Empty: nothing was "
        "lost, or nothing is recorded.",
        [
            ("lost", with_cluster(most)),
            ("share", with_cluster(share)),
            ("state", with_cluster(state)),
        ],
        shown=("cluster", "instance", "unit"),
        for_links=("manager",),
        overrides=[
            _CLUSTER,
            _TO_HOST,
            _TO_UNIT,
            override("^lost$", unit="suffix: h", decimals=1, custom__width=90),
            override("^share$", unit="percentunit", decimals=0, custom__width=80),
            _STATE,
        ],
        sort=("lost", True),
    )


def blind() -> Json:
    most = f"topk(40, max by ({BY_HOST}) ({hours(BLIND)}) and on ({BY_HOST}) {BLIND} == 1)"
    return table(
        "Blind hosts",
        "Forty of those that cannot be seen now, with the hours of the time shown for which they could not: the "
        "exporter cannot be scraped, or cannot read GPUs, processes or systemd. Empty: there is none, or nothing is "
        "recorded.",
        [("blind for", with_cluster(most))],
        shown=("cluster", "instance"),
        overrides=[_CLUSTER, _TO_HOST, override("^blind for$", unit="suffix: h", decimals=1, custom__width=100)],
        sort=("blind for", True),
    )


def clusters() -> Json:
    hosts = f"count by (cluster) ({BLIND})"

    def of_each(query: str) -> str:
        return with_cluster(or_cannot_tell(query, hosts))

    def summed(recorded: str) -> str:
        return of_each(f"sum by (cluster) ({recorded})")

    bad, odd = (thresholds((None, "text"), (1, colour)) for colour in (BAD, ODD))
    coloured = dict(COLOURED_TEXT)
    return table(
        "Clusters",
        "The numbers of the first line for each cluster. n/a: nothing is recorded of it.",
        [
            ("hosts", with_cluster(hosts)),
            ("blind", summed(BLIND_BY_CLUSTER)),
            ("wanted", summed(WANTED_BY_CLUSTER)),
            ("lost", summed(LOST_BY_CLUSTER)),
            ("starts 1 h", summed(STARTS_BY_CLUSTER)),
            ("stuck", of_each(stuck_by("cluster"))),
            ("generated", summed(GENERATED)),
        ],
        shown=("cluster",),
        overrides=[
            override("^cluster$", links=[link("This cluster alone", row_url("llmhost-fleet", "cluster"))]),
            override("^(hosts|blind|wanted|lost|starts 1 h)$", decimals=0, mappings=NOT_KNOWN),
            override("^blind$", thresholds=bad, custom__cellOptions=coloured),
            override("^lost$", thresholds=odd, custom__cellOptions=coloured),
            override("^stuck$", unit="bytes", mappings=NOT_KNOWN, thresholds=bad, custom__cellOptions=coloured),
            override("^generated$", unit="suffix: tok/s", decimals=0, mappings=NOT_KNOWN),
        ],
        sort=("hosts", True),
    )
