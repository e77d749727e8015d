"""A thread that reads the metrics of one server when it is asked to."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from llmhost.model.engine import EngineAnswer, EngineServer
from llmhost.model.reading import Cause, Failed
from llmhost.sources.engine.server_client import ServerClient

FRESH_SECONDS: Final = 1.0  # age up to which an answer counts that came too late for the read that asked for it
log = logging.getLogger(__name__)


class ServerPoller:
    """A daemon thread of its own, so that a server which hangs holds up nobody.

    A request under way is never doubled: a read that asks meanwhile waits for it.
    """

    def __init__(
        self, server: EngineServer, client: ServerClient, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._server = server
        self._client = client
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._requested = False
        self._busy = False
        self._ended = False
        self._late = False
        self._answer: EngineAnswer | None = None
        self._answered_at = 0.0
        self._logged: Cause | None = None
        self._thread = threading.Thread(target=self._run, name="llmhost-engine-poller", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        return self._busy

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def endpoint(self) -> str:
        return self._client.endpoint

    def ask(self, server: EngineServer) -> None:
        """Have it asked, unless it is being asked, or has answered since anybody took an answer."""
        with self._changed:
            self._server = server
            if self._answer is not None and self._monotonic() - self._answered_at > FRESH_SECONDS:
                self._answer = None
            if self._answer is None and not self._busy:
                self._requested = True
                self._changed.notify_all()

    def answer(self, until: float, *, if_late: float) -> EngineAnswer:
        """Wait for the answer, and take it. Past `until`, or `if_late` if it was late before, it is TIMEOUT."""
        with self._changed:
            seconds = (min(until, if_late) if self._late else until) - self._monotonic()
            self._changed.wait_for(lambda: self._answer is not None or self._ended, timeout=max(0.0, seconds))
            answer, self._answer = self._answer, None
            if answer is not None:
                return answer
            self._late = True
            return EngineAnswer(
                unit=self._server.unit,
                engine=self._server.engine,
                endpoint=self._client.endpoint,
                samples=Failed(Cause.TIMEOUT, f"{self._client.endpoint} has not answered yet"),
            )

    def end(self) -> None:
        """Let the thread end, also out of a request; `join` waits for it."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._client.cancel()

    def join(self, seconds: float) -> None:
        self._thread.join(max(0.0, seconds))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._requested or self._ended)
                if self._ended:
                    return
                self._requested = False
                self._busy = True
                server = self._server
            answer = self._poll(server)
            self._log(answer)
            with self._changed:
                self._late = isinstance(answer.samples, Failed) and answer.samples.cause is Cause.TIMEOUT
                self._busy = False
                self._answer = answer
                self._answered_at = self._monotonic()
                self._changed.notify_all()

    def _poll(self, server: EngineServer) -> EngineAnswer:
        try:
            return self._client.answer(server)
        except Exception as error:
            log.exception("collector engine: a bug in a visit to %s", self._client.endpoint)
            return EngineAnswer(
                unit=server.unit,
                engine=server.engine,
                endpoint=self._client.endpoint,
                samples=Failed(Cause.UNKNOWN, f"{type(error).__name__}: {error}"),
            )

    def _log(self, answer: EngineAnswer) -> None:
        """Log what changed: once per fault, not once per scrape."""
        samples = answer.samples
        cause = samples.cause if isinstance(samples, Failed) else None
        if cause is self._logged:
            return
        self._logged = cause
        if isinstance(samples, Failed):
            level = logging.INFO if cause is Cause.STARTING else logging.WARNING
            log.log(level, "engine of %s at %a: %s (%a)", answer.unit.name, answer.endpoint, cause, samples.detail)
        else:
            log.info("engine of %s at %a answers", answer.unit.name, answer.endpoint)
