"""Whole pages from values: what an exposition makes of an observation that a test hands in."""

from prometheus_client.parser import text_string_to_metric_families as parse_text

from llmhost.collect.observer import Observation
from llmhost.collect.worker import CollectorHealth
from llmhost.config.schema import Config
from llmhost.metrics.collector import Exposition, InForce
from llmhost.metrics.exposition import encode
from llmhost.metrics.sections import SECTIONS, Section
from llmhost.model.history.history import History
from llmhost.model.reading import Cause, Failed
from llmhost.model.snapshot import Snapshot

HEALTH = (
    CollectorHealth(
        collector="nvml", fault=None, duration_seconds=0.01, last_success_at=5.0, failures={Cause.TIMEOUT: 2}
    ),
    CollectorHealth(
        collector="systemd", fault=Failed(Cause.NO_BUS), duration_seconds=0.01, last_success_at=None, failures={}
    ),
)


def exposition(
    taken: Snapshot,
    config: Config | None = None,
    sections: tuple[tuple[str, Section], ...] = SECTIONS,
    history: History | None = None,
) -> Exposition:
    in_force = InForce(config=config or Config(), loaded_at=7.0, reload_success=True)
    return Exposition(
        observe=lambda _deadline: Observation(snapshot=taken, history=history or History(), health=HEALTH),
        in_force=lambda: in_force,
        version="0.1.0",
        revision="abc",
        python_version="3.11.7",
        sections=sections,
    )


def samples(made: Exposition) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    page, _ = encode(made.metrics(0), accept="")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse_text(page.decode())
        for sample in family.samples
    }
