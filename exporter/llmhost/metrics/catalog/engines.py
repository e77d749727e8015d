"""What engines tell of themselves, and how long they take to be ready."""

from llmhost.metrics.catalog.declare import Kind, Mode, Section, family, of_engine, of_model

ENGINE_UP = of_engine("up", "1: its metrics were read. 0: not. Absent for a server that has none by design.")
ENGINE_FAULT = of_engine("fault", "Why they were not read, value 1.", "cause", mode=Mode.CURRENT)
ENGINE_GENERATION_TOKENS = of_model(
    "generation_tokens_total", "Tokens generated, as the engine counts them.", kind=Kind.COUNTER
)
ENGINE_PROMPT_TOKENS = of_model("prompt_tokens_total", "Prompt tokens, as the engine counts them.", kind=Kind.COUNTER)
ENGINE_REQUESTS_RUNNING = of_model("requests_running", "Requests being worked on.")
ENGINE_REQUESTS_WAITING = of_model("requests_waiting", "Requests that wait.")
ENGINE_KV_CACHE = of_model("kv_cache_usage_ratio", "Share of the KV cache in use, 0 to 1.")
ENGINE_PREEMPTIONS = of_model("preemptions_total", "Requests that were set back to waiting.", kind=Kind.COUNTER)
ENGINE_FINISHED = of_model(
    "requests_finished_total", "Requests that ended, by reason.", "reason", kind=Kind.COUNTER, mode=Mode.SPARSE
)
ENGINE_STEPS = of_model("steps_total", "Iterations of the engine loop, where the engine tells.", kind=Kind.COUNTER)
ENGINE_READY = of_engine(
    "ready_seconds",
    "From the unit's start to the engine's first answer, as noticed by a scrape; absent unless the start was seen.",
)
UNIT_READY_BUDGET = family(
    Section.ENGINES,
    "unit_ready_budget_seconds",
    "How long a start may take: 3 times the longest of the last ten that were seen, never less than policy.ready.",
    "unit",
    "manager",
)
ENGINE_SLEEPING = of_model("sleeping", "1: the engine is put to sleep.")
