"""Discovery of the endpoints of a server: by the sockets it listens on, else by its arguments."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from llmhost.model.endpoint import DEFAULT_PATH, parse_metrics_url
from llmhost.model.engine import EngineServer
from llmhost.model.engine_listen import ListenArguments, parse_listen_arguments
from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError
from llmhost.sources.engine.fetch import HttpTarget
from llmhost.sources.engine.peer import require_trusted_port, require_unix_listener, require_unix_peer
from llmhost.sources.engine.sockets import (
    HeldSocket,
    Listener,
    in_our_network,
    is_alive,
    owner_of,
    read_listeners,
    sockets_of,
)
from llmhost.sources.narrowed_view import require_host_network

_LOOPBACK: Mapping[str, str] = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "localhost": "127.0.0.1", "::": "::1"}
_IPV4_LOOPBACK = frozenset({"127.0.0.1", "0.0.0.0"})  # of listeners that take connections to 127.0.0.1
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}")
_PREFIX = re.compile(r"(?:/[!-~]*)?")  # a valid beginning of a path in a request
_LONGEST_SOCKET_PATH = 107  # bytes: unix(7), sun_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    target: HttpTarget
    by_arguments: bool  # the arguments name its port or path
    held: HeldSocket | None = None  # by which process it is listened on; None where that could not be seen


def configured(procfs: Path, server: EngineServer) -> Candidate:
    url = parse_metrics_url(server.url)
    secret = server.token_file is not None and url.scheme == "http"
    return Candidate(
        target=HttpTarget(
            endpoint=url.endpoint,
            address=(url.host, url.port),
            authority=url.authority,
            path=url.target,
            tls=url.scheme == "https",
            configured=True,
            token_file=server.token_file,
            require=partial(require_trusted_port, procfs, processes=server.processes) if secret else None,
        ),
        by_arguments=True,
    )


def expected_endpoint(server: EngineServer) -> str:
    """Return the endpoint of its configuration or arguments, before its sockets have been read."""
    if server.url:
        return parse_metrics_url(server.url).endpoint
    arguments = parse_listen_arguments(server.engine, server.argv)
    if arguments.unix_path:
        return _unix_endpoint(arguments)
    host = _LOOPBACK.get(arguments.host, arguments.host)
    if not _HOST.fullmatch(host):
        host = "127.0.0.1"
    return _target(arguments, host, arguments.port or 0).endpoint


def discover(procfs: Path, server: EngineServer) -> tuple[Candidate, ...]:
    """Find the endpoints that a server listens on, the likeliest first; never none.

    Raises SourceError: REFUSED when it does not listen, NETWORK_NAMESPACE when it does so where we are not, UNKNOWN
    when another process may be asked in its place.
    """
    arguments = parse_listen_arguments(server.engine, server.argv)
    if arguments.unix_path:
        return (Candidate(target=_unix_target(procfs, server, arguments), by_arguments=True),)
    try:
        listeners = read_listeners(procfs)
        found = _listeners_of(procfs, server, listeners)
        pairs = _listener_at_port(procfs, server, arguments, listeners) if found is None else found
    except ProcessLookupError:
        raise SourceError(Cause.REFUSED, "its process has ended") from None
    except (OSError, ValueError) as error:
        raise SourceError(Cause.NO_PROCFS, f"cannot tell where it listens: {error}") from error
    if not pairs and any(in_our_network(procfs, process) is False for process in server.processes):
        require_host_network(str(procfs))
        raise SourceError(Cause.NETWORK_NAMESPACE, "it is in another network namespace; configure its URL")
    if server.starting and arguments.port_given and all(listener.port != arguments.port for listener, _ in pairs):
        raise SourceError(Cause.REFUSED, "it does not listen on the port of its arguments yet")
    if not pairs:
        raise SourceError(Cause.REFUSED, "it does not listen")
    alone = [pair for pair in pairs if not _is_shared(pair[0], pairs, listeners)]
    if not alone:
        raise SourceError(Cause.UNKNOWN, "another process listens at the same address and port")
    ordered = sorted(alone, key=lambda pair: (pair[0].port != arguments.port, pair[0].port, pair[0].address))
    places = [(listener, held, listener.reachable_at) for listener, held in ordered]
    places += [  # a host without IPv6 has no ::1, and is reached there by IPv4
        (listener, held, _LOOPBACK[""])
        for listener, held in ordered
        if listener.address == "::" and not _another_is_at(_IPV4_LOOPBACK, listener.port, pairs, listeners)
    ]
    return tuple(
        Candidate(
            target=_target(arguments, host, listener.port), by_arguments=listener.port == arguments.port, held=held
        )
        for listener, held, host in places
    )


def other_scheme(candidate: Candidate) -> Candidate:
    """Give the same with TLS instead of without, or the other way round."""
    target = candidate.target
    scheme = "http" if target.tls else "https"
    endpoint = f"{scheme}://{target.authority}"
    return replace(candidate, target=replace(target, endpoint=endpoint, tls=not target.tls))


def is_loopback(target: HttpTarget) -> bool:
    """Tell if an address is of the network namespace that it is asked from."""
    host = target.address[0]
    return isinstance(target.address, tuple) and (host in {"localhost", "::1"} or host.startswith("127."))


def _is_shared(
    listener: Listener, pairs: Sequence[tuple[Listener, HeldSocket | None]], listeners: Sequence[Listener]
) -> bool:
    """Tell if the kernel may connect us to another process: with SO_REUSEPORT (vLLM sets it) it takes any."""
    return _another_is_at({listener.address}, listener.port, pairs, listeners)


def _another_is_at(
    addresses: Collection[str],
    port: int,
    pairs: Sequence[tuple[Listener, HeldSocket | None]],
    listeners: Sequence[Listener],
) -> bool:
    ours = {pair[0].inode for pair in pairs}
    return any(other.address in addresses and other.port == port and other.inode not in ours for other in listeners)


def _listeners_of(
    procfs: Path, server: EngineServer, listeners: Sequence[Listener]
) -> list[tuple[Listener, HeldSocket | None]] | None:
    """Match listeners with the server's descriptors; None where none of its processes' could be read."""
    by_inode = {listener.inode: listener for listener in listeners}
    found: dict[int, tuple[Listener, HeldSocket | None]] = {}
    read = ended = 0
    for process in server.processes:
        try:
            sockets = sockets_of(procfs, process)
        except ProcessLookupError:
            ended += 1
            continue
        read += sockets is not None
        for held in sockets or ():
            if held.inode in by_inode:
                found.setdefault(held.inode, (by_inode[held.inode], held))
    if ended == len(server.processes):
        raise ProcessLookupError
    return list(found.values()) if read else None


def _listener_at_port(
    procfs: Path, server: EngineServer, arguments: ListenArguments, listeners: Sequence[Listener]
) -> list[tuple[Listener, HeldSocket | None]]:
    """Take what listens on the port that the arguments say, for the same user, in our network namespace.

    That it is this very process takes privilege to see; what another user listens on is not asked.
    """
    uid = owner_of(procfs, server.processes[0])
    matching = [listener for listener in listeners if listener.port == arguments.port and listener.uid == uid]
    if any(in_our_network(procfs, process) is False for process in server.processes):
        return []
    exact = [listener for listener in matching if listener.address == arguments.host]
    return [(listener, None) for listener in (exact or matching)[:1]]


def _target(arguments: ListenArguments, host: str, port: int) -> HttpTarget:
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return HttpTarget(
        endpoint=f"{'https' if arguments.tls else 'http'}://{authority}",
        address=(host, port),
        authority=authority,
        path=_path(arguments),
        tls=arguments.tls,
    )


def _unix_target(procfs: Path, server: EngineServer, arguments: ListenArguments) -> HttpTarget:
    """Go through the process's own root or working directory, as the path is valid only there."""
    pid = server.processes[0].pid
    if not is_alive(procfs, server.processes[0]):
        raise SourceError(Cause.REFUSED, "its process has ended")
    require_unix_listener(procfs, server.processes, arguments.unix_path)
    below = "root" if arguments.unix_path.startswith("/") else "cwd"
    path = f"{procfs}/{pid}/{below}/{arguments.unix_path.lstrip('/')}"
    if below == "root" and not os.access(procfs / str(pid) / below, os.X_OK):  # takes privilege
        path = arguments.unix_path
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        raise SourceError(Cause.UNKNOWN, f"the path of its socket is too long: {_unix_endpoint(arguments)}")
    return HttpTarget(
        endpoint=_unix_endpoint(arguments),
        address=path,
        authority="localhost",
        path=_path(arguments),
        tls=arguments.tls,
        require=partial(require_unix_peer, processes=server.processes),
    )


def _unix_endpoint(arguments: ListenArguments) -> str:
    """Write it so that it is one line and no longer than a path of a socket can be."""
    path = arguments.unix_path[:_LONGEST_SOCKET_PATH]
    return "unix:" + "".join(character if character.isprintable() else ascii(character)[1:-1] for character in path)


def _path(arguments: ListenArguments) -> str:
    return (arguments.prefix if _PREFIX.fullmatch(arguments.prefix) else "") + DEFAULT_PATH
