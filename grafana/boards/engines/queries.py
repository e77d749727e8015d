"""Queries of the engines board, by unit and model, data-parallel ranks together."""

from grafana.kit.causes import OF_ENGINES, OK_OR_CAUSE, cause_code
from grafana.kit.panels import value_mappings
from grafana.kit.queries import BAD, BY_UNIT, CALM, UNIT, WORSE

MODEL = f'{UNIT}, model=~"$model"'
BY_ENGINE = f"{BY_UNIT}, engine, endpoint"
BY_MODEL = f"{BY_ENGINE}, model"

_ASLEEP, _HANGS, _DOWN, _STOPPED = 2, 3, 4, 5
STATES = OK_OR_CAUSE + value_mappings(
    {
        _ASLEEP: ("asleep", CALM),
        _HANGS: ("hangs", WORSE),
        _DOWN: ("unit is down", BAD),
        _STOPPED: ("unit was stopped", CALM),
    }
)


def engine_state(matchers: str, by: str = BY_ENGINE) -> str:
    """Query the state, one of STATES, of each server, and of each unit that is down and has no server.

    By unit it is the worst state of its servers: one hangs, one does not answer, one is asleep, all are ok.
    """
    asleep = f"max by ({by}) (llmhost_engine_sleeping{{{matchers}}} == 1)"
    why = cause_code("llmhost_engine_fault", matchers, by, OF_ENGINES)
    up = f"llmhost_engine_up{{{matchers}}}"
    wanted = f"max by ({BY_UNIT}) (llmhost_unit_wanted{{{matchers}}})"
    return (
        f"{_HANGS} * {_hung(matchers, by)} or {why} or min by ({by}) ({up} == 0)"
        f" or {_ASLEEP} * {asleep} or min by ({by}) ({up})"
        f" or {_STOPPED} - ({wanted} and on ({BY_UNIT}) {down(matchers)})"
    )


def down(matchers: str) -> str:
    """Query units that run an engine, are not active, and have no server."""
    return (
        f"llmhost_unit_ready_budget_seconds{{{matchers}}} and on ({BY_UNIT})"
        f' llmhost_unit_active_state{{state=~"inactive|failed|activating|deactivating|maintenance", {matchers}}} == 1'
        f" unless on ({BY_UNIT}) llmhost_engine_up{{{matchers}}}"
    )


def _hung(matchers: str, by: str) -> str:
    """Query: 1 for servers that answer, have requests and make no progress, as in LlmhostEngineHung."""
    each = f"{BY_MODEL}, engine_index"
    asleep = f"llmhost_engine_sleeping{{{matchers}}} == 1"

    def least(gauge: str) -> str:
        return f"min_over_time(llmhost_engine_requests_{gauge}{{{matchers}}}[5m]) > 0"

    def more(counter: str) -> str:
        return f"increase(llmhost_engine_{counter}_total{{{matchers}}}[5m])"

    return (
        f"max by ({by}) (({least('running')} or {least('waiting')})"
        f" and on ({each}) {more('generation_tokens')} == 0"
        f" unless on ({each}) ({more('steps')} > 0 or {more('prompt_tokens')} > 0 or {asleep})"
        f" and on ({BY_ENGINE}) llmhost_engine_up{{{matchers}}} == 1) ^ 0"
    )


def rate(counter: str, by: str = BY_MODEL) -> str:
    return f"sum by ({by}) (rate(llmhost_engine_{counter}_total{{{MODEL}}}[$__rate_interval]))"


def summed(gauge: str, by: str = BY_MODEL) -> str:
    return f"sum by ({by}) (llmhost_engine_{gauge}{{{MODEL}}})"
