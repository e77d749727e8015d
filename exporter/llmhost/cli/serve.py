"""`llmhost serve`: the daemon; with `--once`, one page for cron, textfile collectors and people."""

import http.client
import logging
import platform
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http import HTTPStatus
from types import FrameType

from llmhost import __version__
from llmhost.assemble.exporter import Exporter
from llmhost.assemble.sources import Sources
from llmhost.cli.exits import Exit
from llmhost.cli.output import write_out
from llmhost.cli.requests import ServeRequest
from llmhost.cli.status_pages import StatusPages
from llmhost.collect.clock import SystemClock
from llmhost.collect.recent_observations import RecentObservations
from llmhost.config.load import ConfigError, load
from llmhost.config.paths import DEFAULT_CONFIG
from llmhost.config.schema import Config
from llmhost.metrics.collector import Exposition, InForce
from llmhost.metrics.exposition import encode
from llmhost.model.listen import ListenAddress
from llmhost.serve.access import may_see_all
from llmhost.serve.http import HttpServer, ListenError
from llmhost.serve.routes import Request, Response, html, text
from llmhost.sources.sd_notify import Notifier
from llmhost.state.directory import StoreError
from llmhost.state.saved_history import SavedHistory, open_history, read_history
from llmhost.views.page.landing import landing

log = logging.getLogger(__name__)

_PROBE_SECONDS = 1.5  # for our own server; signals wait meanwhile
_MARGIN_SECONDS = 0.5  # of a scraper's timeout, for the page's way back
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run(request: ServeRequest) -> Exit:
    try:
        config = _load(request)
        take = read_history if request.once else open_history
        saved = take(request.state_directory, Sources(paths=request.paths).boot_id)
    except (ConfigError, StoreError) as error:
        sys.stderr.write(f"llmhost: {error}\n")
        return Exit.WRONG_USE
    if request.once and saved.fault:
        log.warning("there is no history: %s", saved.fault)
    daemon = Daemon(request, config, saved)
    try:
        return daemon.print_once() if request.once else daemon.serve()
    finally:
        daemon.close()


def _load(request: ServeRequest) -> Config:
    config = load(request.config)
    if request.listen is None:
        return config
    return replace(config, web=replace(config.web, listen=request.listen))


