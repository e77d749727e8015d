"""The clients and peers that some processes have or may have (docs/clean.md)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmhost.model.ids import ProcessId
from llmhost.model.process import Process
from llmhost.model.process_use import ListeningSocket, ProcessUse, Transport
from llmhost.model.reading import Cause, Failed, Ok, Reading
from llmhost.sources.process_use.descriptors import Descriptors, OpenSocket, held_among, read_descriptors
from llmhost.sources.process_use.ip import PROTOCOLS, IpSockets, read_ip_sockets, readable
from llmhost.sources.process_use.unix import UnixSocket, read_unix_sockets
from llmhost.sources.procfs_files import text_of

_UNIX = "UNIX"  # of UNIX-STREAM too
_FOR_NOBODY = frozenset({"NETLINK", "PING", "PINGv6", "ALG", "KEY"})  # they lead to the kernel, or are clients' alone
_STANDARD = frozenset({0, 1, 2})  # whoever started a process may hear it there


def read_process_use(
    procfs: Path, processes: Iterable[Process], everybody: Iterable[Process]
) -> Mapping[ProcessId, Reading[ProcessUse]]:
    """Read of each process how others may use it; `everybody` are those among whom others are looked for.

    One that has ended is used by nobody. Failed: NO_PERMISSION, without the privilege to see its descriptors;
    NETWORK_NAMESPACE, where it has sockets in another one than ours; UNKNOWN, where something could not be read.
    """
    asked = {process.id: process for process in processes}
    held: dict[ProcessId, Descriptors] = {}
    uses: dict[ProcessId, Reading[ProcessUse]] = {}
    for process in asked:
        try:
            held[process] = read_descriptors(procfs, process)
        except PermissionError:
            uses[process] = Failed(Cause.NO_PERMISSION)
        except (OSError, ValueError, IndexError) as error:
            uses[process] = Failed(Cause.UNKNOWN, f"its descriptors cannot be read: {error}")
    try:
        tables = _read_tables(procfs, {socket for found in held.values() for socket in found.sockets})
    except (OSError, ValueError) as error:
        unread: Reading[ProcessUse] = Failed(Cause.UNKNOWN, f"the kernel's sockets cannot be read: {error}")
        return uses | {
            process: unread if found.sockets else Ok(ProcessUse(serves=tuple(sorted(found.serves))))
            for process, found in held.items()
        }
    ends = {process: tuple(tables.other_ends(found.sockets)) for process, found in held.items()}
    others = _Others(procfs, held, [process for process in everybody if process.id not in asked])
    others.look_for(frozenset(end.inode for found in ends.values() for end in found))
    for process, found in held.items():
        use = ProcessUse(
            listening=tuple(tables.listening(found.sockets)),
            tied_to=frozenset(others.asked(ends[process], found.tracer)) - {process},
            peers=tuple(dict.fromkeys(others.peers(ends[process]))),
            unknown_sockets=tuple(sorted({socket.protocol for socket in found.sockets if tables.hide(socket)})),
            debugger=others.debugger(found.tracer),
            serves=tuple(sorted(found.serves)),
        )
        hidden = not found.in_our_network and any(tables.lack(socket) for socket in found.sockets)
        uses[process] = Failed(Cause.NETWORK_NAMESPACE) if hidden and not (use.listening or use.peers) else Ok(use)
    return uses


@dataclass(frozen=True, slots=True)
class _End:
    """The other end of a connection."""

    inode: int  # of the socket there; 0: it is none of our network namespace's
    address: str  # for people; "" of Unix sockets


def _read_tables(procfs: Path, sockets: Iterable[OpenSocket]) -> "_Tables":
    """Read the tables that these sockets are in. Raises OSError, ValueError."""
    ip = {socket.inode for socket in sockets if not socket.protocol or socket.protocol in PROTOCOLS}
    unix = any(not socket.protocol or socket.protocol.startswith(_UNIX) for socket in sockets)
    return _Tables(read_ip_sockets(procfs, ip) if ip else IpSockets(), read_unix_sockets() if unix else {})


class _Tables:
    """The kernel's tables of the sockets in our network namespace."""

    def __init__(self, ip: IpSockets, unix: Mapping[int, UnixSocket]) -> None:
        self._ip = ip
        self._unix = unix
        self._names = frozenset(socket.name for socket in unix.values() if socket.listens)

    def lack(self, socket: OpenSocket) -> bool:
        """Say whether a socket of theirs is not in there: it has no address, or is of another network namespace."""
        is_theirs = socket.protocol in PROTOCOLS or socket.protocol.startswith(_UNIX)
        return is_theirs and not self._have(socket)

    def hide(self, socket: OpenSocket) -> bool:
        """Say whether a socket is of a kind that none of them tells of, and that may serve somebody."""
        return not (self._have(socket) or self.lack(socket) or socket.protocol in _FOR_NOBODY)

    def _have(self, socket: OpenSocket) -> bool:
        return socket.inode in self._ip.by_inode or socket.inode in self._unix

    def listening(self, sockets: Iterable[OpenSocket]) -> Iterator[ListeningSocket]:
        for socket in sockets:
            for row in self._ip.by_inode.get(socket.inode, ()):
                if row.listens:
                    yield ListeningSocket(transport=row.transport, at=readable(row.local))
            unix = self._unix.get(socket.inode)
            if unix is not None and (unix.listens or (unix.datagram and unix.name and not unix.peer)):
                yield ListeningSocket(transport=Transport.UNIX, at=unix.name)

    def other_ends(self, sockets: Iterable[OpenSocket]) -> Iterator[_End]:
        """Give the other ends by which these are in use."""
        for socket in sockets:
            for row in self._ip.by_inode.get(socket.inode, ()):
                if row.connected or (row.half_closed and self._ip.other_ends.get((row.local, row.remote))):
                    yield _End(self._ip.other_ends.get((row.local, row.remote), 0), readable(row.remote))
            unix = self._unix.get(socket.inode)
            if unix is not None and unix.peer and self._is_served(unix, socket):
                yield _End(unix.peer, "")

    def _is_served(self, unix: UnixSocket, socket: OpenSocket) -> bool:
        """Say whether the other end of a Unix socket is a client, or an equal; not a service that this one uses.

        One that was accepted has the name at which its server listens. A client has none, or one of its own (sd-bus).
        A pair of sockets has no names. The pair by which a process is heard at its standard output ties it to nobody.
        """
        other = self._unix.get(unix.peer)
        if not unix.name:
            return other is not None and not other.name and not socket.descriptors <= _STANDARD
        is_client = unix.name not in self._names and other is not None and other.name in self._names
        return not unix.datagram and not is_client


