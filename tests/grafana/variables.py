"""The variables of a board, and their values in queries and titles, as Grafana 13.2 puts them there (escaping.ts).

Our boards' variables are all `multi` and have an `allValue`: tests/grafana/test_dashboards.py holds them to that.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LabelValues = Callable[[str, str], Sequence[str]]  # selector ("" for all series), label -> values

_NAME = re.compile(r"\$(\w+)|\$\{(\w+)\}")
_LABEL_VALUES = re.compile(r"label_values\((?:(.+), )?(\w+)\)")
_REGEX = re.compile(r"[$^*{}\[\]+?.()|]")


@dataclass(frozen=True)
class Variable:
    name: str
    values: tuple[str, ...]
    all_value: str = ""  # where All is chosen

    def in_query(self) -> str:
        """Return the pattern: values are escaped for the regular expression, and again for PromQL's string."""
        if self.all_value:
            return self.all_value
        escaped = [_REGEX.sub(r"\\\\\g<0>", value.replace("\\", r"\\\\")) for value in self.values]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"

    def in_title(self) -> str:
        return "All" if self.all_value else " + ".join(self.values) or "None"


def variables(
    board: Mapping[str, Any], label_values: LabelValues, chosen: Mapping[str, Sequence[str]]
) -> dict[str, Variable]:
    """Fill a board's variables in their order: what is chosen, else All where it is offered, else the first value."""
    found: dict[str, Variable] = {}
    for declared in board["templating"]["list"]:
        if declared["type"] != "query":
            continue
        name, query = declared["name"], queries(declared["query"]["query"], found)
        query_match = _LABEL_VALUES.fullmatch(query)
        assert query_match, f"variable {name}: not label_values(): {query}"
        values = label_values(query_match[1] or "", query_match[2])
        if name in chosen:
            found[name] = Variable(name, tuple(chosen[name]))
        elif declared["includeAll"]:
            found[name] = Variable(name, tuple(values), declared["allValue"])
        else:
            found[name] = Variable(name, tuple(values[:1]))
    return found


def queries(expr: str, chosen: Mapping[str, Variable], step: int = 60, seconds: int = 6 * 3600) -> str:
    """Return the query that Prometheus gets, for this step and time shown."""
    values = {name: variable.in_query() for name, variable in chosen.items()}
    times = {"__interval": f"{step}s", "__rate_interval": f"{4 * step}s", "__range": f"{seconds}s"}
    return _replaced(expr, values | times)


def titles(text: str, chosen: Mapping[str, Variable]) -> str:
    return _replaced(text, {name: variable.in_title() for name, variable in chosen.items()})


def _replaced(text: str, values: Mapping[str, str]) -> str:
    return _NAME.sub(lambda match: values.get(match[1] or match[2], match[0]), text)
