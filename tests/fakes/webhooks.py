"""A receiver on loopback that keeps the notifications of a real Alertmanager.

with Webhooks() as hooks: …; hooks.until(lambda: hooks.sent("pager"))
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert of a notification."""

    status: str  # firing, resolved
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.labels["alertname"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """The content of one POST: Alertmanager sends one for a group when it is new and when it has changed."""

    at_monotonic: float
    receiver: str
    status: str  # firing where any of its alerts is
    group: str
    alerts: tuple[Alert, ...]

    def names(self, status: str = "firing") -> list[str]:
        return sorted(alert.name for alert in self.alerts if alert.status == status)


class Webhooks:
    """Listens until the end of its `with`; `on_notification` is called with each, one after the other."""

    def __init__(self, on_notification: Callable[[Notification], None] = lambda _: None) -> None:
        self._all: list[Notification] = []
        self._news = threading.Condition()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:  # noqa: N805 - http.server's name; self is the receiver
                body = handler.rfile.read(int(handler.headers["Content-Length"]))
                self._take(json.loads(body), on_notification)
                handler.send_response(200)
                handler.send_header("Content-Length", "0")
                handler.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - http.server's
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def _take(self, said: dict[str, Any], tell: Callable[[Notification], None]) -> None:
        got = Notification(
            at_monotonic=time.monotonic(),
            receiver=said["receiver"],
            status=said["status"],
            group=said["groupKey"],
            alerts=tuple(
                Alert(status=alert["status"], labels=alert["labels"], annotations=alert["annotations"])
                for alert in said["alerts"]
            ),
        )
        with self._news:
            self._all.append(got)
            tell(got)
            self._news.notify_all()

    def sent(self, receiver: str | None = None, **labels: str) -> list[Notification]:
        """Give what came for this receiver, of which an alert has these labels, oldest first."""
        with self._news:
            return [
                notification
                for notification in self._all
                if receiver in {None, notification.receiver}
                and any(labels.items() <= dict(alert.labels).items() for alert in notification.alerts)
            ]

    def until(self, condition: Callable[[], object], seconds: float = 120.0) -> None:
        """Wait until it holds; it is checked after each notification, and now and then."""
        end = time.monotonic() + seconds
        with self._news:
            while not condition():
                assert time.monotonic() < end, f"it never came true: {self._all}"
                self._news.wait(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
