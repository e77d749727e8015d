"""The ways in which others may use a process, beside its place: its sockets and devices, and its debugger."""

from dataclasses import dataclass
from enum import StrEnum

from llmhost.model.ids import ProcessId


class Transport(StrEnum):
    TCP = "tcp"  # MPTCP too
    UDP = "udp"  # UDP-Lite too
    UNIX = "unix"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningSocket:
    """A socket at which anybody may turn up: it accepts connections, or takes datagrams from everyone."""

    transport: Transport
    at: str  # "127.0.0.1:8000", a path, or "@name" of an abstract one


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """The use that others make of a process, one of several that were asked about together.

    `tied_to` are those among them that work with it: while one of them stays, it is in use. `peers` are all others at
    the other ends of its connections, for people: "10.0.0.2:5678", "4711 python3".
    """

    listening: tuple[ListeningSocket, ...] = ()
    tied_to: frozenset[ProcessId] = frozenset()
    peers: tuple[str, ...] = ()
    unknown_sockets: tuple[str, ...] = ()  # protocols of those that may be served by, and cannot be looked into
    serves: tuple[str, ...] = ()  # by devices, for people: "a FUSE file system"
    debugger: str = ""  # for people: "gdb (pid 12)"; "" where it has none, or one of those asked about
