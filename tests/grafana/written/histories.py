"""All written histories by name; the docstring of each one's module says what is true in it."""

from collections.abc import Callable, Mapping

from tests.grafana.written.absences import absences
from tests.grafana.written.blind import blind
from tests.grafana.written.fleet import fleet
from tests.grafana.written.incident import incident
from tests.grafana.written.lost_gpu import lost_gpu
from tests.grafana.written.quiet import quiet
from tests.grafana.written.series import History

HISTORIES: Mapping[str, Callable[[], History]] = {
    "incident": incident,
    "quiet": quiet,
    "lost_gpu": lost_gpu,
    "blind": blind,
    "fleet": fleet,
    "absences": absences,
}
