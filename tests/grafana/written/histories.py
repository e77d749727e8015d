"""All written histories by name; the docstring of each one's module says what is true in it."""

from collections.abc import Callable, Mapping

from tests.grafana.written.incident import incident
from tests.grafana.written.series import History

HISTORIES: Mapping[str, Callable[[], History]] = {
    "incident": incident,
}
