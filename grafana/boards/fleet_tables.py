"""Tables of the board of a fleet: the few that have the most of something, each row with a link to where it is told."""

from grafana.boards.fleet_queries import (
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
from grafana.kit.panels import COLOURED_CELL, COLOURED_TEXT, STATE_VALUES, Json, link, only, table, thresholds, values
from grafana.kit.queries import BAD, BY_HOST, BY_UNIT, CALM, CANNOT_TELL, ODD, or_cannot_tell, with_cluster

_NOT_KNOWN = values({CANNOT_TELL: ("n/a", CALM)})


_STATE = only(
    "^state$",
    mappings=[*STATE_VALUES, *_NOT_KNOWN],
    custom__width=130,
    custom__cellOptions=dict(COLOURED_CELL),
)
_CLUSTER = only("^cluster$", custom__width=80)
_TO_HOST = only(
    "^instance$", links=[link("The host", row_url("llmhost-host", "cluster", "instance"))], custom__minWidth=150
)
_TO_UNIT = only(
    "^unit$",
    links=[link("The unit", row_url("llmhost-incident", "cluster", "instance", "unit", "manager"))],
    custom__minWidth=120,
)


def _number(name: str, width: int, **more: object) -> Json:
    return only(f"^{name}$", custom__width=width, decimals=0, **more)


def looping() -> Json:
    those = f"topk(20, {LOOPS})"

    def of_those(recorded: str) -> str:
        known = f"max by ({BY_UNIT}) ({recorded} and on ({BY_UNIT}) {those})"  # the few first: it is ten times as fast
        return with_cluster(or_cannot_tell(known, f"max by ({BY_UNIT}) ({those})"))

    return table(
        "Who loops",
        "The twenty units that systemd has started most often within the last hour, two times at least. Empty: none, "
        "or nothing is recorded, which the first panel tells apart.",
        [
            ("state", of_those(STATE)),
            ("starts 1 h", of_those(AUTOMATIC)),
            ("memory held", of_those(RESIDENT)),
            ("failures 1 h", of_those(FAILURES)),
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
                mappings=_NOT_KNOWN,
                thresholds=thresholds((None, "text"), (1, BAD)),
                custom__cellOptions=dict(COLOURED_TEXT),
            ),
            _number("failures 1 h", 100, mappings=_NOT_KNOWN),
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
            only("^GPU$", custom__width=60),
            only("^memory$", unit="bytes", decimals=1, custom__width=100),
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
            only("^lost$", unit="suffix: h", decimals=1, custom__width=90),
            only("^share$", unit="percentunit", decimals=0, custom__width=80),
            _STATE,
        ],
        sort=("lost", True),
    )


def blind() -> Json:
    those = f"topk(40, max by ({BY_HOST}) ({hours(BLIND)}) and on ({BY_HOST}) {BLIND} == 1)"
    return table(
        "Blind hosts",
        "Forty of those that cannot be seen now, with the hours of the time shown for which they could not: the "
        "exporter cannot be scraped, or cannot read GPUs, processes or systemd. Empty: there is none, or nothing is "
        "recorded.",
        [("blind for", with_cluster(those))],
        shown=("cluster", "instance"),
        overrides=[_CLUSTER, _TO_HOST, only("^blind for$", unit="suffix: h", decimals=1, custom__width=100)],
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
            only("^cluster$", links=[link("This cluster alone", row_url("llmhost-fleet", "cluster"))]),
            only("^(hosts|blind|wanted|lost|starts 1 h)$", decimals=0, mappings=_NOT_KNOWN),
            only("^blind$", thresholds=bad, custom__cellOptions=coloured),
            only("^lost$", thresholds=odd, custom__cellOptions=coloured),
            only("^stuck$", unit="bytes", mappings=_NOT_KNOWN, thresholds=bad, custom__cellOptions=coloured),
            only("^generated$", unit="suffix: tok/s", decimals=0, mappings=_NOT_KNOWN),
        ],
        sort=("hosts", True),
    )
