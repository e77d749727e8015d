"""PromQL of the board of engines: by unit and model, data-parallel ranks together."""

from grafana.kit.causes import OF_ENGINES, OK_OR_WHY, ok_or_why
from grafana.kit.panels import values
from grafana.kit.queries import BAD, BY_UNIT, CALM, UNIT, WORSE

MODEL = f'{UNIT}, model=~"$model"'
BY_ENGINE = f"{BY_UNIT}, engine, endpoint"
BY_MODEL = f"{BY_ENGINE}, model"

_ASLEEP, _HANGS, _DOWN, _STOPPED = 2, 3, 4, 5
STATES = OK_OR_WHY + values(
    {
        _ASLEEP: ("asleep", CALM),
        _HANGS: ("hangs", WORSE),
        _DOWN: ("unit is down", BAD),
        _STOPPED: ("unit was stopped", CALM),
    }
)


def engine_state(matchers: str) -> str:
    """One number per server, one of STATES; and per unit that runs an engine, where it is down and has no server."""
    asleep = f"max by ({BY_ENGINE}) (llmhost_engine_sleeping{{{matchers}}} == 1)"
    why = ok_or_why("llmhost_engine_up", "llmhost_engine_fault", matchers, BY_ENGINE, OF_ENGINES)
    wanted = f"max by ({BY_UNIT}) (llmhost_unit_wanted{{{matchers}}})"
    return (
        f"{_ASLEEP} * {asleep} or {_HANGS} * {_hung(matchers)} or {why}"
        f" or {_STOPPED} - ({wanted} and on ({BY_UNIT}) {down(matchers)})"
    )


def down(matchers: str) -> str:
    """Units that run an engine, are not active, and have no server that is asked."""
    return (
        f"llmhost_unit_ready_budget_seconds{{{matchers}}} and on ({BY_UNIT})"
        f' llmhost_unit_active_state{{state=~"inactive|failed|activating|deactivating|maintenance", {matchers}}} == 1'
        f" unless on ({BY_UNIT}) llmhost_engine_up{{{matchers}}}"
    )


def _hung(matchers: str) -> str:
    """1 for servers that have requests and do nothing about them, as in LlmhostEngineHung."""
    each = f"{BY_MODEL}, engine_index"

    def least(gauge: str) -> str:
        return f"min_over_time(llmhost_engine_requests_{gauge}{{{matchers}}}[5m]) > 0"

    def more(counter: str) -> str:
        return f"increase(llmhost_engine_{counter}_total{{{matchers}}}[5m])"

    return (
        f"max by ({BY_ENGINE}) (({least('running')} or {least('waiting')})"
        f" and on ({each}) {more('generation_tokens')} == 0"
        f" unless on ({each}) ({more('steps')} > 0 or {more('prompt_tokens')} > 0)) ^ 0"
    )


def rate(counter: str, by: str = BY_MODEL) -> str:
    return f"sum by ({by}) (rate(llmhost_engine_{counter}_total{{{MODEL}}}[$__rate_interval]))"


def summed(gauge: str, by: str = BY_MODEL) -> str:
    return f"sum by ({by}) (llmhost_engine_{gauge}{{{MODEL}}})"
