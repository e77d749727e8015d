"""Reasons to leave a process alone as it is in use: the one place that `clean` and the guard's --reap ask. Pure.

A process stays if others may use it (docs/clean.md: In use). What cannot be told keeps it, too.
"""

import re
from collections.abc import Mapping
from posixpath import basename
from typing import TypeAlias

from llmhost.model.children import is_bare_child
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Home, Placement, Process, Role
from llmhost.model.process_use import ListeningSocket, ProcessUse, Transport
from llmhost.model.reading import Cause, Failed, Ok, Reading

Uses: TypeAlias = Mapping[ProcessId, Reading[ProcessUse]]

_SERVERS = frozenset({Role.API_SERVER, Role.LAUNCHER})
# An engine's parts listen for each other (each vLLM worker on some eight ports of loopback), and serve no clients.
_PARTS = frozenset({Role.CORE, Role.COORDINATOR, Role.WORKER})
# Sockets of an engine, and of multiprocessing, for their own: vLLM's (uuid4), SGLang's (tempfile), a fork server's.
_OWN_SOCKET = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|tmp[a-z0-9_]{8}|@?listener-[\w-]+")
_FOR_A_PERSON = "for a person to end, if nobody uses it"


def stays_in_use(process: Process, uses: Uses) -> str:
    """Say why a process stays that others use, or may use; "" where nobody does."""
    use = uses.get(process.id, Failed(Cause.UNKNOWN))
    if not isinstance(use, Ok):
        return _unknown(use)
    found = use.value
    if found.debugger:
        return f"is being debugged by {found.debugger}"
    if any(_is_for_clients(socket, process) for socket in found.listening):
        return f"still listens, and may serve somebody: {_FOR_A_PERSON}"
    if found.serves:
        return f"serves {found.serves[0]}, which others may use: {_FOR_A_PERSON}"
    if found.peers:
        return f"still connected to {found.peers[0]}, and may work for it: {_FOR_A_PERSON}"
    if found.unknown_sockets:
        kind = found.unknown_sockets[0] or "of an unknown kind"
        return f"has a socket ({kind}) of which cannot be told whom it serves: {_FOR_A_PERSON}"
    return ""


def lives_elsewhere(place: Placement, own: UnitId) -> str:
    """Name the unit, container or cgroup, other than its own unit, that a process lives in by now; "" for none.

    A person's session is no such place: nobody but that person would end what is in it. A cgroup that is no unit's is
    one: somebody has made it, and has moved the process there.
    """
    if place.home is Home.CONTAINER:
        return "a container"
    if place.cgroup:
        return f"the cgroup {place.cgroup}"
    there = place.scope or place.unit
    return there.name if there not in {None, own} and there is not None else ""


def _is_for_clients(socket: ListeningSocket, process: Process) -> bool:
    if process.role in _PARTS:
        return False
    if socket.transport is not Transport.UNIX or process.role in _SERVERS:
        return True
    has_own = bool(process.engine) or is_bare_child(process)
    return not (has_own and _OWN_SOCKET.fullmatch(basename(socket.at)))


def _unknown(use: Reading[ProcessUse]) -> str:
    if isinstance(use, Failed) and use.cause is Cause.NETWORK_NAMESPACE:
        return "may listen in its own network namespace, which is not looked into: for a person to end"
    if isinstance(use, Failed) and use.detail:
        return f"whether it is in use cannot be told: {use.detail}"
    return "whether it listens cannot be told: root can tell"
