"""The status as the exporter serves it: the page at `/`, and JSON as `llmhost status --json` prints it."""

import platform
from collections.abc import Callable
from typing import Final

from llmhost import __version__
from llmhost.collect.recent_observations import RecentObservations
from llmhost.decide.doctor.diagnose import diagnose
from llmhost.decide.health import health_of
from llmhost.derive.host_view import HostView, host_view
from llmhost.metrics.collector import InForce
from llmhost.serve.routes import Response, policy_for
from llmhost.views.page.document import About, status_page
from llmhost.views.page.script import SCRIPT
from llmhost.views.page.style import STYLE
from llmhost.views.status.as_json import status_json

# However many pages are open, they cause no more observations than one in that time; a scrape's serves as well.
FRESH_SECONDS: Final = 5.0
_POLICY: Final = policy_for(style=STYLE, script=SCRIPT)
_OURS_ALONE: Final = ("Cross-Origin-Resource-Policy", "same-origin")


class StatusPages:
    def __init__(
        self, recent: RecentObservations, in_force: Callable[[], InForce], *, history_fault: str, config_file: str
    ) -> None:
        self._recent = recent
        self._in_force = in_force
        self._history_fault = history_fault
        self._config_file = config_file
        self._host_name = platform.node()

    def page(self, deadline: float) -> Response:
        view, age_seconds = self._view(deadline)
        about = About(host_name=self._host_name, version=__version__, age_seconds=age_seconds)
        body = status_page(view, health_of(view), diagnose(view), about)
        headers = (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Security-Policy", _POLICY),
            _OURS_ALONE,
        )
        return Response(headers=headers, body=body.encode())

    def json(self, deadline: float) -> Response:
        view, _ = self._view(deadline)
        headers = (("Content-Type", "application/json"), _OURS_ALONE)
        return Response(headers=headers, body=status_json(view, health_of(view)).encode())

    def _view(self, deadline: float) -> tuple[HostView, float]:
        """Observe, unless that was done a moment ago; rates are over the time since an earlier observation."""
        since = self._recent.within(FRESH_SECONDS, deadline)
        view = host_view(
            since.observation.snapshot,
            since.observation.history,
            self._in_force().config,
            before=since.before,
            history_fault=self._history_fault,
            config_file=self._config_file,
        )
        return view, since.age_seconds
