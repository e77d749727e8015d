"""PromQL of the board of engines: by unit and model, data-parallel ranks together."""

from grafana.kit.causes import OF_ENGINES, OK_OR_WHY, ok_or_why
from grafana.kit.panels import values
from grafana.kit.queries import BY_UNIT, CALM, UNIT

MODEL = f'{UNIT}, model=~"$model"'
BY_ENGINE = f"{BY_UNIT}, engine, endpoint"
BY_MODEL = f"{BY_ENGINE}, model"

_ASLEEP = 2
STATES = values({_ASLEEP: ("asleep", CALM)}) + OK_OR_WHY


def engine_state(matchers: str) -> str:
    """One number per server, one of STATES: whether its metrics could be read, and if not, why."""
    asleep = f"max by ({BY_ENGINE}) (llmhost_engine_sleeping{{{matchers}}} == 1)"
    why = ok_or_why("llmhost_engine_up", "llmhost_engine_fault", matchers, BY_ENGINE, OF_ENGINES)
    return f"{_ASLEEP} * {asleep} or {why}"


def rate(counter: str, by: str = BY_MODEL) -> str:
    return f"sum by ({by}) (rate(llmhost_engine_{counter}_total{{{MODEL}}}[$__rate_interval]))"


def summed(gauge: str, by: str = BY_MODEL) -> str:
    return f"sum by ({by}) (llmhost_engine_{gauge}{{{MODEL}}})"
