"""How the engines stand at the end of the time shown: all that are chosen together, and each by itself."""

from grafana.boards.engines_queries import BY_ENGINE, BY_MODEL, MODEL, STATES, down, engine_state, rate, summed
from grafana.boards.shared import can_be_seen
from grafana.kit.dashboard import row_url
from grafana.kit.panels import COLOURED_CELL, Json, link, now, only, stat, table, thresholds, values
from grafana.kit.queries import BAD, BY_UNIT, CALM, CANNOT_TELL, GOOD, UNIT, or_cannot_tell, with_cluster, zero_where

_NOT_KNOWN = values({CANNOT_TELL: ("n/a", CALM)})


def banner() -> list[Json]:
    up = f"llmhost_engine_up{{{UNIT}}}"
    wanted = f"llmhost_unit_wanted{{{UNIT}}} == 1"
    loads = f'llmhost_engine_fault{{cause="starting", {UNIT}}}'
    return [
        can_be_seen(),
        stat(
            "Servers up",
            "Servers of engines whose metrics were read. No data: the exporter finds none, or is not scraped.",
            [now(f"sum({up})")],
            unit="none",
        ),
        stat(
            "… silent",
            "Servers whose metrics were not read, other than those that load. One whose process has ended is in "
            "neither number: the unit's state tells of it.",
            [now(zero_where(up, f"{up} == 0 unless on ({BY_ENGINE}) {loads}"))],
            unit="none",
            steps=thresholds((None, GOOD), (1, BAD)),
        ),
        stat(
            "… loading",
            "Servers of units that are up which have not answered yet.",
            [now(zero_where(up, loads))],
            unit="none",
        ),
        stat(
            "Units down",
            "Units that run engines, should be up, and are not active. No data: no such unit is known, or nobody "
            "looks.",
            [
                now(
                    zero_where(
                        f"llmhost_unit_ready_budget_seconds{{{UNIT}}}", f"{down(UNIT)} and on ({BY_UNIT}) {wanted}"
                    )
                )
            ],
            unit="none",
            steps=thresholds((None, GOOD), (1, BAD)),
        ),
        stat(
            "Generated",
            "Tokens, as the engines count them. No data: no engine answers.",
            [now(rate("generation_tokens", ""))],
            unit="suffix: tok/s",
            decimals=0,
        ),
        stat(
            "Requests",
            "Those that the engines work on, and those that they have not begun, or have set back. No data: no engine "
            "answers.",
            [
                now(summed("requests_running", ""), "running"),
                now(summed("requests_waiting", ""), "waiting", ref="B"),
            ],
            unit="none",
        ),
        stat(
            "KV cache",
            "Share in use on the engine core that has least of it left. Near 100 % is well under load, unless requests "
            "wait. No data: no engine tells.",
            [now(f"max(llmhost_engine_kv_cache_usage_ratio{{{MODEL}}})")],
            unit="percentunit",
            decimals=0,
        ),
    ]


def engines_now() -> Json:
    running = f"llmhost_engine_requests_running{{{MODEL}}}"
    models = f"max by ({BY_MODEL}) ({running})"
    # A server that does not answer has no models.
    silent = f"max by ({BY_ENGINE}) (llmhost_engine_up{{{UNIT}}} == 0)"
    rows = f"0 * {models} or 0 * {silent} or 0 * max by ({BY_UNIT}) ({down(UNIT)})"

    def of_each(query: str) -> str:
        return with_cluster(or_cannot_tell(query, rows))

    def of_its_server(query: str) -> str:
        return f"({rows}) + on ({BY_ENGINE}) group_left () ({query})"

    return table(
        "Engines",
        "Each model of each server at the end of the time shown, data-parallel ranks together; a server that does not "
        "answer has a row without a model, and a unit that is down has one without a server. n/a: it does not tell. "
        "Empty: no engine is known, or nobody looks.",
        [
            ("state", of_each(of_its_server(engine_state(UNIT)))),
            ("generated", of_each(rate("generation_tokens"))),
            ("running", of_each(summed("requests_running"))),
            ("waiting", of_each(summed("requests_waiting"))),
            ("KV cache", of_each(f"max by ({BY_MODEL}) (llmhost_engine_kv_cache_usage_ratio{{{MODEL}}})")),
            (
                "ready in",
                of_each(of_its_server(f"max by ({BY_ENGINE}) (llmhost_engine_ready_seconds{{{UNIT}}})")),
            ),
        ],
        shown=("cluster", "instance", "unit", "model", "engine", "endpoint"),
        for_links=("manager",),
        overrides=[
            only("^(unit|model)$", custom__minWidth=110),
            only("^endpoint$", custom__minWidth=150),
            only(
                "^unit$",
                links=[link("The unit", row_url("llmhost-incident", "cluster", "instance", "unit", "manager"))],
            ),
            only("^cluster$", custom__width=80),
            only("^instance$", custom__minWidth=140),
            only("^engine$", custom__width=65),
            only(
                "^state$",
                mappings=[*STATES, *_NOT_KNOWN],
                custom__width=115,
                custom__cellOptions=dict(COLOURED_CELL),
            ),
            only("^generated$", unit="suffix: tok/s", decimals=0, custom__width=100, mappings=_NOT_KNOWN),
            only("^(running|waiting)$", decimals=0, custom__width=70, mappings=_NOT_KNOWN),
            only("^KV cache$", unit="percentunit", decimals=0, custom__width=85, mappings=_NOT_KNOWN),
            only("^ready in$", unit="s", decimals=0, custom__width=78, mappings=_NOT_KNOWN),
        ],
        sort=("state", True),  # what does not answer comes first
    )
