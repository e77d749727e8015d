"""The written histories by name; the docstring of each history's module says what happens in it."""

from collections.abc import Callable, Mapping

from tests.grafana.histories.absences import absences
from tests.grafana.histories.blind import blind
from tests.grafana.histories.fleet import fleet
from tests.grafana.histories.incident import incident
from tests.grafana.histories.lost_gpu import lost_gpu
from tests.grafana.histories.quiet import quiet
from tests.grafana.histories.series import History

HISTORIES: Mapping[str, Callable[[], History]] = {
    "incident": incident,
    "quiet": quiet,
    "lost_gpu": lost_gpu,
    "blind": blind,
    "fleet": fleet,
    "absences": absences,
}
