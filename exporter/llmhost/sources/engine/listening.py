"""Processes that may be serving clients: they have a socket on which they listen."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from llmhost.model.ids import ProcessId
from llmhost.model.process import Process, Role
from llmhost.model.reading import Cause, Failed, Ok, Reading
from llmhost.sources.engine.peer import parse_unix_listeners
from llmhost.sources.engine.sockets import in_our_network, read_listeners, sockets_of

# Their Unix sockets may be for clients (vLLM's --uds). Others have such for their own: a fork server, each engine core.
_SERVERS = frozenset({Role.API_SERVER, Role.LAUNCHER})


def read_listening(procfs: Path, processes: Iterable[Process]) -> Mapping[ProcessId, Reading[bool]]:
    """Read of each process if it listens by TCP, and of an engine's server also by a Unix socket.

    Failed where that is unknown: in another network namespace, or without the privilege to read descriptors.
    """
    candidates = tuple(processes)
    if not candidates:
        return {}
    try:
        tcp = frozenset(listener.inode for listener in read_listeners(procfs))
        unix = _unix(procfs) if any(process.role in _SERVERS for process in candidates) else frozenset()
    except (OSError, ValueError) as error:
        return {process.id: Failed(Cause.NO_PROCFS, str(error)) for process in candidates}
    return {
        process.id: _listens(procfs, process.id, tcp | unix if process.role in _SERVERS else tcp)
        for process in candidates
    }


def _unix(procfs: Path) -> frozenset[int]:
    with (procfs / "self/net/unix").open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        return frozenset(listener.inode for listener in parse_unix_listeners(lines))


def _listens(procfs: Path, process: ProcessId, inodes: frozenset[int]) -> Reading[bool]:
    try:
        held = sockets_of(procfs, process)
    except ProcessLookupError:
        return Failed(Cause.UNKNOWN, "it has ended")
    if held is None:
        return Failed(Cause.NO_PERMISSION)
    if not inodes.isdisjoint(found.inode for found in held):
        return Ok(True)
    ours = in_our_network(procfs, process)
    if ours is None:
        return Failed(Cause.NO_PERMISSION)
    if held and not ours:
        return Failed(Cause.NETWORK_NAMESPACE)
    return Ok(False)
