"""Series of engines: readiness, throughput, requests. Pure."""

import math

from llmhost.derive.history.readiness import ready_budget_seconds
from llmhost.metrics import catalog
from llmhost.metrics.page import Page
from llmhost.metrics.shown_units import shown_units
from llmhost.metrics.view import PageView
from llmhost.model.engine import EngineSample
from llmhost.model.reading import Failed, Ok


def engine_series(view: PageView, page: Page) -> None:
    report, readiness = view.host.snapshot.engines, view.host.history.readiness
    for facts in shown_units(view, page):
        if facts.engine:
            budget = ready_budget_seconds(readiness.get(facts.unit.id), view.host.policy)
            unit = facts.unit.id
            page.add(catalog.UNIT_READY_BUDGET, budget, unit=unit.name, manager=unit.manager)
    if not isinstance(report, Ok):
        return
    for answer in report.value.answers:
        labels = {
            "unit": answer.unit.name,
            "manager": answer.unit.manager,
            "engine": answer.engine,
            "endpoint": answer.endpoint,
        }
        page.add(catalog.ENGINE_UP, isinstance(answer.samples, Ok), **labels)
        ready = readiness.get(answer.unit)
        page.add(catalog.ENGINE_READY, ready.seconds.get(answer.endpoint) if ready is not None else None, **labels)
        if isinstance(answer.samples, Failed):
            page.add(catalog.ENGINE_FAULT, 1, **labels, cause=answer.samples.cause)
        if isinstance(answer.samples, Ok):
            samples = {(sample.model, sample.engine_index): sample for sample in answer.samples.value}
            for sample in samples.values():
                _engine(sample, labels, page)


def _engine(sample: EngineSample, labels: dict[str, str], page: Page) -> None:
    labels = labels | {"model": sample.model, "engine_index": sample.engine_index}
    for family, value in (
        (catalog.ENGINE_GENERATION_TOKENS, sample.generation_tokens),
        (catalog.ENGINE_PROMPT_TOKENS, sample.prompt_tokens),
        (catalog.ENGINE_REQUESTS_RUNNING, sample.requests_running),
        (catalog.ENGINE_REQUESTS_WAITING, sample.requests_waiting),
        (catalog.ENGINE_KV_CACHE, sample.kv_cache_usage_ratio),
        (catalog.ENGINE_PREEMPTIONS, sample.preemptions),
        (catalog.ENGINE_STEPS, sample.steps),
        (catalog.ENGINE_SLEEPING, sample.sleeping),
    ):
        page.add(family, _finite(value), **labels)
    for reason, count in sorted(sample.finished.items()):
        page.add(catalog.ENGINE_FINISHED, _finite(count), **labels, reason=reason)


def _finite(value: float | None) -> float | None:
    """Keep the faults of one engine's samples from costing other engines their series."""
    return value if value is not None and math.isfinite(value) else None
