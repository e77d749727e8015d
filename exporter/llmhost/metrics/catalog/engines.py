"""Engines: their own metrics, and their load times."""

from llmhost.metrics.catalog.declare import MetricKind, Mode, Section, family, of_engine, of_model

ENGINE_UP = of_engine(
    "up", "1: the server's metrics were read. 0: they were not. Absent for a server without metrics by design."
)
ENGINE_FAULT = of_engine("fault", "Cause for which they were not read, value 1.", "cause", mode=Mode.CURRENT)
ENGINE_GENERATION_TOKENS = of_model(
    "generation_tokens_total", "Tokens generated, as the engine counts them.", kind=MetricKind.COUNTER
)
ENGINE_PROMPT_TOKENS = of_model(
    "prompt_tokens_total", "Prompt tokens, as the engine counts them.", kind=MetricKind.COUNTER
)
ENGINE_REQUESTS_RUNNING = of_model("requests_running", "Running requests.")
ENGINE_REQUESTS_WAITING = of_model("requests_waiting", "Waiting requests.")
ENGINE_KV_CACHE = of_model("kv_cache_usage_ratio", "Share of the KV cache in use, 0 to 1.")
ENGINE_PREEMPTIONS = of_model(
    "preemptions_total", "Requests that were preempted, as the engine counts them.", kind=MetricKind.COUNTER
)
ENGINE_FINISHED = of_model(
    "requests_finished_total", "Finished requests by reason.", "reason", kind=MetricKind.COUNTER, mode=Mode.SPARSE
)
ENGINE_STEPS = of_model(
    "steps_total",
    "Iterations of the engine loop. Absent where the engine does not report them.",
    kind=MetricKind.COUNTER,
)
ENGINE_READY = of_engine(
    "ready_seconds",
    "Time from the unit's start to the engine's first response seen by a scrape. Absent unless the start was seen.",
)
UNIT_READY_BUDGET = family(
    Section.ENGINES,
    "unit_ready_budget_seconds",
    "Time that a start may take: 3 times the longest of the last ten seen, at least policy.ready.",
    "unit",
    "manager",
)
ENGINE_SLEEPING = of_model("sleeping", "1: the engine is asleep (vLLM sleep mode).")
