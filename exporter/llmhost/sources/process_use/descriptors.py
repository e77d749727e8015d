"""The sockets and devices that a process has open, and its debugger: /proc/PID/fd and status (proc(5), sockfs)."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from llmhost.model.ids import ProcessId
from llmhost.sources.procfs_files import DIRECTORY_FLAGS, ENDED_ERRNOS, links_in, opened_process, parse_stat, small_file

_PROTOCOL = "system.sockprotoname"  # net/socket.c: TCP, UDPv6, UNIX-STREAM, NETLINK, AF_VSOCK, …
_SOCKET, _END = "socket:[", "]"
_TRACER = b"\nTracerPid:"
# What whoever has it open serves with it. A /dev of another mount namespace may be shown without its beginning.
_SERVED: Mapping[str, str] = {"/fuse": "a FUSE file system", "/cuse": "a device (CUSE)", "/net/tun": "a network (tun)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSocket:
    inode: int
    protocol: str  # "" where the kernel does not say
    descriptors: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptors:
    sockets: tuple[OpenSocket, ...] = ()
    tracer: int = 0  # the pid of what traces one of its threads; 0: nothing does
    in_our_network: bool = True
    serves: frozenset[str] = frozenset()  # by devices; for people


def read_descriptors(procfs: Path, process: ProcessId) -> Descriptors:
    """Read those of exactly this process; none where it has ended.

    Raises PermissionError where we may not see them; other OSError, ValueError or IndexError where reading fails.
    """
    root = procfs / str(process.pid)
    try:
        with opened_process(root, process.start_ticks) as directory:
            tracer = _tracer(directory)
            links = _links(directory)
            inodes = _inodes(links)
            return Descriptors(
                sockets=_sockets(root, inodes),
                tracer=tracer,
                in_our_network=not inodes or os.readlink("ns/net", dir_fd=directory) == _our_network(procfs),
                serves=frozenset(
                    what for target in links.values() for end, what in _SERVED.items() if target.endswith(end)
                ),
            )
    except OSError:
        if _has_ended(root, process.start_ticks):
            return Descriptors()
        raise


def _has_ended(root: Path, start_ticks: int) -> bool:
    try:
        stat = parse_stat(small_file(str(root / "stat"), None))
    except OSError as error:
        return error.errno in ENDED_ERRNOS
    return stat.start_ticks != start_ticks or stat.state in "ZX"


def held_among(procfs: Path, process: ProcessId, inodes: frozenset[int]) -> frozenset[int]:
    """Give those of these sockets that a process has open; none where that cannot be seen."""
    try:
        with opened_process(procfs / str(process.pid), process.start_ticks) as directory:
            return inodes.intersection(_inodes(_links(directory)).values())
    except (OSError, ValueError, IndexError):
        return frozenset()


def _links(directory: int) -> Mapping[int, str]:
    """Give descriptor → what it is open to. Raises OSError."""
    try:
        descriptors = os.open("fd", DIRECTORY_FLAGS, dir_fd=directory)
    except FileNotFoundError as error:
        small_file("stat", directory)  # fails too when the process has ended
        raise PermissionError(error.errno, "its descriptors are not shown") from error
    try:
        names = os.listdir(descriptors)  # noqa: PTH208 - of an open directory
        return {int(name): target for name, target in links_in(descriptors, names)}
    finally:
        os.close(descriptors)


def _inodes(links: Mapping[int, str]) -> Mapping[int, int]:
    """Give descriptor → inode of the sockets."""
    return {
        descriptor: int(target[len(_SOCKET) : -len(_END)])
        for descriptor, target in links.items()
        if target.startswith(_SOCKET) and target.endswith(_END)
    }


def _sockets(root: Path, inodes: Mapping[int, int]) -> tuple[OpenSocket, ...]:
    protocols: dict[int, str] = {}
    descriptors: dict[int, set[int]] = {}
    for descriptor, inode in inodes.items():
        try:
            protocols[inode] = os.getxattr(root / "fd" / str(descriptor), _PROTOCOL).rstrip(b"\0").decode()
        except OSError:  # closed meanwhile, or a kernel that does not say
            protocols.setdefault(inode, "")
        descriptors.setdefault(inode, set()).add(descriptor)
    return tuple(
        OpenSocket(inode=inode, protocol=protocol, descriptors=frozenset(descriptors[inode]))
        for inode, protocol in protocols.items()
    )


def _tracer(directory: int) -> int:
    """Find a tracer of one of its threads, each of which has its own (ptrace(2))."""
    try:
        threads = os.open("task", DIRECTORY_FLAGS, dir_fd=directory)
    except FileNotFoundError:
        return 0
    try:
        for thread in os.listdir(threads):  # noqa: PTH208 - of an open directory
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                tracer = int(small_file(f"{thread}/status", threads).split(_TRACER, 1)[1].split(None, 1)[0])
                if tracer:
                    return tracer
    finally:
        os.close(threads)
    return 0


def _our_network(procfs: Path) -> str:
    return os.readlink(procfs / "self/ns/net")  # noqa: PTH115 - a link to no path
