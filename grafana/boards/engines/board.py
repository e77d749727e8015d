"""The engines board: throughput, queue, KV cache and time to ready, by unit and model.

It uses the metrics that all engines have. For latencies each board links to dashboards with the tag vllm.
"""

from grafana.boards.engines.queries import BY_MODEL, MODEL, STATES, engine_state, rate, summed
from grafana.boards.engines.summary import banner, engines_now
from grafana.kit.dashboard import Layout, annotation, dashboard, host_variables, pages, unit_variables, variable
from grafana.kit.panels import DASHED, Json, colours, override, state_timeline, target, timeseries, value_mappings
from grafana.kit.queries import BAD, BY_UNIT, CALM, GOOD, HOST, ODD, UNIT

OF_MODEL = "{{instance}} {{unit}} {{model}}"
OF_RANK = "{{instance}} {{unit}} {{engine_index}}"
TOKENS = "suffix: tok/s"
REASONS = {"stop": GOOD, "length": "light-green", "abort": ODD, "error": BAD, "repetition": "purple"}


def states() -> Json:
    return state_timeline(
        "Whether engines answer",
        "Of each unit, the worst of its servers. `starting`: it is up and has not answered yet. `hangs`: it has "
        "requests and does nothing, for five minutes. `unit is down`: it should be up. A gap: no server is found, or "
        "nobody looks.",
        [target(engine_state(UNIT, BY_UNIT), "{{instance}} {{unit}}")],
        STATES,
    )


def throughput() -> list[Json]:
    each = f"sum by ({BY_MODEL}) (avg_over_time(llmhost_engine_requests_running{{{MODEL}}}[$__rate_interval]))"
    return [
        timeseries(
            "Tokens generated",
            "As the engines count them, data-parallel ranks together. A gap: the engine does not answer.",
            [target(rate("generation_tokens"), OF_MODEL)],
            unit=TOKENS,
            calcs=("mean", "last"),
        ),
        timeseries(
            "Prompt tokens",
            "As the engines count them; engines differ in whether they count what they have cached. A gap: the engine "
            "does not answer.",
            [target(rate("prompt_tokens"), OF_MODEL)],
            unit=TOKENS,
            calcs=("mean", "last"),
        ),
        timeseries(
            "Tokens generated per running request",
            "About how fast one reader sees text come. A gap: nothing runs, or the engine does not answer.",
            [target(f"{rate('generation_tokens')} / ({each} > 0)", OF_MODEL)],
            unit=TOKENS,
            calcs=("mean", "last"),
        ),
    ]


def requests() -> list[Json]:
    return [
        timeseries(
            "Requests that run",
            "What the engines work on. A gap: the engine does not answer.",
            [target(summed("requests_running"), OF_MODEL)],
            calcs=("max", "last"),
        ),
        timeseries(
            "Requests that wait",
            "What the engines have not begun yet, or have set back. A gap: the engine does not answer.",
            [target(summed("requests_waiting"), OF_MODEL)],
            calcs=("max", "last"),
        ),
        timeseries(
            "Requests that ended, by reason",
            "All that are chosen together. `length`: the limit of tokens was reached; `abort`: the client went away. "
            "No data: no engine tells, as SGLang and llama.cpp do not.",
            [target(rate("requests_finished", "reason"), "{{reason}}")],
            unit="suffix: /s",
            stacked=True,
            overrides=colours(REASONS),
        ),
    ]


def cache() -> list[Json]:
    return [
        timeseries(
            "KV cache in use",
            "Of the fullest data-parallel rank. Near 100 % requests wait, and running ones are set back. A gap: the "
            "engine does not answer, or does not tell.",
            [target(f"max by ({BY_MODEL}) (llmhost_engine_kv_cache_usage_ratio{{{MODEL}}})", OF_MODEL)],
            unit="percentunit",
            max=1,
            calcs=("max", "last"),
        ),
        timeseries(
            "Preemptions",
            "Requests that were set back to waiting for want of KV cache, and are worked out anew. No data: no engine "
            "tells.",
            [target(rate("preemptions"), OF_MODEL)],
            unit="suffix: /s",
            calcs=("max", "last"),
        ),
        timeseries(
            "Steps",
            "Iterations of the engines' loops. At 0 while requests run the engine hangs. No data: no engine tells.",
            [target(rate("steps"), OF_MODEL)],
            unit="suffix: /s",
        ),
    ]


