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
from dataclasses import dataclass
from pathlib import Path

from llmhost.model.ids import ProcessId
from llmhost.sources.procfs_files import parse_stat, small_file

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
        yield Listener(address=_address(address), port=int(port, 16), uid=int(fields[7]), inode=int(fields[9]))


def _address(text: str) -> str:
    """Read an address of hexadecimal words, each in the machine's byte order."""
    data = bytes.fromhex(text)
    words = struct.unpack(f"={len(data) // 4}I", data)
    address = ipaddress.ip_address(struct.pack(f">{len(words)}I", *words))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def sockets_of(procfs: Path, process: ProcessId) -> tuple[HeldSocket, ...] | None:
    """List a process's sockets; None where we may not. Raises ProcessLookupError when it is gone."""
    directory = _open(procfs, process)
    try:
        descriptors = os.open("fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    except PermissionError:
        return None
    except OSError as error:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from error
    finally:
        os.close(directory)
    try:
        return tuple(_sockets(process, descriptors))
    except PermissionError:  # the list may be read, what is behind it may not
        return None
    finally:
        os.close(descriptors)


def _sockets(process: ProcessId, descriptors: int) -> Iterator[HeldSocket]:
    for name in os.listdir(descriptors):
        inode = _socket_inode(name, descriptors)
        if inode is not None:
            yield HeldSocket(process, int(name), inode)


def _socket_inode(name: str, directory: int | None) -> int | None:
    try:
        link = os.readlink(name, dir_fd=directory)
    except FileNotFoundError:  # closed meanwhile
        return None
    inode = link.removeprefix("socket:[").removesuffix("]")
    return int(inode) if inode != link and inode.isdecimal() else None


def still_holds(procfs: Path, held: HeldSocket) -> bool:
    """Tell if that descriptor of that process still is that socket: one cheap read."""
    try:
        directory = _open(procfs, held.process)
    except OSError:
        return False
    try:
        return _socket_inode(f"fd/{held.descriptor}", directory) == held.inode
    except OSError:
        return False
    finally:
        os.close(directory)


def is_alive(procfs: Path, process: ProcessId) -> bool:
    try:
        os.close(_open(procfs, process))
    except ProcessLookupError:
        return False
    return True


def owner_of(procfs: Path, process: ProcessId) -> int:
    """Tell a process's effective uid, with which it makes sockets. Raises ProcessLookupError when it is gone."""
    directory = _open(procfs, process)
    try:
        status = small_file("status", directory)  # the owner of the directory is root for what may not dump core
        return int(status.split(b"\nUid:", 1)[1].split(None, 2)[1])
    except (OSError, IndexError) as error:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from error
    finally:
        os.close(directory)


def in_our_network(procfs: Path, process: ProcessId) -> bool | None:
    """Tell if a process is in our network namespace; None where that cannot be told."""
    try:
        theirs = (procfs / str(process.pid) / "ns/net").readlink()
        ours = (procfs / "self/ns/net").readlink()
    except OSError:
        return None
    return theirs == ours


def _open(procfs: Path, process: ProcessId) -> int:
    """Open the directory of exactly this process: with it open, a reused pid is not mixed up with it."""
    try:
        directory = os.open(procfs / str(process.pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from error
    try:
        if parse_stat(small_file("stat", directory)).start_ticks == process.start_ticks:
            return directory
    except (OSError, ValueError, IndexError):
        pass
    os.close(directory)
    raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
