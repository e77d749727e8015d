"""Unix sockets of our network namespace, and who is at their other ends, by sock_diag(7), which needs no privilege."""

import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SOCK_DIAG = 4  # linux/netlink.h: NETLINK_SOCK_DIAG
_BY_FAMILY = 20  # linux/sock_diag.h: SOCK_DIAG_BY_FAMILY
_REQUEST_DUMP = 0x1 | 0x300  # linux/netlink.h: NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_SHOW_NAME_AND_PEER = 0x1 | 0x4  # linux/unix_diag.h: UDIAG_SHOW_NAME | UDIAG_SHOW_PEER
_NAME, _PEER = 0, 2  # UNIX_DIAG_NAME, UNIX_DIAG_PEER
_ALL = 0xFFFFFFFF
_LISTENS = 10  # include/net/tcp_states.h: TCP_LISTEN

_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_ASKED = struct.Struct("=BBHIIIII")  # struct unix_diag_req
_FOUND = struct.Struct("=BBBBIII")  # struct unix_diag_msg
_ATTRIBUTE = struct.Struct("=HH")  # struct nlattr
_MOST_BYTES = 1 << 18  # of one answer; the kernel sends 32 KiB at a time
_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnixSocket:
    listens: bool
    datagram: bool
    name: str  # a path, or "@…" of an abstract one; "" where it is not bound
    peer: int  # the inode of the socket at the other end; 0: none, or it has been closed, or not been accepted yet


def read_unix_sockets() -> Mapping[int, UnixSocket]:
    """Give all by inode. Raises OSError; ValueError where the kernel's answer is none that is known."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as asking:
        asking.settimeout(_SECONDS)
        asked = _ASKED.pack(socket.AF_UNIX, 0, 0, _ALL, 0, _SHOW_NAME_AND_PEER, _ALL, _ALL)
        asking.send(_HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST_DUMP, 1, 0) + asked)
        found: dict[int, UnixSocket] = {}
        while True:
            for kind, body in _messages(asking.recv(_MOST_BYTES)):
                if kind == _DONE:
                    return found
                if kind == _ERROR:
                    number = -int(struct.unpack_from("=i", body)[0])
                    raise OSError(number, "the kernel does not tell of Unix sockets")
                inode, made = parse_unix_socket(body)
                found[inode] = made


def parse_unix_socket(body: bytes) -> tuple[int, UnixSocket]:
    """Read a unix_diag_msg. Raises ValueError."""
    try:
        _, kind, state, _, inode, _, _ = _FOUND.unpack_from(body)
        attributes = dict(_attributes(body[_FOUND.size :]))
        peer = struct.unpack("=I", attributes.get(_PEER, b"\0\0\0\0"))[0]
    except struct.error as error:
        raise ValueError(f"no socket: {error}") from error
    name = attributes.get(_NAME, b"")
    shown = b"@" + name[1:] if name.startswith(b"\0") else name.rstrip(b"\0")
    return inode, UnixSocket(
        listens=state == _LISTENS,
        datagram=kind == socket.SOCK_DGRAM,
        name=shown.decode("utf-8", "backslashreplace"),
        peer=peer,
    )


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _HEADER.size:
        length, kind, _, _, _ = _HEADER.unpack_from(data)
        if length < _HEADER.size or length > len(data):
            raise ValueError("a message of another length than its header says")
        yield kind, data[_HEADER.size : length]
        data = data[_aligned(length) :]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        if length < _ATTRIBUTE.size:
            return
        yield kind, data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3  # linux/netlink.h: NLMSG_ALIGN, NLA_ALIGN
