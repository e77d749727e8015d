"""The status page of written hosts, served as the exporter serves it."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.hosts.views import view_of
from tests.hosts.written import looked_at, read

from llmhost.decide.doctor.diagnose import diagnose
from llmhost.decide.health import health_of
from llmhost.derive.host_view import HostView
from llmhost.serve.routes import Handler, Response, policy_for
from llmhost.views.page.document import About, status_page
from llmhost.views.page.script import SCRIPT
from llmhost.views.page.style import STYLE


def written(name: str) -> HostView:
    with tempfile.TemporaryDirectory() as directory, looked_at(read(name), Path(directory)) as observed:
        return view_of(observed)


def text_of(view: HostView, *, age_seconds: float = 0.0) -> str:
    about = About(host_name="gpu-host-1", version="1.2.3", age_seconds=age_seconds)
    return status_page(view, health_of(view), diagnose(view), about)


def handler(page: Callable[[], str]) -> Handler:
    headers = (
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Security-Policy", policy_for(style=STYLE, script=SCRIPT)),
    )
    return lambda _: Response(headers=headers, body=page().encode())
