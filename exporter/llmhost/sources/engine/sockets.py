"""Listening sockets of processes, from /proc alone (proc(5), proc_pid_net(5)).

Only sockets of our own network namespace are ever seen: those of another are not in our /proc/self/net. The kernel
lists sockets that listen before all others (net/ipv4/tcp_ipv4.c: tcp_seq_start), so reading ends at the first that does
not, however many connections there are.
"""

import errno
import ipaddress
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from llmhost.model.ids import ProcessId
from llmhost.sources.procfs_files import DIRECTORY_FLAGS, links_in, opened_process, small_file

_LISTEN = "0A"  # include/net/tcp_states.h: TCP_LISTEN
_WILDCARDS: Mapping[str, str] = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_MOST_LISTENERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    address: str  # as bound: "0.0.0.0" and "::" are all of the host's
    port: int
    uid: int
    inode: int

    @property
    def reachable_at(self) -> str:
        """An address of this host that leads there."""
        return _WILDCARDS.get(self.address, self.address)


@dataclass(frozen=True, slots=True)
class HeldSocket:
    """A socket as a process's file descriptor."""

    process: ProcessId
    descriptor: int
    inode: int


def read_listeners(procfs: Path) -> tuple[Listener, ...]:
    """Read all of our network namespace. Raises OSError; a kernel without IPv6 has no tcp6."""
    found: list[Listener] = []
    for name in ("tcp", "tcp6"):
        try:
            with (procfs / "self/net" / name).open(encoding="ascii", errors="replace") as lines:
                found += parse_listeners(lines)
        except FileNotFoundError:
            if name == "tcp":
                raise
    return tuple(found)


def parse_listeners(lines: Iterable[str]) -> Iterator[Listener]:
    for number, line in enumerate(lines):
        fields = line.split()
        if number == 0:  # the names of the columns
            continue
        if len(fields) < 10 or fields[3] != _LISTEN or number > _MOST_LISTENERS:  # noqa: PLR2004 - up to the inode
            return
        address, _, port = fields[1].partition(":")
        yield Listener(address=parse_address(address), port=int(port, 16), uid=int(fields[7]), inode=int(fields[9]))


def parse_address(text: str) -> str:
    """Read an address of hexadecimal words, each in the machine's byte order."""
    data = bytes.fromhex(text)
    words = struct.unpack(f"={len(data) // 4}I", data)
    address = ipaddress.ip_address(struct.pack(f">{len(words)}I", *words))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def sockets_of(procfs: Path, process: ProcessId) -> tuple[HeldSocket, ...] | None:
    """List a process's sockets; None where we may not. Raises ProcessLookupError when it is gone."""
    with _opened(procfs, process) as directory:
        try:
            descriptors = os.open("fd", DIRECTORY_FLAGS, dir_fd=directory)
        except PermissionError:
            return None
    try:
        return tuple(
            HeldSocket(process, int(name), inode)
            for name, target in links_in(descriptors, os.listdir(descriptors))  # noqa: PTH208 - of an open directory
            if (inode := _socket_inode(target)) is not None
        )
    except PermissionError:  # the list may be read, the links in it may not
        return None
    finally:
        os.close(descriptors)


def _socket_inode(target: str) -> int | None:
    inode = target.removeprefix("socket:[").removesuffix("]")
    return int(inode) if inode != target and inode.isdecimal() else None


def still_holds(procfs: Path, held: HeldSocket) -> bool:
    """Tell if that descriptor of that process still is that socket: one cheap read."""
    try:
        with _opened(procfs, held.process) as directory:
            return _socket_inode(os.readlink(f"fd/{held.descriptor}", dir_fd=directory)) == held.inode
    except OSError:
        return False


def is_alive(procfs: Path, process: ProcessId) -> bool:
    try:
        with _opened(procfs, process):
            return True
    except ProcessLookupError:
        return False


def owner_of(procfs: Path, process: ProcessId) -> int:
    """Return a process's effective uid, with which it makes sockets. Raises ProcessLookupError when it is gone."""
    with _opened(procfs, process) as directory:
        status = small_file("status", directory)  # the owner of the directory is root for what may not dump core
        return int(status.split(b"\nUid:", 1)[1].split(None, 2)[1])


def in_our_network(procfs: Path, process: ProcessId) -> bool | None:
    """Tell if a process is in our network namespace; None where that is unknown."""
    try:
        theirs = (procfs / str(process.pid) / "ns/net").readlink()
        ours = (procfs / "self/ns/net").readlink()
    except OSError:
        return None
    return theirs == ours


@contextmanager
def _opened(procfs: Path, process: ProcessId) -> Iterator[int]:
    """Open a process; whatever fails on it but a lack of permission that is handled, it is gone."""
    try:
        with opened_process(procfs / str(process.pid), process.start_ticks) as directory:
            yield directory
    except (OSError, ValueError, IndexError) as error:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from error
