"""A thread that visits one server when it is asked to."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from llmhost.model.engine import EngineAnswer, EngineServer
from llmhost.model.reading import Cause, Failed
from llmhost.sources.engine.fetch import Line
from llmhost.sources.engine.server_client import Visitor

FRESH_SECONDS: Final = 1.0  # how old the answer of a visit may be that nobody was waiting for any more
log = logging.getLogger(__name__)


class Asker:
    """A daemon thread of its own, so that a server which hangs holds up nobody.

    A visit under way is never doubled: who asks meanwhile waits for that one.
    """

    def __init__(
        self, server: EngineServer, visitor: Visitor, line: Line, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._server = server
        self._visitor = visitor
        self._line = line
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._asked = False
        self._busy = False
        self._ended = False
        self._late = False
        self._answer: EngineAnswer | None = None
        self._answered_at = 0.0
        self._logged: Cause | None = None
        self._thread = threading.Thread(target=self._run, name="llmhost-engine-asker", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        return self._busy

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def endpoint(self) -> str:
        return self._visitor.endpoint

    def ask(self, server: EngineServer) -> None:
        """Have it visited, unless it is being, or has been since anybody took an answer."""
        with self._changed:
            self._server = server
            if self._answer is not None and self._monotonic() - self._answered_at > FRESH_SECONDS:
                self._answer = None
            if self._answer is None and not self._busy:
                self._asked = True
                self._changed.notify_all()

    def answer(self, until: float, *, if_late: float) -> EngineAnswer:
        """Wait for the answer, and take it. Past `until`, or `if_late` if it was late before, it is TIMEOUT."""
        with self._changed:
            patience = (min(until, if_late) if self._late else until) - self._monotonic()
            self._changed.wait_for(lambda: self._answer is not None or self._ended, timeout=max(0.0, patience))
            answer, self._answer = self._answer, None
            if answer is not None:
                return answer
            self._late = True
            return EngineAnswer(
                unit=self._server.unit,
                engine=self._server.engine,
                endpoint=self._visitor.endpoint,
                samples=Failed(Cause.TIMEOUT, f"{self._visitor.endpoint} has not answered yet"),
            )

    def end(self) -> None:
        """Let the thread end, also out of a visit; to wait for it is `join`'s."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._line.cut()

    def join(self, seconds: float) -> None:
        self._thread.join(max(0.0, seconds))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked or self._ended)
                if self._ended:
                    return
                self._asked = False
                self._busy = True
                server = self._server
            answer = self._visit(server)
            self._log(answer)
            with self._changed:
                self._late = isinstance(answer.samples, Failed) and answer.samples.cause is Cause.TIMEOUT
                self._busy = False
                self._answer = answer
                self._answered_at = self._monotonic()
                self._changed.notify_all()

    def _visit(self, server: EngineServer) -> EngineAnswer:
        try:
            return self._visitor.visit(server)
        except Exception as error:
            log.exception("collector engine: a bug in a visit to %s", self._visitor.endpoint)
            return EngineAnswer(
                unit=server.unit,
                engine=server.engine,
                endpoint=self._visitor.endpoint,
                samples=Failed(Cause.UNKNOWN, f"{type(error).__name__}: {error}"),
            )

    def _log(self, answer: EngineAnswer) -> None:
        """Say what changed: once per fault, not once per scrape."""
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
