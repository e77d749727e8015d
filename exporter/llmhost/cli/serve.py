"""`llmhost serve`: the daemon, and `--once`, one page for cron, textfile collectors and people."""

import http.client
import logging
import platform
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from types import FrameType

from llmhost import __version__
from llmhost.assemble.exporter import Exporter, Paths, SystemClock, boot_id
from llmhost.cli.exits import Exit
from llmhost.cli.output import write_out
from llmhost.cli.status_pages import StatusPages
from llmhost.collect.recent_observations import RecentObservations
from llmhost.config.load import DEFAULT_PATH, ConfigError, load
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

_PROBE_SECONDS = 1.5  # for our own server; a signal is not looked at meanwhile
_MARGIN_SECONDS = 0.5  # of a scraper's timeout, for the page's way back
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    config: Path | None = None
    listen: str | None = None
    state_directory: Path | None = None
    once: bool = False
    paths: Paths = field(default_factory=Paths)


def run(arguments: Arguments) -> Exit:
    try:
        config = _load(arguments)
        remember = read_history if arguments.once else open_history
        remembered = remember(arguments.state_directory, boot_id(arguments.paths))
    except (ConfigError, StoreError) as error:
        sys.stderr.write(f"llmhost: {error}\n")
        return Exit.WRONG_USE
    daemon = Daemon(arguments, config, remembered)
    try:
        return daemon.print_once() if arguments.once else daemon.serve()
    finally:
        daemon.close()


def _load(arguments: Arguments) -> Config:
    config = load(arguments.config)
    if arguments.listen is None:
        return config
    return replace(config, web=replace(config.web, listen=arguments.listen))


class Daemon:
    def __init__(self, arguments: Arguments, config: Config, remembered: SavedHistory) -> None:
        self._arguments = arguments
        self._saved_history = remembered
        self._clock = SystemClock()
        self._in_force = InForce(config=config, loaded_at=self._clock.time(), reload_success=True)
        self._exporter = Exporter(
            config,
            arguments.paths,
            clock=self._clock,
            history=remembered.history,
            save=remembered.save,
            watch=not arguments.once,
        )
        recent = RecentObservations(self._exporter.observe, self._clock)
        self._status = StatusPages(recent, lambda: self._in_force, history_fault=remembered.fault)
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
            "/healthz": self._healthz,
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
        """Act on signals until one says to end; between them, tell systemd's watchdog that pages can be served."""
        patience = self._notifier.watchdog_seconds
        interval = patience / 4 if patience is not None else None  # several tries: one may come at a bad moment
        while True:
            ready, _, _ = select.select([arrived], [], [], interval)
            received = set(arrived.recv(64)) if ready else set()
            if received & {signal.SIGTERM, signal.SIGINT}:
                log.info("ending, as asked by %s", "SIGTERM" if signal.SIGTERM in received else "SIGINT")
                return
            if signal.SIGHUP in received:
                self._reload()
            if patience is not None and _answers(server, min(_PROBE_SECONDS, patience / 8)):
                self._notifier.send(WATCHDOG="1")

    def _reload(self) -> None:
        self._notifier.send(RELOADING="1", MONOTONIC_USEC=str(int(self._clock.monotonic() * 1e6)))
        try:
            config = _load(self._arguments)
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
        path = self._arguments.config or DEFAULT_PATH
        return str(path) if path.exists() else f"defaults (there is no {path})"

    def _deadline(self, scrape_timeout_seconds: float | None) -> float:
        patience = self._in_force.config.web.deadline_seconds
        if scrape_timeout_seconds is not None:
            patience = min(patience, max(_MARGIN_SECONDS, scrape_timeout_seconds - _MARGIN_SECONDS))
        return self._clock.monotonic() + patience

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
    """Signals as bytes on a socket, so that the main thread can wait for them with a timeout (signal.set_wakeup_fd)."""
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
    """Let the signal through to the wake-up socket instead of ending the process."""


def _answers(server: HttpServer, patience_seconds: float) -> bool:
    """Whether our own server answers: the watchdog must not be kept quiet by a thread that does not serve."""
    host, port = server.address  # a wildcard address connects to loopback
    try:
        with closing(http.client.HTTPConnection(host, port, timeout=patience_seconds)) as connection:
            connection.request("GET", "/healthz")
            connection.getresponse()  # of whatever status: "too busy" is a sign of life
            return True
    except (OSError, http.client.HTTPException) as error:
        log.warning("our own /healthz does not answer (%s); systemd's watchdog is not told that all is well", error)
        return False
