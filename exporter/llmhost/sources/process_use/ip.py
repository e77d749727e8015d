"""TCP and UDP sockets of our network namespace, by /proc/net (proc_pid_net(5))."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from llmhost.model.process_use import Transport
from llmhost.sources.engine.sockets import parse_address

# Sockets of MPTCP stand in the tables of TCP, with the inodes that processes have (net/mptcp/subflow.c).
PROTOCOLS: Mapping[str, Transport] = {
    **dict.fromkeys(("TCP", "TCPv6", "MPTCP", "MPTCPv6"), Transport.TCP),
    **dict.fromkeys(("UDP", "UDPv6", "UDP-Lite", "UDPLITEv6"), Transport.UDP),
}
_TABLES = (
    ("tcp", Transport.TCP),
    ("tcp6", Transport.TCP),
    ("udp", Transport.UDP),
    ("udp6", Transport.UDP),
    ("udplite", Transport.UDP),
    ("udplite6", Transport.UDP),
)
_ESTABLISHED, _UNCONNECTED, _LISTENS = "01", "07", "0A"  # include/net/tcp_states.h; UDP is 07 until it is connected
_HALF_CLOSED = frozenset({"04", "05", "08"})  # FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT: the other direction may go on
_MAPPED = "0000000000000000FFFF0000"  # ::ffff:0:0/96, in words of a little-endian machine
_MAPPED_BIG = "00000000000000000000FFFF"


@dataclass(frozen=True, slots=True)
class IpSocket:
    """A row of a table; ends as the kernel writes them, IPv4 that is mapped into IPv6 as IPv4."""

    transport: Transport
    local: str
    remote: str
    state: str
    inode: int  # 0: no process has it

    @property
    def listens(self) -> bool:
        """Say whether anybody may turn up here: of UDP, all that have an address and are not connected."""
        return self.state == (_LISTENS if self.transport is Transport.TCP else _UNCONNECTED)

    @property
    def connected(self) -> bool:
        """Say whether somebody is at the other end: of TCP, one that has not closed it. UDP does not know."""
        return self.transport is Transport.TCP and self.state == _ESTABLISHED

    @property
    def half_closed(self) -> bool:
        """Say whether one end sends no more; one that is closed whole is a socket that no process has."""
        return self.transport is Transport.TCP and self.state in _HALF_CLOSED


@dataclass(slots=True)
class IpSockets:
    """Sockets that were asked for, by inode; and of their connections, as (local, remote), the inode at the other end.

    No other end: it is on another host. 0: it is here, and no process has accepted it.
    """

    by_inode: dict[int, list[IpSocket]] = field(default_factory=dict)
    other_ends: dict[tuple[str, str], int] = field(default_factory=dict)


def read_ip_sockets(procfs: Path, inodes: Collection[int]) -> IpSockets:
    """Read these sockets, and the other ends of their connections on this host. Raises OSError, ValueError."""
    found = IpSockets()
    for row in _rows(procfs):
        if row.inode in inodes:
            found.by_inode.setdefault(row.inode, []).append(row)
    asked = [row for rows in found.by_inode.values() for row in rows]
    ends = {(row.local, row.remote) for row in asked if row.connected or row.half_closed}
    listening = {_port(row.local): row.inode for row in asked if row.listens and row.transport is Transport.TCP}
    if ends:
        for row in _rows(procfs):
            if row.connected and (row.remote, row.local) in ends:  # one without an inode waits to be accepted
                found.other_ends[row.remote, row.local] = row.inode or listening.get(_port(row.local), 0)
            elif row.half_closed and row.inode and (row.remote, row.local) in ends:
                found.other_ends[row.remote, row.local] = row.inode
    return found


def readable(end: str) -> str:
    """Write an end as people do: 10.0.0.2:5678, [fe80::1]:5678."""
    address, _, port = end.partition(":")
    text = parse_address(address)
    return f"[{text}]:{int(port, 16)}" if ":" in text else f"{text}:{int(port, 16)}"


def _rows(procfs: Path) -> Iterator[IpSocket]:
    for name, transport in _TABLES:
        try:
            lines = (procfs / "self/net" / name).open(encoding="ascii", errors="replace")
        except FileNotFoundError:  # a kernel without IPv6, or UDP-Lite
            if name == "tcp":
                raise
            continue
        with lines:
            next(lines, "")  # the names of the columns
            for line in lines:
                words = line.split(None, 10)
                if len(words) < 10:  # noqa: PLR2004 - up to the inode
                    raise ValueError(f"{name}: no row of a table: {line!r}")
                yield IpSocket(transport, _plain(words[1]), _plain(words[2]), words[3], int(words[9]))


def _port(end: str) -> str:
    return end.rpartition(":")[2]


def _plain(end: str) -> str:
    return end[len(_MAPPED) :] if end.startswith((_MAPPED, _MAPPED_BIG)) and len(end) > len(_MAPPED) + 8 else end
