"""Where a server is to be asked: by the sockets it listens on, else by its arguments."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from llmhost.model.endpoint import DEFAULT_PATH, parse_metrics_url
from llmhost.model.engine import EngineServer
from llmhost.model.engine_listen import ListenArguments, parse_listen_arguments
from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError
from llmhost.sources.engine.fetch import Target
from llmhost.sources.engine.peer import require_trusted_port, require_unix_listener, require_unix_peer
from llmhost.sources.engine.sockets import Held, Listener, in_our_network, lives, owner_of, read_listeners, sockets_of

_LOOPBACK: Mapping[str, str] = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "localhost": "127.0.0.1", "::": "::1"}
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}")
_PREFIX = re.compile(r"(?:/[!-~]*)?")  # what can be the begin of a path in a request
_LONGEST_SOCKET_PATH = 107  # bytes: unix(7), sun_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    target: Target
    hinted: bool  # it is what the arguments say
    held: Held | None = None  # by whom it is listened on; None where that could not be seen


def configured(procfs: Path, server: EngineServer) -> Candidate:
    url = parse_metrics_url(server.url)
    secret = server.token_file is not None and url.scheme == "http"
    return Candidate(
        target=Target(
            endpoint=url.endpoint,
            address=(url.host, url.port),
            authority=url.authority,
            path=url.target,
            tls=url.scheme == "https",
            configured=True,
            token_file=server.token_file,
            require=partial(require_trusted_port, procfs, processes=server.processes) if secret else None,
        ),
        hinted=True,
    )


def expected_endpoint(server: EngineServer) -> str:
    """Say where it will be, by its configuration or arguments, before anybody looked."""
    if server.url:
        return parse_metrics_url(server.url).endpoint
    said = parse_listen_arguments(server.engine, server.argv)
    if said.unix_path:
        return _unix_endpoint(said)
    host = _LOOPBACK.get(said.host, said.host)
    if not _HOST.fullmatch(host):
        host = "127.0.0.1"
    return _target(said, host, said.port or 0).endpoint


def candidates(procfs: Path, server: EngineServer) -> tuple[Candidate, ...]:
    """Give what a discovered server listens on, the likeliest first; never none.

    Raises SourceError: REFUSED when it does not listen, NETWORK_NAMESPACE when it does so where we are not, UNKNOWN
    when another process may be asked in its place.
    """
    said = parse_listen_arguments(server.engine, server.argv)
    if said.unix_path:
        return (Candidate(target=_unix_target(procfs, server, said), hinted=True),)
    try:
        listeners = read_listeners(procfs)
        found = _seen(procfs, server, listeners)
        pairs = _inferred(procfs, server, said, listeners) if found is None else found
    except ProcessLookupError:
        raise SourceError(Cause.REFUSED, "its process has ended") from None
    except (OSError, ValueError) as error:
        raise SourceError(Cause.NO_PROCFS, f"cannot tell where it listens: {error}") from error
    if server.starting and said.port_given and all(listener.port != said.port for listener, _ in pairs):
        raise SourceError(Cause.REFUSED, "it does not listen on the port of its arguments yet")
    if not pairs:
        if any(in_our_network(procfs, process) is False for process in server.processes):
            raise SourceError(Cause.NETWORK_NAMESPACE, "it is in another network namespace; configure its URL")
        raise SourceError(Cause.REFUSED, "it does not listen")
    alone = [pair for pair in pairs if not _is_shared(pair[0], pairs, listeners)]
    if not alone:
        raise SourceError(Cause.UNKNOWN, "another process listens at the same address and port")
    ordered = sorted(alone, key=lambda pair: (pair[0].port != said.port, pair[0].port, pair[0].address))
    return tuple(
        Candidate(
            target=_target(said, listener.reachable_at, listener.port), hinted=listener.port == said.port, held=held
        )
        for listener, held in ordered
    )


def other_scheme(candidate: Candidate) -> Candidate:
    """Give the same with TLS instead of without, or the other way round."""
    target = candidate.target
    scheme = "http" if target.tls else "https"
    endpoint = f"{scheme}://{target.authority}"
    return replace(candidate, target=replace(target, endpoint=endpoint, tls=not target.tls))


def _is_shared(
    listener: Listener, pairs: Sequence[tuple[Listener, Held | None]], listeners: Sequence[Listener]
) -> bool:
    """Whether the kernel may connect us to another process instead: with SO_REUSEPORT (vLLM sets it) it takes any."""
    ours = {pair[0].inode for pair in pairs}
    place = listener.address, listener.port
    return any((one.address, one.port) == place and one.inode not in ours for one in listeners)


def _seen(
    procfs: Path, server: EngineServer, listeners: Sequence[Listener]
) -> list[tuple[Listener, Held | None]] | None:
    """Match listeners with the server's descriptors; None where none of its processes' could be read."""
    by_inode = {listener.inode: listener for listener in listeners}
    found: dict[int, tuple[Listener, Held | None]] = {}
    read = gone = 0
    for process in server.processes:
        try:
            sockets = sockets_of(procfs, process)
        except ProcessLookupError:
            gone += 1
            continue
        read += sockets is not None
        for held in sockets or ():
            if held.inode in by_inode:
                found.setdefault(held.inode, (by_inode[held.inode], held))
    if gone == len(server.processes):
        raise ProcessLookupError
    return list(found.values()) if read else None


def _inferred(
    procfs: Path, server: EngineServer, said: ListenArguments, listeners: Sequence[Listener]
) -> list[tuple[Listener, Held | None]]:
    """Take what listens on the port that the arguments say, for the same user, in our network namespace.

    That it is this very process takes privilege to see; what another user listens on is not asked.
    """
    uid = owner_of(procfs, server.processes[0])
    matching = [listener for listener in listeners if listener.port == said.port and listener.uid == uid]
    if any(in_our_network(procfs, process) is False for process in server.processes):
        return []
    exact = [listener for listener in matching if listener.address == said.host]
    return [(listener, None) for listener in (exact or matching)[:1]]


def _target(said: ListenArguments, host: str, port: int) -> Target:
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Target(
        endpoint=f"{'https' if said.tls else 'http'}://{authority}",
        address=(host, port),
        authority=authority,
        path=_path(said),
        tls=said.tls,
    )


def _unix_target(procfs: Path, server: EngineServer, said: ListenArguments) -> Target:
    """Go through the process's own root or working directory, as only there the path means what it says."""
    pid = server.processes[0].pid
    if not lives(procfs, server.processes[0]):
        raise SourceError(Cause.REFUSED, "its process has ended")
    require_unix_listener(procfs, server.processes, said.unix_path)
    below = "root" if said.unix_path.startswith("/") else "cwd"
    path = f"{procfs}/{pid}/{below}/{said.unix_path.lstrip('/')}"
    if below == "root" and not os.access(procfs / str(pid) / below, os.X_OK):  # takes privilege
        path = said.unix_path
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        raise SourceError(Cause.UNKNOWN, f"the path of its socket is too long: {_unix_endpoint(said)}")
    return Target(
        endpoint=_unix_endpoint(said),
        address=path,
        authority="localhost",
        path=_path(said),
        tls=said.tls,
        require=partial(require_unix_peer, processes=server.processes),
    )


def _unix_endpoint(said: ListenArguments) -> str:
    """Write it so that it is one line and no longer than a path of a socket can be."""
    path = said.unix_path[:_LONGEST_SOCKET_PATH]
    return "unix:" + "".join(one if one.isprintable() else ascii(one)[1:-1] for one in path)


def _path(said: ListenArguments) -> str:
    return (said.prefix if _PREFIX.fullmatch(said.prefix) else "") + DEFAULT_PATH