def readiness() -> Json:
    began = f"max by ({BY_UNIT}) (llmhost_unit_last_start_timestamp_seconds{{{UNIT}}})"
    loads = f'llmhost_engine_fault{{cause="starting", {UNIT}}}'
    name = "{{instance}} {{unit}}"
    return timeseries(
        "From start to first answer",
        "How long the last start took until the engine answered, as a scrape noticed. Rising: a load that goes on. "
        "Dashed: what it may take, 3 times the longest of the last ten and never less than policy.ready.",
        [
            target(f"max by ({BY_UNIT}) (llmhost_engine_ready_seconds{{{UNIT}}})", f"{name} took"),
            target(f"time() - {began} and on ({BY_UNIT}) {loads}", f"{name} so far", ref="B"),
            target(f"max by ({BY_UNIT}) (llmhost_unit_ready_budget_seconds{{{UNIT}}})", f"{name} may take", ref="C"),
        ],
        unit="s",
        overrides=[override(" may take$", custom__lineStyle=dict(DASHED))],
    )


def asleep() -> Json:
    return state_timeline(
        "Asleep",
        "Engines that were put to sleep: they answer, and give GPU memory back. No data: no engine tells, which vLLM "
        "does where its sleep mode is on.",
        [target(f"max by ({BY_MODEL}) (llmhost_engine_sleeping{{{MODEL}}})", OF_MODEL)],
        value_mappings({0: ("awake", GOOD), 1: ("asleep", CALM)}),
    )


def ranks() -> list[Json]:
    by_rank = f"{BY_MODEL}, engine_index"
    several = f"count by ({BY_MODEL}) (group by ({by_rank}) (llmhost_engine_requests_running{{{MODEL}}})) > 1"

    def of_ranks(query: str) -> str:
        return f"{query} and on ({BY_MODEL}) {several}"

    note = "Where they differ, the load is not shared evenly. No data: no engine has more than one."
    return [
        timeseries(
            "Tokens by data-parallel rank",
            f"Tokens generated by each engine core of a server with several. {note}",
            [target(of_ranks(rate("generation_tokens", by_rank)), OF_RANK)],
            unit=TOKENS,
        ),
        timeseries(
            "Requests by data-parallel rank",
            f"Requests that run on each engine core of a server with several. {note}",
            [target(of_ranks(summed("requests_running", by_rank)), OF_RANK)],
        ),
        timeseries(
            "KV cache by data-parallel rank",
            f"KV cache in use on each engine core of a server with several. {note}",
            [target(of_ranks(f"max by ({by_rank}) (llmhost_engine_kv_cache_usage_ratio{{{MODEL}}})"), OF_RANK)],
            unit="percentunit",
            max=1,
        ),
    ]


def board() -> Json:
    layout = Layout()
    layout.line(4, *banner())
    layout.line(8, engines_now())
    layout.line(6, states())
    layout.line(8, *throughput())
    layout.line(8, *requests())
    layout.line(8, *cache())
    layout.line(8, readiness(), asleep(), widths=(16, 8))
    layout.heading("Data-parallel ranks, where a server has several")
    layout.line(6, *ranks())
    return dashboard(
        "llmhost-engines",
        "llmhost / Engines",
        "What the engines deliver, by unit and model, and how long they take to be ready.",
        layout,
        variables=[
            *host_variables(),
            *unit_variables("llmhost_engine_up"),
            # "All" includes engines without a model label.
            variable(
                "model", "Model", f"label_values(llmhost_engine_requests_running{{{UNIT}}}, model)", everything=".*"
            ),
        ],
        annotations=[
            pages(f'{HOST}, unit=~"$unit|"', text="{{unit}} {{gpu}}"),
            annotation(
                "Starts",
                "blue",
                f"max by (unit) (llmhost_unit_last_start_timestamp_seconds{{{UNIT}}}) * 1000",
                title="start",
                text="{{unit}}",
                at_value=True,
            ),
        ],
    )
