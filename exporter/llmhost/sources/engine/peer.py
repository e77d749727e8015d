"""Checks of the process at the other end of a connection, before anything is sent to it."""

import ipaddress
import os
import re
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmhost.model.ids import ProcessId
from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError
from llmhost.sources.engine.sockets import HeldSocket, owner_of, read_listeners, sockets_of

_ACCEPTS = 0x10000  # include/uapi/linux/net.h: __SO_ACCEPTCON
_UCRED = struct.Struct("=iII")  # unix(7): pid, uid, gid
_ROW = re.compile(r"[0-9A-Fa-f]+: [0-9A-F]{8} [0-9A-F]{8} ([0-9A-F]{8}) [0-9A-F]{4} [0-9A-F]{2} +([0-9]+) (.+)")
_MOST_ROWS = 100_000
_NO_LISTENER = "nobody is seen to listen there"  # the process that accepted has gone, or listens in another namespace


@dataclass(frozen=True, slots=True)
class UnixListener:
    path: str  # as bound, perhaps below the working directory that its binder had
    inode: int


def parse_unix_listeners(lines: Iterator[str]) -> Iterator[UnixListener]:
    """Read what accepts connections at a path (proc_pid_net(5): unix).

    A path may have a line in it that looks like a row: `require_unix_peer` must confirm what is read here.
    """
    for number, line in enumerate(lines):
        row = _ROW.fullmatch(line.rstrip("\n"))
        if row is not None and int(row[1], 16) & _ACCEPTS:
            yield UnixListener(row[3], int(row[2]))
        if number >= _MOST_ROWS:
            return


def require_unix_listener(procfs: Path, processes: Sequence[ProcessId], path: str) -> None:
    """Require that the processes themselves listen at this path, before anybody connects to whatever it leads to.

    The user of a process chooses its command line, and a path in it may be that of a socket that only root may use.
    Raises SourceError: REFUSED when nobody listens there, UNKNOWN when it is another process or cannot be told.
    """
    first = procfs / str(processes[0].pid)
    try:
        directory = (first / "cwd").readlink()
    except OSError:
        directory = Path("/")
    wanted = os.path.normpath(directory / path)
    try:
        # of the processes' network namespace, and a path of the file system can be reached from every one
        with (first / "net/unix").open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
            there = {
                listener.inode
                for listener in parse_unix_listeners(lines)
                if os.path.normpath(directory / listener.path) == wanted
            }
    except OSError as error:
        raise SourceError(Cause.UNKNOWN, f"cannot tell who listens at its socket: {error.strerror}") from error
    if not there:
        raise SourceError(Cause.REFUSED, "it does not listen at the socket of its arguments")
    held = [sockets for process in processes if (sockets := _sockets_if_alive(procfs, process)) is not None]
    if held and there.isdisjoint(found.inode for sockets in held for found in sockets):
        raise SourceError(Cause.UNKNOWN, "another process listens at the socket of its arguments")


def _sockets_if_alive(procfs: Path, process: ProcessId) -> tuple[HeldSocket, ...] | None:
    """Return None where it takes privilege to see them: then only the end of a connection can prove it."""
    try:
        return sockets_of(procfs, process)
    except ProcessLookupError:
        return ()


def require_unix_peer(connection: socket.socket, processes: Sequence[ProcessId]) -> None:
    """Require that one of the processes made the other end listen: the kernel says so. Raises SourceError, UNKNOWN."""
    pid, _, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    if pid not in {process.pid for process in processes}:
        raise SourceError(Cause.UNKNOWN, "another process listens at the socket of its arguments")


def require_trusted_port(procfs: Path, connection: socket.socket, processes: Sequence[ProcessId]) -> None:
    """Require that a listener on this host is root's, or of the user of the unit's process, before it gets a token.

    Any user may listen on a port that the server has not taken yet, or has left. Another host is not ours to look into.
    Raises SourceError, NO_PERMISSION.
    """
    peer, port = connection.getpeername()[:2]
    if peer != connection.getsockname()[0] and not _plain(peer).is_loopback:
        return
    trusted = {0}
    for process in processes:
        try:
            trusted.add(owner_of(procfs, process))
        except ProcessLookupError:
            continue
    try:
        listeners = read_listeners(procfs)
    except (OSError, ValueError) as error:
        raise SourceError(Cause.NO_PERMISSION, f"no token is sent: cannot tell who listens: {error}") from error
    addresses = {str(_plain(peer)), "0.0.0.0", "::"}
    owners = {listener.uid for listener in listeners if listener.port == port and listener.address in addresses}
    if not owners or not owners <= trusted:
        who = f"user {min(owners - trusted)} listens there, not root or the unit's user" if owners else _NO_LISTENER
        raise SourceError(Cause.NO_PERMISSION, f"no token is sent without TLS: {who}")


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    read = ipaddress.ip_address(address.partition("%")[0])
    return (read.ipv4_mapped or read) if isinstance(read, ipaddress.IPv6Address) else read
