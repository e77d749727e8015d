"""The host board's engines: their state, tokens, requests and KV cache over time."""

from grafana.kit.causes import OF_ENGINES, OK_OR_CAUSE, ok_or_cause
from grafana.kit.panels import Json, state_timeline, target, timeseries
from grafana.kit.queries import BY_UNIT, HOST


def engines_over_time() -> Json:
    return state_timeline(
        "Whether engines answer",
        "Whether the metrics of each unit's engines could be read, and if not, why. A gap: no engine runs, or it has "
        "none by design.",
        [
            target(
                ok_or_cause("llmhost_engine_up", "llmhost_engine_fault", HOST, BY_UNIT, OF_ENGINES),
                "{{instance}} {{unit}}",
            )
        ],
        OK_OR_CAUSE,
    )


def engines() -> list[Json]:
    def rate(tokens: str) -> str:
        return f"sum by ({BY_UNIT}) (rate(llmhost_engine_{tokens}_tokens_total{{{HOST}}}[$__rate_interval]))"

    def total(metric: str) -> str:
        return f"sum by ({BY_UNIT}) (llmhost_engine_{metric}{{{HOST}}})"

    unit = "{{instance}} {{unit}}"
    return [
        timeseries(
            "Tokens",
            "Generated, and read from prompts, as the engines of each unit count them. A gap: no engine answers.",
            [target(rate("generation"), f"{unit} generated"), target(rate("prompt"), f"{unit} prompt", ref="B")],
            unit="suffix: tok/s",
        ),
        timeseries(
            "Requests",
            "What the engines of each unit work on, and what waits. A gap: no engine answers.",
            [
                target(total("requests_running"), f"{unit} running"),
                target(total("requests_waiting"), f"{unit} waiting", ref="B"),
            ],
            unit="none",
        ),
        timeseries(
            "KV cache in use",
            "Of the fullest engine of each unit. Requests wait, or are set back, where it is full. A gap: no engine "
            "answers.",
            [target(f"max by ({BY_UNIT}) (llmhost_engine_kv_cache_usage_ratio{{{HOST}}})", unit)],
            unit="percentunit",
            max=1,
        ),
    ]
