"""The status as the exporter serves it: the page at `/`, and the same as `llmhost status --json`."""

import platform
from collections.abc import Callable
from typing import Final

from llmhost import __version__
from llmhost.collect.recent_observations import RecentObservations
from llmhost.decide.doctor.diagnose import diagnose
from llmhost.decide.health import health_of
from llmhost.derive.facts import derive
from llmhost.derive.host_view import HostView
from llmhost.derive.rates import rates
from llmhost.metrics.collector import InForce
from llmhost.serve.routes import Response, policy_for
from llmhost.views.page.document import About, status_page
from llmhost.views.page.script import SCRIPT
from llmhost.views.page.style import STYLE
from llmhost.views.status.as_json import status_json

# However many pages are open, the host is looked at for them no more often than that; a scrape's look serves as well.
FRESH_SECONDS: Final = 5.0
_POLICY: Final = policy_for(style=STYLE, script=SCRIPT)
_OURS_ALONE: Final = ("Cross-Origin-Resource-Policy", "same-origin")


class StatusPages:
    def __init__(self, recent: RecentObservations, in_force: Callable[[], InForce], *, history_fault: str) -> None:
        self._recent = recent
        self._in_force = in_force
        self._history_fault = history_fault
        self._host_name = platform.node()

    def page(self, deadline: float) -> Response:
        view, age_seconds = self._look(deadline)
        about = About(host_name=self._host_name, version=__version__, age_seconds=age_seconds)
        body = status_page(view, health_of(view), diagnose(view), about)
        headers = (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Security-Policy", _POLICY),
            _OURS_ALONE,
        )
        return Response(headers=headers, body=body.encode())

    def json(self, deadline: float) -> Response:
        view, _ = self._look(deadline)
        headers = (("Content-Type", "application/json"), _OURS_ALONE)
        return Response(headers=headers, body=status_json(view, health_of(view)).encode())

    def _look(self, deadline: float) -> tuple[HostView, float]:
        """Look, unless somebody just has; rates are told from a look before, if there was one not long ago."""
        since = self._recent.within(FRESH_SECONDS, deadline)
        snapshot, history = since.observation.snapshot, since.observation.history
        config = self._in_force().config
        view = HostView(
            snapshot=snapshot,
            facts=derive(snapshot, config, history),
            history=history,
            policy=config.policy,
            gpus_expected=config.gpus.expected,
            rates=rates(since.before, snapshot) if since.before is not None else {},
            history_fault=self._history_fault,
        )
        return view, since.age_seconds