class Daemon:
    def __init__(self, request: ServeRequest, config: Config, saved: SavedHistory) -> None:
        self._request = request
        self._saved_history = saved
        self._clock = SystemClock()
        self._in_force = InForce(config=config, loaded_at=self._clock.time(), reload_success=True)
        self._exporter = Exporter(
            config,
            request.paths,
            clock=self._clock,
            history=saved.history,
            save=saved.save,
            watch=not request.once,
        )
        recent = RecentObservations(self._exporter.observe, self._clock)
        self._status = StatusPages(
            recent, lambda: self._in_force, history_fault=saved.fault, config_file=str(request.config or DEFAULT_CONFIG)
        )
        self._exposition = Exposition(
            observe=recent.observe,
            in_force=lambda: self._in_force,
            version=__version__,
            revision="",
            python_version=platform.python_version(),
        )
        self._notifier = Notifier()
        self._port = 0  # once it listens, that on which it does

    def close(self) -> None:
        self._exporter.close()
        self._saved_history.close(self._exporter.history)

    def print_once(self) -> Exit:
        page, _ = encode(self._exposition.metrics(self._deadline(None)), accept="")
        write_out(page.decode())
        return Exit.GOOD

    def serve(self) -> Exit:
        routes = {
            "/": self._root,
            "/api/status": self._api_status,
            "/metrics": self._metrics,
            **dict.fromkeys(("/healthz", "/-/healthy", "/-/ready"), self._healthz),
        }
        web = self._in_force.config.web
        try:
            server = HttpServer(web.listen, routes, max_connections=web.max_connections)
        except ListenError as error:
            sys.stderr.write(f"llmhost: {error}\n")
            return Exit.WRONG_USE
        self._port = server.address[1]
        try:
            with _signals() as arrived:
                server.start()
                self._exporter.start_watching()
                address = ListenAddress(host=server.address[0], port=server.address[1])
                log.info("llmhost %s serves on http://%s, config: %s", __version__, address, self._config_name())
                self._saved_history.log_where()
                self._notifier.send(READY="1", STATUS=f"serving on {address}")
                self._wait(arrived, server)
        finally:
            self._notifier.send(STOPPING="1")
            server.stop()
        return Exit.GOOD

    def _wait(self, arrived: socket.socket, server: HttpServer) -> None:
        """Handle signals until one ends the daemon; meanwhile notify systemd's watchdog while pages can be served."""
        limit = self._notifier.watchdog_seconds
        interval = limit / 4 if limit is not None else None  # several tries: one may come at a bad moment
        while True:
            ready, _, _ = select.select([arrived], [], [], interval)
            received = set(arrived.recv(64)) if ready else set()
            if received & {signal.SIGTERM, signal.SIGINT}:
                log.info("ending, as asked by %s", "SIGTERM" if signal.SIGTERM in received else "SIGINT")
                return
            if signal.SIGHUP in received:
                self._reload()
            if limit is not None and _answers(server, min(_PROBE_SECONDS, limit / 8)):
                self._notifier.send(WATCHDOG="1")

    def _reload(self) -> None:
        self._notifier.send(RELOADING="1", MONOTONIC_USEC=str(int(self._clock.monotonic() * 1e6)))
        try:
            config = _load(self._request)
        except ConfigError as error:
            self._in_force = replace(self._in_force, reload_success=False)
            self._notifier.send(STATUS=f"bad config, the old one runs on: {error}")
            log.error("the config is bad, the old one runs on: %s", error)  # noqa: TRY400 - a user's mistake, no traceback
        else:
            late = self._exporter.configure(config)
            self._in_force = InForce(config=config, loaded_at=self._clock.time(), reload_success=True)
            if late:
                log.warning("the config is reloaded from %s; restart for: %s", self._config_name(), ", ".join(late))
            else:
                log.info("the config is reloaded from %s", self._config_name())
            self._notifier.send(STATUS="serving, config reloaded")
        self._notifier.send(READY="1")

    def _config_name(self) -> str:
        path = self._request.config or DEFAULT_CONFIG
        return str(path) if path.exists() else f"defaults (there is no {path})"

    def _deadline(self, scrape_timeout_seconds: float | None) -> float:
        seconds = self._in_force.config.web.deadline_seconds
        if scrape_timeout_seconds is not None:
            seconds = min(seconds, max(_MARGIN_SECONDS, scrape_timeout_seconds - _MARGIN_SECONDS))
        return self._clock.monotonic() + seconds

    def _metrics(self, request: Request) -> Response:
        metrics = self._exposition.metrics(self._deadline(request.scrape_timeout_seconds))
        body, content_type = encode(metrics, request.headers.get("accept", ""), request.query.get("name[]", ()))
        return Response(headers=(("Content-Type", content_type), ("Vary", "Accept")), body=body)

    def _healthz(self, _request: Request) -> Response:
        return text("ok\n")

    def _root(self, request: Request) -> Response:
        if may_see_all(request):
            return self._status.page(self._deadline(None))
        return html(landing(__version__, self._port))

    def _api_status(self, request: Request) -> Response:
        if may_see_all(request):
            return self._status.json(self._deadline(None))
        return text("only from this host itself: http://localhost…\n", status=HTTPStatus.FORBIDDEN)


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """Yield a socket that has a byte for each signal, so that one can wait with a timeout (signal.set_wakeup_fd)."""
    here, there = socket.socketpair()
    with here, there:
        there.setblocking(False)
        before = signal.set_wakeup_fd(there.fileno())
        handlers = {number: signal.signal(number, _noted) for number in _SIGNALS}
        try:
            yield here
        finally:
            signal.set_wakeup_fd(before)
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the signal goes to the wake-up socket, and does not end the process."""


def _answers(server: HttpServer, timeout_seconds: float) -> bool:
    """Tell if our own server answers: systemd's watchdog is to notice when it does not."""
    host, port = server.address  # a wildcard address connects to loopback
    try:
        with closing(http.client.HTTPConnection(host, port, timeout=timeout_seconds)) as connection:
            connection.request("GET", "/healthz")
            connection.getresponse()  # of whatever status: "too busy" is a sign of life
            return True
    except (OSError, http.client.HTTPException) as error:
        log.warning("our own /healthz does not answer (%s); systemd's watchdog is not told that all is well", error)
        return False
