"""A client of one server, which remembers where its metrics were found, and that it has answered."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from llmhost.model.engine import EngineAnswer, EngineSample, EngineServer
from llmhost.model.reading import Cause, Failed, Ok, Reading
from llmhost.sources.base import SourceError
from llmhost.sources.engine.discover import (
    Candidate,
    configured,
    discover,
    expected_endpoint,
    is_loopback,
    other_scheme,
)
from llmhost.sources.engine.fetch import CancellableConnection, NoHttpError, StatusError, fetch
from llmhost.sources.engine.parse import parse_metrics
from llmhost.sources.engine.sockets import still_holds
from llmhost.sources.narrowed_view import require_host_network

PROBE_SECONDS: Final = 2.0  # for a socket that may be no HTTP server: a ZeroMQ socket never ends its answer
MOST_PROBED: Final = 4  # sockets that the arguments do not name, each of which may take PROBE_SECONDS
SETTLED_SECONDS: Final = 60.0  # how long a server that has no metrics anywhere is asked at one place only

# Causes that tell of a server's answer, or of one that is to come; the most telling first.
_TELLING = (Cause.NO_METRICS, Cause.UNAUTHORIZED, Cause.NOT_FOUND, Cause.HTTP_STATUS, Cause.TOO_LARGE, Cause.TIMEOUT)


@dataclass(frozen=True, slots=True)
class _Settled:
    """The candidate that is asked alone from now on."""

    candidate: Candidate
    until: float | None  # None: its metrics were read there


class ServerClient:
    """Used by one thread at a time; `endpoint` is read by others."""

    def __init__(
        self,
        server: EngineServer,
        *,
        procfs: Path,
        timeout_seconds: float,
        max_bytes: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = expected_endpoint(server)
        self._procfs = procfs
        self._timeout_seconds = timeout_seconds
        self._max_bytes = max_bytes
        self._connection = CancellableConnection()
        self._monotonic = monotonic
        self._settled: _Settled | None = None
        self._answered = False

    def cancel(self) -> None:
        """End the request that is under way, and let none start any more; from any thread."""
        self._connection.cancel()

    def answer(self, server: EngineServer) -> EngineAnswer:
        """Ask it for its metrics. Never raises SourceError: that is the answer's reading."""
        samples: Reading[tuple[EngineSample, ...]]
        try:
            samples = Ok(self._samples(server))
            self._answered = True
        except SourceError as error:
            samples = Failed(self._cause(error, server), error.detail)
        return EngineAnswer(unit=server.unit, engine=server.engine, endpoint=self.endpoint, samples=samples)

    def _cause(self, error: SourceError, server: EngineServer) -> Cause:
        """Tell loading from a fault. Once it has answered it is loading no longer; llama.cpp answers 503 until then."""
        unready = error.cause is Cause.REFUSED or (
            isinstance(error, StatusError) and error.status == HTTPStatus.SERVICE_UNAVAILABLE
        )
        return Cause.STARTING if unready and server.starting and not self._answered else error.cause

    def _samples(self, server: EngineServer) -> tuple[EngineSample, ...]:
        deadline = self._monotonic() + self._timeout_seconds
        if server.url:
            return self._ask_configured(configured(self._procfs, server), server, deadline)
        settled = self._still_settled()
        if settled is not None:
            sure = settled.candidate.by_arguments or settled.until is None
            return self._ask(settled.candidate, server, deadline if sure else self._soon(deadline))
        self.endpoint = expected_endpoint(server)
        found = discover(self._procfs, server)
        self.endpoint = found[0].target.endpoint
        return self._first_that_answers(found, server, deadline)

    def _ask_configured(self, candidate: Candidate, server: EngineServer, deadline: float) -> tuple[EngineSample, ...]:
        try:
            return self._ask(candidate, server, deadline)
        except SourceError as error:
            if error.cause is Cause.REFUSED and is_loopback(candidate.target):
                require_host_network(str(self._procfs))  # else it was our own loopback that refused
            raise

    def _still_settled(self) -> _Settled | None:
        """Forget a place that its server does not listen on any more: another's may be there now."""
        settled = self._settled
        if settled is not None:
            late = settled.until is not None and self._monotonic() > settled.until
            held = settled.candidate.held
            if late or held is None or not still_holds(self._procfs, held):
                settled = self._settled = None
        return settled

    def _first_that_answers(
        self, found: Sequence[Candidate], server: EngineServer, deadline: float
    ) -> tuple[EngineSample, ...]:
        """Ask each until one has the engine's metrics; settle there, or at the one with the most telling failure.

        The answer at the port of the arguments is the server's answer, whatever it is, and a busy server has none yet:
        its other sockets (ZeroMQ's, torch's stores) are not bothered.
        """
        failures: list[tuple[Candidate, SourceError]] = []
        only = len({candidate.held for candidate in found}) == 1
        first = [candidate for candidate in found if candidate.by_arguments]
        by_sockets = [candidate for candidate in found if not candidate.by_arguments]
        for candidate in (*first, *by_sockets[:MOST_PROBED]):
            try:
                return self._settle(candidate, server, deadline if candidate.by_arguments else self._soon(deadline))
            except SourceError as error:
                last = error
                failures.append((candidate, error))
            if isinstance(last, NoHttpError) and (candidate.by_arguments or only):
                other = other_scheme(candidate)
                try:
                    return self._settle(other, server, self._soon(deadline))
                except SourceError as error:
                    if _is_answer(error):  # else it speaks neither with TLS nor without
                        last = error
                        failures.append((other, error))
            if candidate.by_arguments and (_is_answer(last) or last.cause is Cause.TIMEOUT):
                break
        likeliest, failure = min(failures, key=lambda failed: _rank(failed[1]))
        self.endpoint = likeliest.target.endpoint
        self._settled = _Settled(likeliest, until=self._monotonic() + SETTLED_SECONDS)
        raise failure

    def _soon(self, deadline: float) -> float:
        return min(deadline, self._monotonic() + PROBE_SECONDS)

    def _settle(self, candidate: Candidate, server: EngineServer, deadline: float) -> tuple[EngineSample, ...]:
        samples = self._ask(candidate, server, deadline)
        self._settled = _Settled(candidate, until=None)
        return samples

    def _ask(self, candidate: Candidate, server: EngineServer, deadline: float) -> tuple[EngineSample, ...]:
        self.endpoint = candidate.target.endpoint
        body = fetch(
            candidate.target,
            deadline=deadline,
            max_bytes=self._max_bytes,
            cancellable=self._connection,
            monotonic=self._monotonic,
        )
        return parse_metrics(body, server.engine)


def _is_answer(error: SourceError) -> bool:
    """Tell if HTTP was spoken."""
    if isinstance(error, NoHttpError):
        return False
    return error.cause is Cause.MALFORMED or (error.cause in _TELLING and error.cause is not Cause.TIMEOUT)


def _rank(error: SourceError) -> int:
    return _TELLING.index(error.cause) if error.cause in _TELLING else len(_TELLING)