class _Others:
    """Finds the processes at other ends: among those that were asked about, and among all others."""

    def __init__(self, procfs: Path, held: Mapping[ProcessId, Descriptors], unasked: Sequence[Process]) -> None:
        self._procfs = procfs
        self._unasked = unasked
        self._names: dict[int, str] = {}  # inode → who has it, of those not asked about
        self._asked: dict[int, set[ProcessId]] = {}  # inode → who have it, of those asked about
        self._asked_pids = {process.pid: process for process in held}
        for process, found in held.items():
            for socket in found.sockets:
                self._asked.setdefault(socket.inode, set()).add(process)

    def look_for(self, inodes: frozenset[int]) -> None:
        """Look for the holders of the sockets that none of those asked about has."""
        lost = inodes - self._asked.keys() - {0}
        for process in self._unasked:
            if not lost:
                return
            for inode in held_among(self._procfs, process.id, lost):
                self._names[inode] = process.name
            lost -= self._names.keys()

    def asked(self, ends: Iterable[_End], tracer: int) -> Iterator[ProcessId]:
        for end in ends:
            yield from self._asked.get(end.inode, ())
        if tracer in self._asked_pids:
            yield self._asked_pids[tracer]

    def peers(self, ends: Iterable[_End]) -> Iterator[str]:
        for end in ends:
            if end.inode not in self._asked:
                yield self._names.get(end.inode) or end.address or "a process that is not seen"

    def debugger(self, tracer: int) -> str:
        if not tracer or tracer in self._asked_pids:
            return ""
        try:
            comm = text_of((self._procfs / str(tracer) / "comm").read_bytes().rstrip(b"\n"))
        except OSError:
            comm = "a process"
        return f"{comm} (pid {tracer})"
