"""Source of the engines' own metrics."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from llmhost.model.engine import EngineAnswer, EngineServer, EnginesReport
from llmhost.model.engine_listen import parse_listen_arguments
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.sources.engine.discover import expected_endpoint
from llmhost.sources.engine.poller import ServerPoller
from llmhost.sources.engine.server_client import ServerClient

MOST_SERVERS: Final = 64  # threads; a host has a few servers
MOST_PER_UNIT: Final = 8  # so that a unit that is full of servers, or of what looks like them, costs no other its own
KNOWN_LATE_SECONDS: Final = 1.0  # the wait for a server that did not answer in time before
_MARGIN_SECONDS: Final = 0.1  # before a deadline, for what has come by then to be handed over
_END_SECONDS: Final = 0.8

_Key: TypeAlias = tuple[UnitId, str, str, tuple[ProcessId, ...]]


class EngineSource:
    """Source of the engines' answers; `set_servers` names the servers to ask.

    Each server has a thread of its own for as long as it is named: one that is slow delays only its own answer, and
    is itself waited for until the deadline. A fetch may take `timeout_seconds` in all and `max_bytes`. Nothing is asked
    but what configured URLs name and what the servers' own processes listen on, on this host.
    """

    def __init__(
        self,
        *,
        procfs: Path,
        timeout_seconds: float = 10.0,
        max_bytes: int = 4 << 20,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._procfs = procfs
        self._timeout_seconds = timeout_seconds
        self._max_bytes = max_bytes
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._servers: tuple[EngineServer, ...] = ()
        self._pollers: dict[_Key, ServerPoller] = {}
        self._ending: list[ServerPoller] = []
        self._closed = False

    def set_servers(self, servers: tuple[EngineServer, ...]) -> None:
        """Set the servers that the next read asks; from any thread."""
        with self._lock:
            self._servers = servers

    def read(self, deadline: float) -> EnginesReport:
        """Ask all, at the same time; one that fails or is late gives a Failed answer."""
        with self._lock:
            servers = {_key(server): server for server in self._servers}
            pollers = self._matching_pollers(_chosen(servers))
        for key, poller in pollers.items():
            poller.ask(servers[key])
        now = self._monotonic()
        until = deadline - min(_MARGIN_SECONDS, (deadline - now) / 4)
        if_late = now + KNOWN_LATE_SECONDS
        answers = [poller.answer(until, if_late=if_late) for poller in pollers.values()]
        skipped = {server.unit: server for key, server in servers.items() if key not in pollers}
        return EnginesReport(answers=_distinct([*answers, *map(_too_many, skipped.values())]))

    def doing(self) -> str:
        with self._lock:
            busy = sorted(poller.endpoint for poller in self._pollers.values() if poller.busy)
        return f"waiting for {', '.join(busy)}" if busy else "idle"

    def close(self) -> None:
        with self._lock:
            self._closed = True
            ending = [*self._pollers.values(), *self._ending]
            self._pollers = {}
            self._ending = []
        for poller in ending:
            poller.end()
        until = time.monotonic() + _END_SECONDS
        for poller in ending:
            poller.join(until - time.monotonic())

    def _matching_pollers(self, servers: dict[_Key, EngineServer]) -> dict[_Key, ServerPoller]:
        """Match the threads with the servers: end those of servers that are gone, start those of new ones."""
        for key in self._pollers.keys() - servers.keys():
            poller = self._pollers.pop(key)
            poller.end()
            self._ending.append(poller)
        self._ending = [poller for poller in self._ending if poller.alive]
        for key, server in servers.items():
            full = len(self._pollers) + len(self._ending) >= MOST_SERVERS
            if key not in self._pollers and not full and not self._closed:
                self._pollers[key] = self._new_poller(server)
        return dict(self._pollers)

    def _new_poller(self, server: EngineServer) -> ServerPoller:
        client = ServerClient(
            server,
            procfs=self._procfs,
            timeout_seconds=self._timeout_seconds,
            max_bytes=self._max_bytes,
            monotonic=self._monotonic,
        )
        return ServerPoller(server, client, self._monotonic)


def _key(server: EngineServer) -> _Key:
    """Give the identity of a server; another server gets a thread and a client of its own."""
    return server.unit, f"{server.url} {server.token_file}", server.run, server.processes[:1]


def _chosen(servers: dict[_Key, EngineServer]) -> dict[_Key, EngineServer]:
    """Take no more of a unit, and in all, than are asked; first those whose place is given."""
    taken: Counter[UnitId] = Counter()
    chosen: dict[_Key, EngineServer] = {}
    for key, server in sorted(servers.items(), key=lambda item: _preference(item[1])):
        if taken[server.unit] < MOST_PER_UNIT and len(chosen) < MOST_SERVERS:
            chosen[key] = server
            taken[server.unit] += 1
    return chosen


def _preference(server: EngineServer) -> int:
    if server.url:
        return 0
    arguments = parse_listen_arguments(server.engine, server.argv)
    return 1 if arguments.port_given or arguments.unix_path else 2


def _too_many(server: EngineServer) -> EngineAnswer:
    return EngineAnswer(
        unit=server.unit,
        engine=server.engine,
        endpoint=expected_endpoint(server),
        samples=Failed(Cause.UNKNOWN, f"more servers than are asked: {MOST_PER_UNIT} of a unit, {MOST_SERVERS} in all"),
    )


def _distinct(answers: list[EngineAnswer]) -> tuple[EngineAnswer, ...]:
    """Keep one answer per unit and endpoint, one with metrics if there is any.

    API servers that share a socket and have lost their launcher are asked one by one, for the same.
    """
    by_place: dict[tuple[UnitId, str], EngineAnswer] = {}
    for answer in answers:
        place = answer.unit, answer.endpoint
        if place not in by_place or isinstance(answer.samples, Ok):
            by_place[place] = answer
    return tuple(by_place[place] for place in sorted(by_place))
