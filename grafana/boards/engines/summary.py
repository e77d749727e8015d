"""The top of the engines board: the state at the end of the time shown, in sum and by engine."""

from grafana.boards.engines.queries import BY_ENGINE, BY_MODEL, MODEL, STATES, down, engine_state, rate, summed
from grafana.boards.shared import visibility
from grafana.kit.dashboard import row_url
from grafana.kit.panels import BAD_FROM_1, COLOURED_CELL, NOT_KNOWN, Json, instant, link, override, stat, table
from grafana.kit.queries import BY_UNIT, UNIT, or_cannot_tell, with_cluster, zero_where


def banner() -> list[Json]:
    up = f"llmhost_engine_up{{{UNIT}}}"
    wanted = f"llmhost_unit_wanted{{{UNIT}}} == 1"
    loads = f'llmhost_engine_fault{{cause="starting", {UNIT}}}'
    return [
        visibility(),
        stat(
            "Servers up",
            "Servers of engines whose metrics were read. No data: the exporter finds none, or is not scraped.",
            [instant(f"sum({up})")],
            unit="none",
        ),
        stat(
            "… silent",
            "Servers whose metrics were not read, other than those that load. One whose process has ended is in "
            "neither number: the unit's state tells of it.",
            [instant(zero_where(up, f"{up} == 0 unless on ({BY_ENGINE}) {loads}"))],
            unit="none",
            steps=BAD_FROM_1,
        ),
        stat(
            "… loading",
            "Servers of units that are up which have not answered yet.",
            [instant(zero_where(up, loads))],
            unit="none",
        ),
        stat(
            "Units down",
            "Units that run engines, should be up, and are not active. No data: no such unit is known, or nobody "
            "looks.",
            [
                instant(
                    zero_where(
                        f"llmhost_unit_ready_budget_seconds{{{UNIT}}}", f"{down(UNIT)} and on ({BY_UNIT}) {wanted}"
                    )
                )
            ],
            unit="none",
            steps=BAD_FROM_1,
        ),
        stat(
            "Generated",
            "Tokens, as the engines count them. No data: no engine answers.",
            [instant(rate("generation_tokens", ""))],
            unit="suffix: tok/s",
            decimals=0,
        ),
        stat(
            "Requests",
            "Those that the engines work on, and those that they have not begun, or have set back. No data: no engine "
            "answers.",
            [
                instant(summed("requests_running", ""), "running"),
                instant(summed("requests_waiting", ""), "waiting", ref="B"),
            ],
            unit="none",
        ),
        stat(
            "KV cache",
            "Share in use on the engine core that has least of it left. Near 100 % is well under load, unless requests "
            "wait. No data: no engine tells.",
            [instant(f"max(llmhost_engine_kv_cache_usage_ratio{{{MODEL}}})")],
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
            override("^(unit|model)$", custom__minWidth=110),
            override("^endpoint$", custom__minWidth=150),
            override(
                "^unit$",
                links=[link("The unit", row_url("llmhost-incident", "cluster", "instance", "unit", "manager"))],
            ),
            override("^cluster$", custom__width=80),
            override("^instance$", custom__minWidth=140),
            override("^engine$", custom__width=65),
            override(
                "^state$",
                mappings=[*STATES, *NOT_KNOWN],
                custom__width=115,
                custom__cellOptions=dict(COLOURED_CELL),
            ),
            override("^generated$", unit="suffix: tok/s", decimals=0, custom__width=100, mappings=NOT_KNOWN),
            override("^(running|waiting)$", decimals=0, custom__width=70, mappings=NOT_KNOWN),
            override("^KV cache$", unit="percentunit", decimals=0, custom__width=85, mappings=NOT_KNOWN),
            override("^ready in$", unit="s", decimals=0, custom__width=78, mappings=NOT_KNOWN),
        ],
        sort=("state", True),  # what does not answer comes first
    )
